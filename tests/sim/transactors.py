"""Simulated clients that consume and produce in transactions, one after the other.

What a client has not asked to commit must be seen by nobody; what it has asked for is there wholly or not at all.
"""

from __future__ import annotations

from typing import Any

from mqbroker.amqp import events as told
from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.amqp.session import Session
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Declared,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from mqbroker.wire.sections import Header, body_values, build_message, decode_header, scan_sections

from tests.sim.clients import Client
from tests.sim.world import SimNode, World
from tests.support import transactions
from tests.support.checker import History, Sent, Transacted, body_of

TICK_MS = 12


class Transactor(Client):
    """Takes messages of its queue, sends others to it, and commits or rolls back both at once."""

    def __init__(self, world: World, node: SimNode, name: str, history: History, queue: str, count: int) -> None:
        self.queue = queue
        self.left = count  # transactions
        self.number = 0
        self.tx_number = 0
        self.is_settling = world.rng.random() < 0.5  # settles what it retires at once, as JMS clients do
        self.is_pre_settled = world.rng.random() < 0.2
        self.window = world.rng.choice((3, 20))
        self._forget()
        super().__init__(world, node, name, history)
        self._tick()

    def _forget(self) -> None:
        self.control: SenderLink | None = None
        self.sender: SenderLink | None = None
        self.txn_id: bytes | None = None
        self.open: Transacted | None = None
        self.is_asked = False  # a declare or a discharge has no answer yet
        self.retired: list[tuple[int, str]] = []  # unsettled ones, which are ours again after a rollback
        self.came: list[tuple[int, str]] = []

    def attach(self, session: Session) -> None:
        self.control = session.attach_sender(transactions.coordinator_attach())
        self.sender = session.attach_sender(
            Attach(name=f"{self.name}-to", handle=0, role=False, snd_settle_mode=2, source=Source(),
                   target=Target(address=self.queue), initial_delivery_count=0)
        )  # fmt: skip
        self.sender.send_settled = self.is_pre_settled
        receiver = session.attach_receiver(
            Attach(name=f"{self.name}-from", handle=0, role=True, source=Source(address=self.queue), target=Target())
        )
        receiver.window = self.window

    def on_lost(self) -> None:
        # Whatever was not asked to be committed must not happen; a commit without an answer stays unknown.
        self._forget()

    def stop(self) -> None:
        # Who leaves in order and says nothing of what it holds has let go of it: no delivery counts.
        self.history.released.update(message_id for _, message_id in [*self.came, *self.retired])
        super().stop()

    # -- what it does --------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self.is_stopped:
            return
        control = self.control
        if control is not None and control.is_attached and self.pipe is not None and not self.is_asked:
            self._act(control)
            self.act()
        self.world.after(self.world.rng.random() * TICK_MS, self._tick)

    def _act(self, control: SenderLink) -> None:
        rng = self.world.rng
        if self.open is None:
            if self.left > 0 and control.credit and control.session.window:
                self.left -= 1
                self.is_asked = True
                transactions.declare(control, "declare")
            return
        self._retire()
        self._post()
        if rng.random() < 0.4 and control.credit and control.session.window:
            self._discharge(control, is_commit=rng.random() < 0.75)

    def _retire(self) -> None:
        rng, transacted = self.world.rng, self.open
        assert transacted is not None
        assert self.session is not None
        assert self.txn_id is not None
        for _ in range(min(len(self.came), rng.choice((0, 1, 5)))):
            delivery_id, message_id = self.came.pop(0)
            outcome = rng.choice((Accepted(), Accepted(), Accepted(), Modified(delivery_failed=True)))
            state = TransactionalState(txn_id=self.txn_id, outcome=outcome)
            if isinstance(outcome, Accepted):
                transacted.acknowledged.append(message_id)
            if self.is_settling:
                self.session.dispose(delivery_id, delivery_id, state, as_receiver=True)
            else:
                self.retired.append((delivery_id, message_id))
                self.session.outcome(delivery_id, delivery_id, state)

    def _post(self) -> None:
        rng, sender, transacted = self.world.rng, self.sender, self.open
        assert transacted is not None
        assert self.txn_id is not None
        if sender is None or not sender.is_attached:
            return
        for _ in range(min(sender.credit, rng.choice((0, 1, 4)))):
            if sender.session.window == 0:
                return
            self.number += 1
            message_id = f"{self.name}-{self.number}"
            body, is_durable = body_of(message_id, rng.randrange(20, 600)), rng.random() < 0.7
            sent = Sent(self.name, self.number, self.queue, is_durable, len(body), outcome="uncommitted")
            self.history.send(message_id, sent)
            transacted.sent.append(message_id)
            transactions.post(sender, build_message(body, durable=is_durable), message_id, self.txn_id)

    def _discharge(self, control: SenderLink, *, is_commit: bool) -> None:
        transacted = self.open
        assert transacted is not None
        assert self.txn_id is not None
        assert self.pipe is not None
        self.is_asked = True
        if is_commit:
            transacted.outcome = "unknown"
            for message_id in transacted.sent:
                self.history.sent[message_id].outcome = "unknown"
            durable = [each for each in transacted.sent if self.history.sent[each].is_durable]
            self.node.together.update(dict.fromkeys(transacted.sent, durable))
            if durable:
                self.node.published[(self.pipe.conn, control.session.next_delivery_id)] = durable[-1]
        transactions.discharge(control, self.txn_id, "discharge", fail=not is_commit)

    # -- what it hears -------------------------------------------------------------------------------------------------

    def on_event(self, event: Any) -> None:
        if isinstance(event, told.Attached) and isinstance(event.link, ReceiverLink):
            event.link.grant(self.window)
        elif isinstance(event, told.Incoming):
            self._take(event)
        elif isinstance(event, told.Settled):
            for taken in event.taken:
                self._answered(taken.token, event.outcome)

    def _take(self, event: told.Incoming) -> None:
        if self.is_stopped:
            return  # it has closed its connection: what still comes returns to the queue as never delivered
        for index in range(event.run.count):
            payload = bytes(event.run.payload(index))
            sections = scan_sections(payload, 0, len(payload))
            header = decode_header(payload, 0, len(payload))[0] if sections.header >= 0 else Header()
            body = b"".join(body_values(payload, sections)[1])
            consumer = f"{self.name}.{self.incarnation}"
            message_id = self.history.receive(consumer, self.queue, body, header.delivery_count)
            if message_id is not None:
                self.came.append((event.delivery_id + index, message_id))
        if event.link.is_attached:
            event.link.regrant()

    def _answered(self, token: str, outcome: Any) -> None:
        if isinstance(outcome, Declared):
            self.is_asked = False
            self.txn_id = outcome.txn_id
            self.tx_number += 1
            self.open = self.history.transactions[f"{self.name}-tx{self.tx_number}"] = Transacted()
        elif token == "discharge":
            self._ended(is_accepted=isinstance(outcome, Accepted))
        elif token == "declare":
            self.is_asked = False
        elif isinstance(outcome, Rejected):
            self.history.outcome(token, "rejected", self.node.epoch)

    def _ended(self, *, is_accepted: bool) -> None:
        transacted, retired = self.open, self.retired
        assert transacted is not None
        assert self.session is not None
        self.is_asked, self.open, self.txn_id, self.retired = False, None, None, []
        if transacted.outcome == "unknown" and is_accepted:
            transacted.outcome = "committed"
            for message_id in transacted.sent:
                self.history.outcome(message_id, "accepted", self.node.epoch)
            self.history.settle_confirmed.update(transacted.acknowledged)
            return
        transacted.outcome = "rolled back"
        for message_id in transacted.sent:
            self.history.outcome(message_id, "rejected", self.node.epoch)
        for delivery_id, message_id in retired:
            # Still ours (§4.4.2).
            self.history.released.add(message_id)
            self.session.dispose(delivery_id, delivery_id, Released(), as_receiver=True)
