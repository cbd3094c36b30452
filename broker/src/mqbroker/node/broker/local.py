"""Producers and consumers that are no connections: admin sessions that send and receive.

A receive takes messages from a queue like any consumer; they stay in delivery until the session settles their tag, or
closes, which returns them to their place. Bounded: one answer holds at most `ANSWER_BYTES_MAX` of messages. All that a
session has in delivery may become dead letters in one step, and all that a request sends is taken in in one: so both
are bounded, with copies for diverts, wildcards and subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from mqbroker.base.errors import Refused
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.address import Address
from mqbroker.core.address.fully_qualified import queue_here
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.queue import Client, Filter, Queue, Segment
from mqbroker.node.amqp.links.message_admission import is_dropped
from mqbroker.node.values.message_json import shown
from mqbroker.wire.run import Run, single

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.amqp_broker import AmqpBroker

ANSWER_BYTES_MAX: Final = 4 << 20
COUNT_MAX: Final = 10_000  # messages in delivery with a session
DEAR_COPIES: Final = 3  # of a dead letter (`Diverts.width_of`) cost what it does itself
SENT_COPIES_MAX: Final = 20_000  # of what is sent in one request, some 25 µs each
TAGS_MAX: Final = 64


class Receive:
    """One waiting receive request; a consumer of its queue while it waits."""

    priority: int = 0
    is_browser: bool = False
    client: Client | None = None

    def __init__(self, sessions: LocalSessions, request: tuple[int, int], queue: Queue, count_max: int) -> None:
        self.sessions = sessions
        self.request_id, self.session = request
        self.queue = queue
        self.filter: Filter | None = None
        self.count_max = count_max
        self.segments: list[Segment] = []
        self.count = 0
        self.size_bytes = 0
        self.in_the_way = 0  # id of a large message that would be next
        self.due_ns = 0
        self.scheduled_ns = 0

    def capacity(self) -> int:
        """Messages that still fit the answer."""
        return 0 if self.size_bytes >= ANSWER_BYTES_MAX else self.count_max - self.count

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Take messages until the answer is full, or one comes that no answer holds."""
        if segment.run.large is not None:
            self.in_the_way = self.in_the_way or segment.first_id
            return 0
        count = 0
        while count < segment.n and (not self.count or self.size_bytes < ANSWER_BYTES_MAX):
            self.size_bytes += segment.run.size_bytes(segment.start + count, 1)
            self.count += 1
            count += 1
        if count:
            taken = segment.part(segment.start, count)
            self.segments.append(taken)
            self.sessions.handed_out(queue, taken)
        return count

    def on_time(self, now_ns: int) -> None:
        """The waiting time is over: answer with what there is."""
        self.due_ns = 0
        self.sessions.answer(self)


class LocalSessions:
    """All admin sessions that have something in delivery or wait for it."""

    def __init__(self, broker: AmqpBroker) -> None:
        self._broker = broker
        self._waiting: list[Receive] = []
        self._tags: dict[int, dict[int, tuple[Queue, list[Segment]]]] = {}
        self._tag = 0

    def handed_out(self, queue: Queue, segment: Segment) -> None:
        """What goes out again counts, should the process die before there is an outcome."""
        if segment.deliveries:
            self._broker.store.count(queue, segment, segment.deliveries + 1)

    def send(self, request_id: int, address: str, payloads: list[bytes]) -> None:
        """Publish messages; the answer comes when all of them are safe. Raises Refused."""
        broker = self._broker
        store = broker.store
        if not broker.is_running:
            raise Refused("amqp:connection:forced", "the broker stops")
        largest = max(map(len, payloads), default=0)
        if largest > store.limits.max_message_size_bytes:
            raise Refused("amqp:link:message-size-exceeded", f"a message of {largest} bytes exceeds max-message-size")
        target = store.target_for(address, BROKER)
        width = store.diverts.width_of(target.target)
        most = max(SENT_COPIES_MAX // max(width, 1), 1)
        if len(payloads) > most:
            dear = f"diverts, wildcards and subscriptions make each message cost {width} copies: send {most} at once"
            raise Refused("amqp:resource-limit-exceeded", dear)
        if store.memory.is_shut:
            raise Refused("amqp:resource-limit-exceeded", store.memory.why_full)
        is_over = sum(map(len, payloads)) + store.memory.held_bytes > store.memory.max_bytes
        if is_over and not store.takes_when_full(target):
            raise Refused("amqp:resource-limit-exceeded", "the messages do not fit under global-max-size")
        runs = [single(payload) for payload in payloads]
        why: str | None = ""
        if broker.gate is not None:
            why = broker.gate.refusal(target, runs, lambda said: self._decided(request_id, address, runs, said))
        if why is not None:
            self._decided(request_id, address, runs, why)

    def _decided(self, request_id: int, address: str, runs: list[Run], why: str) -> None:
        """It is known where groups go. `why`: it is not, and nothing is taken. Queues may have been deleted since it
        was asked for."""
        if why:
            self._broker.reply_error(request_id, "amqp:resource-limit-exceeded", why)
            return
        try:
            self._publish(request_id, self._broker.store.target_for(address, BROKER), runs)
        except Refused as refused:
            self._broker.reply_error(request_id, refused.condition, refused.description)

    def _publish(self, request_id: int, target: Address, runs: list[Run]) -> None:
        broker, store = self._broker, self._broker.store
        # All or none, but where more than fits is dropped.
        is_all_taken = target.meter is None or (not target.meter.drops and not is_dropped(store, target, runs))
        waits = False
        for run in runs:
            if is_all_taken or not is_dropped(store, target, [run]):
                waits = store.publish(target, run) or waits
        result = {"accepted": len(runs)}
        if waits:
            store.decisions.wait(broker.reply, request_id, result)
        else:
            broker.reply(request_id, result)

    def receive(
        self, request: tuple[int, int], queue_name: str, count_max: int, wait_ms: int, wanted: Filter | None = None
    ) -> None:
        """Take up to `count_max` messages, waiting for the first at most `wait_ms`. Raises Refused.

        No queue is made for it: a person who mistypes a name gets an error, and leaves no queue that messages go to.
        """
        request_id, session = request
        if len(self._tags.get(session, {})) >= TAGS_MAX:
            raise Refused("amqp:resource-limit-exceeded", f"settle first: {TAGS_MAX} tags are open in this session")
        store = self._broker.store
        self._broker.turns.part_consumers(queue_here(store, queue_name))
        queue = queue_here(store, queue_name)  # another one, if that was to go with them
        store.check_consumers(queue)
        room = self._room(session, queue)
        if room <= 0:
            raise Refused("amqp:resource-limit-exceeded", "settle first: so much is in delivery with this session")
        receive = Receive(self, (request_id, session), queue, min(count_max, room))
        receive.filter = wanted
        self._waiting.append(receive)
        store.consume(queue, lambda: self._start(receive, wait_ms))

    def _room(self, session: int, queue: Queue) -> int:
        """How many more messages of a queue the session may have in delivery: if all of them become dead letters in one
        step, that is as much work as for COUNT_MAX without diverts. One at least where it has none."""
        held = [each for each in self._tags.get(session, {}).values() if not each[0].kind.non_destructive]
        left = COUNT_MAX - sum(self._weight(each) * sum(part.n for part in parts) for each, parts in held)
        return left // self._weight(queue) if held else max(left // self._weight(queue), 1)

    def _weight(self, queue: Queue) -> int:
        return 1 + self._broker.store.dead_letters.width_of(queue) // DEAR_COPIES

    def _start(self, receive: Receive, wait_ms: int) -> None:
        """The time to wait counts from here: the journal had to learn of the consumer first.

        At least a moment: what is there is handed out at the end of this step, behind the timers.
        """
        if receive in self._waiting:
            self._broker.store.join(receive.queue, receive)
            receive.due_ns = self._broker.at.monotonic_ns + max(wait_ms, 1) * NS_PER_MS
            self._broker.timers.add(receive)

    def finish(self) -> None:
        """After deliveries: answer everyone who got something."""
        for receive in [each for each in self._waiting if each.count or each.in_the_way]:
            self.answer(receive)

    def answer(self, receive: Receive) -> None:
        """Answer a receive and keep what it got under a tag."""
        self._leave(receive)
        if receive.in_the_way and not receive.count:
            why = f"message {receive.in_the_way} is large and fits no answer: consume it over AMQP or move it"
            self._broker.reply_error(receive.request_id, "amqp:not-implemented", why)
            return
        self._tag += 1
        messages: list[dict[str, Any]] = []
        for segment in receive.segments:
            messages += [shown(segment, index) for index in range(segment.start, segment.start + segment.n)]
        if messages:
            self._tags.setdefault(receive.session, {})[self._tag] = (receive.queue, receive.segments)
        receive.segments = []  # its timer keeps the request until it is due, and must not keep messages
        self._broker.reply(receive.request_id, {"messages": messages, "tag": self._tag if messages else None})

    def _leave(self, receive: Receive) -> None:
        receive.due_ns = 0
        self._waiting.remove(receive)
        if receive in receive.queue.consumers:
            self._broker.store.leave(receive.queue, receive)

    def settle(self, request: tuple[int, int], tag: int, outcome: str) -> None:
        """Settle what a tag stands for; what leaves its queue is answered when that is on disk. Raises Refused.

        `modified` is a delivery in vain, `released` none at all, and `rejected` makes dead letters.
        """
        request_id, session = request
        held = self._tags.get(session, {}).pop(tag, None)
        if held is None:
            raise Refused("amqp:not-found", f"no open tag {tag} in this session")
        queue, segments = held
        store = self._broker.store
        for segment in segments:
            if queue.kind.non_destructive:
                continue  # these were copies
            if outcome == "accepted":
                store.settle(queue, segment)
            elif outcome == "rejected":
                store.dead_letters.reject(queue, segment, "rejected")
            else:
                store.give_back(queue, segment, was_delivered=outcome == "modified")
        is_durable = queue.journal_id and any(segment.run.section.is_durable for segment in segments)
        if outcome in ("accepted", "rejected") and is_durable and not queue.kind.non_destructive:
            store.decisions.wait(self._broker.reply, request_id, {})
        else:
            self._broker.reply(request_id, {})

    def withdraw(self, queue: Queue, why: str) -> None:
        """The queue goes away: whoever waits for it is told, what is in delivery returns to it."""
        for receive in [each for each in self._waiting if each.queue is queue]:
            self._leave(receive)
            self._return(queue, receive.segments, was_delivered=False)
            self._broker.reply_error(receive.request_id, "amqp:resource-deleted", why)
        for tags in self._tags.values():
            for tag in [tag for tag, (held_of, _) in tags.items() if held_of is queue]:
                self._return(queue, tags.pop(tag)[1], was_delivered=False)

    @property
    def waiting(self) -> list[Receive]:
        """Receives that wait, each a consumer of its queue."""
        return list(self._waiting)

    def closed(self, session: int) -> None:
        """An admin session is gone."""
        for receive in [each for each in self._waiting if each.session == session]:
            self._leave(receive)
            self._return(receive.queue, receive.segments)
        for queue, segments in self._tags.pop(session, {}).values():
            self._return(queue, segments)

    def _return(self, queue: Queue, segments: list[Segment], *, was_delivered: bool = True) -> None:
        if not queue.kind.non_destructive:
            for segment in segments:
                self._broker.store.give_back(queue, segment, was_delivered=was_delivered)

    def close_all(self) -> None:
        """The node stops: all sessions of administrators end."""
        for session in dict.fromkeys([*(each.session for each in self._waiting), *self._tags]):
            self.closed(session)

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        """What is with admin sessions."""
        held = [(receive.queue, receive.segments) for receive in self._waiting]
        held += [pair for tags in self._tags.values() for pair in tags.values()]
        for queue, segments in held:
            if not queue.kind.non_destructive:
                for segment in segments:
                    yield queue, segment
