"""Simulated clients: the client half of our own AMQP machine over simulated pipes, noting what they learn.

A client reconnects after a pause. Nothing is ever sent twice: a message whose outcome a client did not learn stays
unknown.
"""

from __future__ import annotations

from typing import Any

from mqbroker.amqp import events as told
from mqbroker.amqp import sasl
from mqbroker.amqp.connection import Connection
from mqbroker.amqp.limits import ConnectionLimits
from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.amqp.session import Session
from mqbroker.base.time import NS_PER_MS
from mqbroker.wire.performatives import Accepted, Attach, Modified, Open, Rejected, Released, Source, Target
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, body_values, build_message, decode_header, scan_sections

from tests.sim.world import PASSWORD, Pipe, SimNode, World
from tests.support.checker import History, Sent, body_of
from tests.support.derived import key_of

LIMITS = ConnectionLimits(65536, 65536, 60_000, 64, 64, 1 << 30)


class Client:
    """Connects, logs in, opens a session, attaches; starts again when the connection is lost."""

    def __init__(self, world: World, node: SimNode, name: str, history: History) -> None:
        self.world = world
        self.node = node
        self.name = name
        self.history = history
        self.pipe: Pipe | None = None
        self.session: Session | None = None
        self.is_stopped = False
        self.incarnation = 0
        self.connection: Connection
        self.connect()

    def connect(self) -> None:
        """Try now, and again a little later if nobody is there."""
        if self.is_stopped:
            return
        self.pipe = self.node.connect(self._received, self._lost)
        if self.pipe is None:
            self.world.after(20, self.connect)
            return
        self.incarnation += 1
        self.session = None
        self.connection = Connection(LIMITS, client=sasl.SaslClient("sim", PASSWORD, self.world.rng.randbytes(32)))
        self._flush()

    def _received(self, data: bytes) -> None:
        self.connection.receive(data, self._handle)
        self._handle()
        self._flush()

    def _lost(self) -> None:
        self.pipe = None
        self.connection.lost()
        self.connection.events.clear()
        self.session = None
        self.on_lost()
        self.world.after(5 + self.world.rng.random() * 20, self.connect)

    def _flush(self) -> None:
        if self.session is not None:
            self.session.flush()
        if self.connection.out and self.pipe is not None:
            data = b"".join(bytes(chunk) for chunk in self.connection.out)
            self.connection.out = []
            self.node.write(self.pipe, data)

    def act(self) -> None:
        """Send what was put into the connection meanwhile; a node that was down from the beginning has none yet."""
        if self.incarnation:
            self._flush()

    def _handle(self) -> None:
        while self.connection.events:
            events, self.connection.events = self.connection.events, []
            for event in events:
                self._on(event)

    def _on(self, event: Any) -> None:
        match event:
            case told.SaslDerive():
                self.connection.derived(key_of(event), self._handle)
            case told.LoggedIn():
                self.connection.open(Open(container_id=self.name, max_frame_size=self.world.rng.choice((512, 65536))))
            case told.Opened():
                self.session = self.connection.begin()
            case told.Began(session):
                self.attach(session)
            case told.Dead():
                if self.pipe is not None:
                    self.node.reset(self.pipe)
            case _:
                self.on_event(event)

    def stop(self) -> None:
        """No more reconnects; the connection closes in good order."""
        self.is_stopped = True
        if self.pipe is not None:
            self.connection.close()
            self._flush()

    def begin_anew(self) -> None:
        """The broker has ended a link: come back with a new connection."""
        if self.pipe is not None and not self.is_stopped:
            self.node.reset(self.pipe)

    def attach(self, session: Session) -> None:
        """The session stands."""
        raise NotImplementedError

    def on_event(self, event: Any) -> None:
        """Something happened on a link."""
        raise NotImplementedError

    def on_lost(self) -> None:
        """The connection is gone."""


class Producer(Client):
    """Sends numbered messages to one queue as credit allows."""

    def __init__(self, world: World, node: SimNode, name: str, history: History, queue: str, count: int) -> None:
        self.queue = queue
        self.left = count
        self.pace_ms = 10  # at most, between two turns of sending
        self.number = 0
        self.link: SenderLink | None = None
        self.in_doubt: dict[int, list[str]] = {}
        self.attached_ns = 0
        self.durable_share = world.rng.choice((1.0, 1.0, 0.5, 0.0))
        self.size_max = world.rng.choice((40, 300, 300, 5000))
        if node.large_sizes:
            self.size_max = world.rng.choice(node.large_sizes)
        self.is_settled = world.rng.random() < 0.1
        super().__init__(world, node, name, history)
        self._tick()

    def attach(self, session: Session) -> None:
        self.attached_ns = self.world.now_ns
        self.link = session.attach_sender(
            Attach(name=self.name, handle=0, role=False, snd_settle_mode=1 if self.is_settled else 0,
                   source=Source(), target=Target(address=self.queue), initial_delivery_count=0)
        )  # fmt: skip
        self.link.send_settled = self.is_settled

    def on_lost(self) -> None:
        self.link = None

    def _tick(self) -> None:
        if self.is_stopped or self.left <= 0:
            return
        self._send()
        self.act()
        self.world.after(self.world.rng.random() * self.pace_ms, self._tick)

    def _send(self) -> None:
        link, session = self.link, self.session
        if link is None or session is None or not link.is_attached or self.pipe is None:
            return
        low_since_ns = self.node.low_since_ns
        if link.credit and low_since_ns is not None and self.attached_ns > low_since_ns + NS_PER_MS:
            self.history.violations.append(f"taken in: {self.name} has credit though the disk has little room")
        for _ in range(min(self.left, link.credit, self.world.rng.choice((1, 1, 5, 40)))):
            if session.window == 0:
                return
            self._send_one(session, link)

    def _send_one(self, session: Session, link: SenderLink) -> None:
        rng = self.world.rng
        self.left -= 1
        self.number += 1
        message_id = f"{self.name}-{self.number}"
        is_durable = rng.random() < self.durable_share
        body = body_of(message_id, rng.randrange(20, self.size_max))
        self.history.send(message_id, Sent(self.name, self.number, self.queue, is_durable, len(body)))
        if self.is_settled:
            self.history.sent[message_id].outcome = "settled"
        if is_durable and self.pipe is not None:
            self.node.published[(self.pipe.conn, session.next_delivery_id)] = message_id
        # Of a large message the journal has the head only: what looks for it there finds it by this property.
        named = {"id": f"{message_id}|"} if self.node.large_sizes else None
        message = build_message(body, durable=is_durable, application_properties=named, **self.said())
        session.send_run(link, single(message), 0, 1, message_id)

    def said(self) -> dict[str, Any]:
        """What else its messages say."""
        return {}

    def on_event(self, event: Any) -> None:
        if isinstance(event, told.Settled):
            names = {Accepted: "accepted", Rejected: "rejected"}
            for taken in event.taken:
                self.history.outcome(taken.token, names[type(event.outcome)], self.node.epoch)


class Consumer(Client):
    """Takes messages and does with them what the dice say; `is_drain`: accepts everything."""

    def __init__(
        self, world: World, node: SimNode, name: str, history: History, queue: str, *, is_drain: bool = False
    ) -> None:
        self.queue = queue
        self.is_drain = is_drain
        self.link: ReceiverLink | None = None
        self.window = world.rng.choice((1, 10, 100))
        self.mode = world.rng.choice((0, 1))  # rcv-settle-mode: first, second
        self.confirming: dict[int, str] = {}
        self.undecided: set[str] = set()  # of this connection
        self.taken = 0
        super().__init__(world, node, name, history)

    def attach(self, session: Session) -> None:
        self.link = session.attach_receiver(
            Attach(name=self.name, handle=0, role=True, rcv_settle_mode=self.mode, source=Source(address=self.queue),
                   target=Target())
        )  # fmt: skip
        self.link.window = self.window

    def on_lost(self) -> None:
        self.link = None
        self.confirming.clear()
        self.undecided.clear()

    def stop(self) -> None:
        """What it has not decided on by its close counts as never delivered."""
        self.history.released |= self.undecided
        super().stop()

    def on_event(self, event: Any) -> None:
        if isinstance(event, told.Attached):
            assert isinstance(event.link, ReceiverLink)
            event.link.grant(self.window)
        elif isinstance(event, told.Incoming):
            self._take(event)
        elif isinstance(event, told.SenderSettled):
            for delivery_id in range(event.first, event.last + 1):
                message_id = self.confirming.pop(delivery_id, None)
                if message_id is not None:
                    self.history.settle_confirmed.add(message_id)

    def _take(self, event: told.Incoming) -> None:
        self.taken += event.run.count
        if self.is_stopped:
            return  # it has closed its connection: what still comes returns to the queue as never delivered
        for index in range(event.run.count):
            payload = bytes(event.run.payload(index))
            sections = scan_sections(payload, 0, len(payload))
            header = decode_header(payload, 0, len(payload))[0] if sections.header >= 0 else Header()
            body = b"".join(body_values(payload, sections)[1])
            message_id = self.note(body, header.delivery_count)
            if message_id is not None:
                self._decide(event.delivery_id + index, message_id)
        link = event.link
        if link.credit * 2 <= link.window and link.is_attached:
            link.grant(link.window)

    def note(self, body: bytes, delivery_count: int) -> str | None:
        """It got a message."""
        return self.history.receive(f"{self.name}.{self.incarnation}", self.queue, body, delivery_count)

    def _decide(self, delivery_id: int, message_id: str) -> None:
        assert self.session is not None
        dice = 0.0 if self.is_drain else self.world.rng.random()
        if dice < 0.8:
            self.history.settle_tried.add(message_id)
            if self.mode == 1:
                self.confirming[delivery_id] = message_id
                self.session.outcome(delivery_id, delivery_id, Accepted())
            else:
                self.session.accept(delivery_id, 1)
        elif dice < 0.86:
            self.history.released.add(message_id)
            self.session.dispose(delivery_id, delivery_id, Released(), as_receiver=True)
        elif dice < 0.92:
            self.session.dispose(delivery_id, delivery_id, Modified(delivery_failed=True), as_receiver=True)
        else:
            # Neither: settled much later, or by the loss of this connection.
            incarnation, session = self.incarnation, self.session
            self.undecided.add(message_id)
            self.world.after(
                self.world.rng.random() * 500, lambda: self._late(incarnation, session, delivery_id, message_id)
            )

    def _late(self, incarnation: int, session: Session, delivery_id: int, message_id: str) -> None:
        if incarnation == self.incarnation and self.session is session and self.pipe is not None:
            self.history.settle_tried.add(message_id)
            self.undecided.discard(message_id)
            session.accept(delivery_id, 1)
            self.act()
