"""The checker: what must hold of every history of clients, faults and restarts.

A history is a list of facts that clients noted themselves; the checker knows nothing of the broker. For durable
messages that were accepted: none lost, none unexpected, no second delivery without a flag, none back after its
settlement was confirmed, order kept for each producer and consumer, bodies whole, nothing left after the drain. For
those that are not durable the same, as long as no node of theirs crashed. What was sent in a transaction is seen by
nobody before its commit was asked for, and of a commit everything has happened or nothing.

One implementation for the simulation, the crash tests and the tests on hosts.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field


def body_of(message_id: str, size: int) -> bytes:
    """A body that can be checked from its own first bytes: id, then bytes derived from it."""
    head = message_id.encode() + b"|"
    filler = hashlib.sha256(head).digest()
    return (head + filler * (max(size - len(head), 0) // len(filler) + 1))[: max(size, len(head))]


def id_in(body: bytes) -> str | None:
    """The message's id, None where the body is not one of ours or not whole."""
    head, bar, _ = body.partition(b"|")
    if not bar:
        return None
    try:
        message_id = head.decode()
    except UnicodeDecodeError:
        return None
    return message_id if body_of(message_id, len(body)) == body else None


@dataclass(slots=True)
class Sent:
    """One message of a producer. `number` ascends for each producer and queue."""

    producer: str
    number: int
    queue: str
    is_durable: bool
    size: int
    outcome: str = "unknown"
    epoch: int = 0  # of the node when the outcome came: a crash later makes it older
    is_exempt: bool = False  # not durable, and its node crashed afterwards


@dataclass(slots=True)
class Transacted:
    """One transaction of a client: what it sent, what it acknowledged, and how it ended as far as the client knows."""

    outcome: str = "uncommitted"  # unknown: its commit was asked for; then committed or rolled back
    sent: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """Facts in the order in which clients learned them."""

    sent: dict[str, Sent] = field(default_factory=dict)
    settle_tried: set[str] = field(default_factory=set)
    settle_confirmed: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)  # since it came last
    moved: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    transactions: dict[str, Transacted] = field(default_factory=dict)
    # Several nodes share messages out: order is not promised, and one that is not durable may come again after a
    # restart, because a node forgets then which of these another one has sent it.
    is_several_nodes: bool = False
    forgiven: set[str] = field(default_factory=set)  # what was sent before a disk lost some of it, nobody knows what
    # What had no answer from a node that ended without a word, and was sent again to another, which does not know the
    # ids that the first one has seen: it may come twice, and must not be lost.
    sent_elsewhere: set[str] = field(default_factory=set)
    _last: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def send(self, message_id: str, sent: Sent) -> None:
        """A producer is about to send."""
        assert message_id not in self.sent
        self.sent[message_id] = sent

    def outcome(self, message_id: str, outcome: str, epoch: int = 0) -> None:
        """The broker answered a message."""
        self.sent[message_id].outcome = outcome
        self.sent[message_id].epoch = epoch

    def forgive(self) -> None:
        """A disk has lost some of what it had confirmed, so all that was sent until now may be gone, or come again."""
        self.forgiven.update(self.sent)
        self.transactions.clear()

    def receive(self, consumer: str, queue: str, body: bytes, delivery_count: int) -> str | None:
        """A consumer got a message. Its id, None where it is not one of ours."""
        message_id = self._known(consumer, queue, body)
        if message_id is None:
            return None
        sent = self.sent[message_id]
        if self._may_come_twice(message_id, sent):
            self.received[message_id] += 1
            return message_id
        is_second = self.received[message_id] > 0
        if is_second and delivery_count == 0 and message_id not in self.released:
            self.violations.append(f"unflagged duplicate: {message_id} came to {consumer} again")
        if is_second:
            self.released.discard(message_id)  # that is the one copy more that letting go of it explains
        if delivery_count == 0 and not is_second:
            key = (consumer, queue, sent.producer)
            if not self.is_several_nodes and self._last.get(key, -1) >= sent.number:
                self.violations.append(f"order: {message_id} came to {consumer} after {self._last[key]}")
            self._last[key] = sent.number
        self.received[message_id] += 1
        return message_id

    def receive_moved(self, consumer: str, queue: str, body: bytes) -> str | None:
        """The same of a message that a person moved away from `queue`; it counts as new where it came to."""
        message_id = self._known(consumer, queue, body)
        if message_id is None:
            return None
        is_open = self._may_come_twice(message_id, self.sent[message_id])
        if message_id in self.moved and not is_open:
            self.violations.append(f"doubled: {message_id} was moved, and came to {consumer} twice")
        self.moved.add(message_id)
        self.received[message_id] += 1
        return message_id

    def _known(self, consumer: str, queue: str, body: bytes) -> str | None:
        message_id = id_in(body)
        sent = self.sent.get(message_id or "")
        if message_id is None or sent is None:
            self.violations.append(f"unexpected: {consumer} got {body[:40]!r}, which nobody sent or which is damaged")
            return None
        if len(body) != sent.size:
            self.violations.append(f"damaged: {message_id} has {len(body)} bytes instead of {sent.size}")
        if sent.queue != queue:
            self.violations.append(f"misrouted: {message_id} was sent to {sent.queue} and came from {queue}")
        if message_id in self.settle_confirmed and not self._may_come_twice(message_id, sent):
            self.violations.append(f"settled-then-redelivered: {message_id} came to {consumer}")
        if sent.outcome in ("rejected", "uncommitted"):
            self.violations.append(f"unexpected: {message_id} was {sent.outcome} and came to {consumer}")
        return message_id

    def _may_come_twice(self, message_id: str, sent: Sent) -> bool:
        is_exempt = self.is_several_nodes and sent.is_exempt
        return is_exempt or message_id in self.forgiven or message_id in self.sent_elsewhere

    def unanswered(self, producer: str) -> set[str]:
        """What a producer has sent and knows no outcome of."""
        return {
            message_id
            for message_id, sent in self.sent.items()
            if sent.producer == producer and sent.outcome == "unknown"
        }

    def check_drained(self, left: int) -> list[str]:
        """After everything was consumed, with `left` messages still in queues: all violations."""
        found = list(self.violations) + self._torn()
        if left:
            found.append(f"depth: {left} messages are left after the drain")
        lost = self.lost()
        if lost:
            found.append(f"lost: {len(lost)} accepted messages, {_place_of(lost, self.sent)}: {lost[:5]}")
        return found

    def lost(self) -> list[str]:
        """What was accepted and has come to nobody, and nothing explains it."""
        explained = self.settle_tried | self.forgiven
        return [
            message_id
            for message_id, sent in self.sent.items()
            if sent.outcome == "accepted" and not sent.is_exempt and message_id not in explained
        ]

    def _torn(self) -> list[str]:
        """Transactions of which a part has happened. Notes what those that are known by now have acknowledged."""
        found = []
        for name, transacted in self.transactions.items():
            seen = [message_id for message_id in transacted.sent if self.received[message_id]]
            durable = [message_id for message_id in transacted.sent if self.sent[message_id].is_durable]
            is_sure = transacted.outcome == "committed"
            missing = [message_id for message_id in durable if not self.received[message_id]]
            if (seen or is_sure) and missing:
                found.append(f"torn: of {name}, {transacted.outcome}, {seen[:3]} came and {missing[:3]} did not")
            if is_sure or (transacted.outcome == "unknown" and (seen or not durable)):
                self.settle_tried.update(transacted.acknowledged)
        return found


def _place_of(lost: list[str], sent: dict[str, Sent]) -> str:
    """Where in the history the losses lie: that is what finds the cause."""
    ids = list(sent)
    places = sorted(ids.index(message_id) for message_id in lost)
    where = (
        "prefix" if places[-1] < len(ids) // 3 else "tail" if places[0] > 2 * len(ids) // 3 else "middle or all over"
    )
    return f"{where} of the history"
