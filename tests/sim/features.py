"""Simulated clients that use what queues can do, and note what they learn in a `Model`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mqbroker.amqp import events as told
from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.amqp.session import Session
from mqbroker.core.queue.moved_message import ORIGIN_QUEUE
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import AdminReply, Send
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.frames import Frame, frame_at
from mqbroker.wire.parts import DELIVERY_DELAY, DUPLICATE_ID
from mqbroker.wire.performatives import Accepted, Attach, Modified, Rejected, Released, Source, Target
from mqbroker.wire.run import single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS
from mqbroker.wire.sections import (
    Header,
    Properties,
    body_values,
    build_message,
    decode_annotations,
    decode_header,
    encode_section,
    scan_sections,
)
from mqbroker.wire.values import Described, Long, Symbol

from tests.sim.clients import Client
from tests.sim.model import Copy, Letter, Model
from tests.sim.places import COLOURS, DEAD, GROUPS, HOME, Place
from tests.sim.world import MARKER, SimNode, World
from tests.support.checker import History, body_of

DETACH = b"\0\x53\x16"
SELECTOR = Symbol("apache.org:selector-filter:string")


class Publisher(Client):
    """Sends numbered messages to one address. What it has no answer for it sends again, if they have duplicate ids."""

    def __init__(self, world: World, node: SimNode, name: str, model: Model, place: Place, count: int) -> None:
        self.model = model
        self.place = place
        self.left = count
        self.number = 0
        self.link: SenderLink | None = None
        self.in_doubt: dict[str, bytes] = {}
        self.again: list[str] = []
        self.is_stubborn = world.rng.random() < 0.7
        self.durable_share = world.rng.choice((1.0, 1.0, 0.6))
        super().__init__(world, node, name, History())
        self._tick()

    def attach(self, session: Session) -> None:
        self.link = session.attach_sender(
            Attach(name=self.name, handle=0, role=False, snd_settle_mode=0, source=Source(),
                   target=Target(address=self.place.address), initial_delivery_count=0)
        )  # fmt: skip
        self.again = list(self.in_doubt)

    def on_lost(self) -> None:
        self.link = None
        if not self.is_stubborn:
            self.in_doubt.clear()

    def _tick(self) -> None:
        if not self.is_stopped:
            self._send()
            self.act()
            self.world.after(self.world.rng.random() * 20, self._tick)

    def _send(self) -> None:
        link = self.link
        if link is None or not link.is_attached or self.pipe is None:
            return
        for _ in range(min(link.credit, self.world.rng.choice((1, 1, 4, 15)))):
            if link.session.window == 0 or (not self.again and not self.left):
                return
            message_id = self.again.pop(0) if self.again else self._write()
            if message_id in self.in_doubt:
                self._post(link, message_id)

    def _post(self, link: SenderLink, message_id: str) -> None:
        letter = self.model.letters[message_id]
        assert self.pipe is not None
        if letter.is_durable and not self.place.drops and not self.place.is_topic:  # else it may be nowhere
            self.node.published[(self.pipe.conn, link.session.next_delivery_id)] = message_id
        letter.is_resent = letter.sent_ms > 0
        letter.sent_ms = letter.sent_ms or self.world.at.wall_ms
        link.session.send_run(link, single(self.in_doubt[message_id]), 0, 1, message_id)

    def _write(self) -> str:
        rng, place = self.world.rng, self.place
        self.left -= 1
        self.number += 1
        message_id = f"{self.name}-{self.number}"
        body = body_of(message_id, rng.randrange(20, 300))
        letter = Letter(self.name, self.number, place.address, rng.random() < self.durable_share, len(body))
        letter.name, letter.index = message_id, len(self.model.letters)
        letter.priority = rng.randrange(10) if place.has_priorities else 4
        letter.ttl_ms = rng.choice(place.ttls_ms) if place.ttls_ms and rng.random() < 0.5 else 0
        letter.delay_ms = rng.choice(place.delays_ms) if place.delays_ms and rng.random() < 0.3 else 0
        letter.colour = rng.choice(COLOURS) if place.has_colours else ""
        letter.group = rng.choice(GROUPS) if place.has_groups else ""
        self.model.letters[message_id] = letter
        self.in_doubt[message_id] = self._payload(message_id, letter, body)
        return message_id

    def _payload(self, message_id: str, letter: Letter, body: bytes) -> bytes:
        named = {"colour": letter.colour} if letter.colour else {}
        if self.is_stubborn:
            named[DUPLICATE_ID] = message_id
        header = Header(durable=letter.is_durable, priority=letter.priority, ttl=letter.ttl_ms or None)
        properties = Properties(group_id=letter.group) if letter.group else None
        whole = build_message(body, header=header, properties=properties, application_properties=named)
        if not letter.delay_ms:
            return whole
        head = encode_composite(header)
        return head + encode_section(MESSAGE_ANNOTATIONS, {DELIVERY_DELAY: Long(letter.delay_ms)}) + whole[len(head) :]

    def on_event(self, event: Any) -> None:
        if isinstance(event, told.Settled):
            outcome = {Accepted: "accepted", Rejected: "rejected"}[type(event.outcome)]
            for taken in event.taken:
                self.in_doubt.pop(taken.token, None)
                self.model.outcome(taken.token, outcome, self.world.at.wall_ms)
        elif isinstance(event, told.Detached):
            self.begin_anew()


class Taker(Client):
    """Takes messages of one queue and does with them what the dice say. A drain accepts all, a browser nothing."""

    takes = True
    is_drain = False

    def __init__(self, world: World, node: SimNode, name: str, model: Model, place: Place) -> None:
        self.model = model
        self.place = place
        self.where = HOME
        self.queue = place.address
        self.colour = ""
        self.tag = self.link_name = name
        self.window = world.rng.choice((1, 5, 30))
        self.mode = world.rng.choice((0, 1))  # rcv-settle-mode: first, second
        self.priority = world.rng.choice((0, 0, 5))
        self.held: dict[int, Copy] = {}
        self.confirming: dict[int, tuple[Copy, Any]] = {}
        self.conn = 0
        self.link: ReceiverLink | None = None
        if place.has_colours and world.rng.random() < 0.5:
            self.colour = world.rng.choice(COLOURS)
        super().__init__(world, node, name, History())

    def source(self) -> Source:
        """What it asks for."""
        filters = {SELECTOR: Described(SELECTOR, f"colour = '{self.colour}'")} if self.colour else None
        return Source(address=self.queue, filter=filters)

    def attach(self, session: Session) -> None:
        assert self.pipe is not None
        self.tag = f"{self.name}.{self.incarnation}"
        self.conn = self.pipe.conn
        self.node.readers[self.conn] = self
        session.attach_receiver(
            Attach(name=self.link_name, handle=0, role=True, rcv_settle_mode=self.mode, source=self.source(),
                   target=Target(), properties={Symbol("priority"): self.priority})
        )  # fmt: skip

    def on_lost(self) -> None:
        self.model.losses[self.place.address] += 1
        self.conn = 0
        self.link = None
        self.held.clear()
        self.confirming.clear()

    def stop(self) -> None:
        link = self.link
        if self.takes and link is not None and link.is_attached and link.credit and self.pipe and self.node.is_up:
            self.model.idle.setdefault(self.queue, set()).add(self.colour)
            self.model.stopped_ms = self.world.at.wall_ms
        # Who leaves in order and says nothing of what it holds has let go of it: no delivery counts.
        for copy in self.held.values():
            copy.is_returned = True
        self.conn = 0  # and of the groups that it has
        super().stop()

    def on_event(self, event: Any) -> None:
        if isinstance(event, told.Attached):
            assert isinstance(event.link, ReceiverLink)
            self.link = event.link
            event.link.grant(self.window)
        elif isinstance(event, told.Incoming) and self.conn:  # else it reads what is somebody else's by now
            for delivery_id, header, body, origin in parcels(event):
                copy = self.model.receive(self, body, header, origin)
                if copy is not None and self.takes:
                    self.held[delivery_id] = copy
                    self._decide(delivery_id)
            if event.link.is_attached:
                event.link.regrant()
        elif isinstance(event, told.SenderSettled):
            for delivery_id in range(event.first, event.last + 1):
                copy, outcome = self.confirming.pop(delivery_id, (None, None))
                if copy is not None and isinstance(outcome, Accepted | Rejected):
                    copy.is_settled = isinstance(outcome, Accepted)
        elif isinstance(event, told.Detached):
            self.begin_anew()

    def _decide(self, delivery_id: int) -> None:
        dice = 0.0 if self.is_drain or self.place.is_calm else self.world.rng.random()
        if dice < 0.7:
            self._tell(delivery_id, Accepted())
        elif dice < 0.76:
            self._tell(delivery_id, Released())
        elif dice < 0.86:
            self._tell(delivery_id, Modified(delivery_failed=True))
        elif dice < 0.9:
            self._tell(delivery_id, Rejected())
        else:
            # None of them: accepted much later, or given back by the loss of this connection.
            incarnation = self.incarnation
            self.world.after(self.world.rng.random() * 400, lambda: self._late(incarnation, delivery_id))

    def _late(self, incarnation: int, delivery_id: int) -> None:
        if incarnation == self.incarnation and delivery_id in self.held and not self.is_stopped:
            self._tell(delivery_id, Accepted())
            self.act()

    def _tell(self, delivery_id: int, outcome: Any) -> None:
        assert self.session is not None
        copy = self.held.pop(delivery_id)
        if isinstance(outcome, Accepted):
            copy.is_settling = True
        elif isinstance(outcome, Rejected):
            copy.is_rejected = True
        elif isinstance(outcome, Released):
            copy.is_returned = True
        else:
            copy.failed += 1
            copy.not_before_ms = self.world.at.wall_ms + int(self.place.settings["redelivery_delay"])
        if self.mode == 1:
            self.confirming[delivery_id] = (copy, outcome)
            self.session.outcome(delivery_id, delivery_id, outcome)
        else:
            self.session.dispose(delivery_id, delivery_id, outcome, as_receiver=True)


class Subscriber(Taker):
    """Takes copies of what is sent to a topic, alone or with others, and may come back for what it missed."""

    def source(self) -> Source:
        return self._source

    def __init__(self, world: World, node: SimNode, name: str, model: Model, place: Place) -> None:
        self.is_durable = world.rng.random() < 0.7
        self.is_shared = world.rng.random() < 0.4
        super().__init__(world, node, name, model, place)

    def attach(self, session: Session) -> None:
        """Names of subscriptions are those that `node.subscriptions` gives them."""
        capabilities = [Symbol("topic")]
        self.queue = f"{self.name}.{self.name}" if self.is_durable else f"{self.name}#{self.incarnation}"
        if self.is_shared:
            self.colour = ""
            self.link_name = f"{self.place.address}-{'durable' if self.is_durable else 'volatile'}|{self.name}"
            capabilities += [Symbol("shared"), Symbol("global")]
            kind = "" if self.is_durable else ":shared-volatile"
            self.queue = f"{self.link_name.partition('|')[0]}{kind}:global"
        filters = {SELECTOR: Described(SELECTOR, f"colour = '{self.colour}'")} if self.colour else None
        self._source = Source(
            address=self.place.address, durable=2 if self.is_durable else 0, filter=filters,
            expiry_policy=Symbol("never" if self.is_durable else "link-detach"), capabilities=tuple(capabilities),
        )  # fmt: skip
        super().attach(session)

    def on_event(self, event: Any) -> None:
        if isinstance(event, told.Attached) and event.attach.source is not None:  # else it was refused
            now_ms = self.world.at.wall_ms
            self.model.subscribed(self.queue, self.place, self.colour, now_ms, is_durable=self.is_durable)
        super().on_event(event)


class Browser(Taker):
    """Looks at messages; whatever it says of them, they stay."""

    takes = False

    def source(self) -> Source:
        self.colour = ""
        return Source(address=self.queue, distribution_mode=Symbol("copy"))

    def on_event(self, event: Any) -> None:
        super().on_event(event)
        if isinstance(event, told.Incoming) and not self.is_stopped:
            assert self.session is not None
            self.session.accept(event.delivery_id, event.run.count)


class Drain(Taker):
    """Takes all that is left in a queue, whatever it is there."""

    is_drain = True

    def __init__(self, world: World, node: SimNode, model: Model, place: Place, target: tuple[str, str]) -> None:
        self.target = target
        super().__init__(world, node, f"drain-{target[1]}", model, place)

    def source(self) -> Source:
        address, queue = self.target
        self.colour = ""
        self.where = self.place.extras.get(address, HOME)
        self.queue = queue
        return Source(address=f"{address}::{queue}")


class Person:
    """An administrator, who purges, moves and retries messages of some place now and then."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def purge(self, node: SimNode) -> None:
        """Drop what is in a queue."""
        place = self._any(node)
        if place is not None and not place.is_topic:
            taken = self._model.purges.setdefault(place.address, [])
            taken.append(math.inf)  # as long as it has no answer
            number = len(taken) - 1

            def answered(reply: AdminReply) -> None:
                taken[number] = 0 if reply.result is None else reply.result["purged"]

            node.ask("queue-purge", {"name": place.address}, answered)

    def move(self, node: SimNode) -> None:
        """Move what is in a queue to another address."""
        place = self._any(node)
        if place is not None and not place.is_topic:
            place.is_moved = True
            node.ask("messages-move", {"queue": place.address, "address": place.moved}, _no_matter)

    def retry(self, node: SimNode) -> None:
        """Send dead letters back."""
        place = self._any(node)
        if place is not None and place.leads_to(DEAD):
            place.is_retried = True
            node.ask("dead-letters-retry", {"queue": place.dead_letters}, _no_matter)

    def _any(self, node: SimNode) -> Place | None:
        places = [each for each in self._model.places.values() if each.address.startswith(node.name)]
        return node.world.rng.choice(places) if node.is_up else None


def _no_matter(reply: AdminReply) -> None:
    """The request was done or refused: the model knows that it was made."""


class Sight:
    """Sees what a node sends, and to whom."""

    def __init__(self, node: SimNode, model: Model) -> None:
        self._node = node
        self._model = model

    def sent(self, conn: int, data: bytes) -> None:
        """What a connection is about to get."""
        reader = self._node.readers.get(conn)
        if reader is not None:
            for marker in MARKER.findall(data):
                self._model.leaves(marker.decode(), reader, self._node.world.at.wall_ms)

    def decided(self, batch: Batch) -> None:
        """What a step ends it takes back, whether or not anybody has read that yet. In the same step somebody else may
        have got what became free, and of two connections either may be the first that is written to.
        """
        for effect in batch.effects:
            if isinstance(effect, Send):
                reader, data = self._node.readers.get(effect.conn), b"".join(map(bytes, effect.chunks))
                is_ended = any(data.startswith(DETACH, each.body_offset) for each in frames_in(data))
                if reader is not None and reader.conn == effect.conn and is_ended:
                    reader.conn = 0


def frames_in(data: bytes) -> Iterator[Frame]:
    """AMQP frames of what a node sends at once: whole ones, or a header."""
    offset = 0
    while offset + 8 <= len(data) and not data.startswith(b"AMQP", offset):
        frame = frame_at(data, offset, len(data), 1 << 31)
        if frame is None:
            break
        if frame.type == 0:
            yield frame
        offset = frame.end


def parcels(event: told.Incoming) -> Iterator[tuple[int, Header, bytes, str]]:
    """Of each message its delivery id, header, body, and the queue that it was moved from."""
    for index in range(event.run.count):
        payload = bytes(event.run.payload(index))
        sections = scan_sections(payload, 0, len(payload))
        header = decode_header(payload, 0, len(payload))[0] if sections.header >= 0 else Header()
        origin = ""
        if sections.message_annotations >= 0:
            notes = decode_annotations(payload, sections.message_annotations, len(payload))[0]
            origin = str(notes.get(ORIGIN_QUEUE, ""))
        yield event.delivery_id + index, header, b"".join(body_values(payload, sections)[1]), origin
