"""A queue: which messages it has, in order, and which consumers compete for them.

Messages are segments (run, start, n, delivery count), never single objects. Three places, served in this order:
`returned` (came back, sorted by id: their old place), `ready`, and `waiting` (durable and not synced yet, or behind
such: not deliverable). Round robin over consumers with capacity: each gets a fair share of what is there, in one piece.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mqbroker.wire.run import Run


class Segment(NamedTuple):
    """`n` messages of a run from `start` on, which were delivered in vain `deliveries` times."""

    run: Run
    start: int
    n: int
    deliveries: int

    @property
    def first_id(self) -> int:
        """Id of the first message."""
        return self.run.first_id + self.start


class Consumer(Protocol):
    """Whoever takes messages: a link, or an admin session."""

    def capacity(self) -> int:
        """How many messages it would take now."""

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Take them, or the first so many; says how many."""


@dataclass(frozen=True, slots=True)
class QueueKind:
    """What a queue is. `routing` is anycast or multicast."""

    name: str
    address: str
    routing: str = "anycast"
    is_durable: bool = True


class Queue:
    """See the module's docstring. `journal_id` is 0 for a queue that is not durable."""

    __slots__ = (
        "_cursor", "acknowledged_total", "added_total", "arriving_count", "consumers", "delivering_count",
        "is_consumed", "journal_id", "kind", "ready", "ready_count", "returned", "waiting", "waiting_count",
    )  # fmt: skip

    def __init__(self, kind: QueueKind, journal_id: int) -> None:
        self.kind = kind
        self.journal_id = journal_id
        self.ready: deque[Segment] = deque()
        self.returned: list[Segment] = []
        self.waiting: deque[Segment] = deque()
        self.ready_count = 0
        self.waiting_count = 0
        self.delivering_count = 0
        self.added_total = 0
        self.acknowledged_total = 0
        self.consumers: list[Consumer] = []
        self.arriving_count = 0  # consumers that are let in and wait for the disk
        self.is_consumed = False  # the journal knows that it had a consumer in this run of the process
        self._cursor = 0

    @property
    def message_count(self) -> int:
        """Messages in the queue: deliverable, not yet synced, and in delivery."""
        return self.ready_count + self.waiting_count + self.delivering_count

    def add(self, segment: Segment) -> None:
        """At the end, deliverable at once."""
        self.ready.append(segment)
        self.ready_count += segment.n
        self.added_total += segment.n

    def add_waiting(self, segment: Segment) -> None:
        """At the end, deliverable when `release` is called for it."""
        self.waiting.append(segment)
        self.waiting_count += segment.n
        self.added_total += segment.n

    def release(self) -> None:
        """The oldest waiting segment is deliverable now."""
        segment = self.waiting.popleft()
        self.waiting_count -= segment.n
        self.ready.append(segment)
        self.ready_count += segment.n

    def take(self, count: int) -> Segment:
        """The next messages in order, at most `count`, as one segment. There must be one."""
        source = self.returned or self.ready
        head = source[0]
        if head.n <= count:
            if self.returned:
                del self.returned[0]
            else:
                self.ready.popleft()
            taken = head
        else:
            taken = Segment(head.run, head.start, count, head.deliveries)
            source[0] = Segment(head.run, head.start + count, head.n - count, head.deliveries)
        self.ready_count -= taken.n
        self.delivering_count += taken.n
        return taken

    def put_back(self, segment: Segment) -> None:
        """Messages that were in delivery return to their place, which is before everything newer."""
        self.delivering_count -= segment.n
        self.ready_count += segment.n
        at = bisect_left(self.returned, segment.first_id, key=_first_id)
        if at < len(self.returned) and _joins(segment, self.returned[at]):
            segment = Segment(*segment[:2], segment.n + self.returned[at].n, segment.deliveries)
            del self.returned[at]
        if at and _joins(self.returned[at - 1], segment):
            before = self.returned[at - 1]
            self.returned[at - 1] = Segment(*before[:2], before.n + segment.n, before.deliveries)
        else:
            self.returned.insert(at, segment)

    def settled(self, count: int) -> None:
        """So many of the messages in delivery are gone for good."""
        self.delivering_count -= count
        self.acknowledged_total += count

    def dispatch(self, count_max: int) -> int:
        """Hand out messages to consumers, about `count_max` at most; says how many went."""
        went = 0
        while self.ready_count and self.consumers and went < count_max:
            able = [(each, capacity) for each in self._in_turn() if (capacity := each.capacity()) > 0]
            if not able:
                break
            share = min(max(1, self.ready_count // len(able)), count_max - went)
            before = went
            for consumer, capacity in able:
                went += self._serve(consumer, min(share, capacity))
                if not self.ready_count:
                    break
            if went == before:
                break
        return went

    def _in_turn(self) -> list[Consumer]:
        cursor = self._cursor % len(self.consumers)
        return self.consumers[cursor:] + self.consumers[:cursor]

    def _serve(self, consumer: Consumer, count: int) -> int:
        went = 0
        while went < count and self.ready_count:
            segment = self.take(count - went)
            done = consumer.deliver(self, segment)
            went += done
            if done < segment.n:
                rest = Segment(segment.run, segment.start + done, segment.n - done, segment.deliveries)
                self.put_back(rest)
                break
        if went and consumer in self.consumers:
            self._cursor = self.consumers.index(consumer) + 1
        return went

    def segments(self) -> Iterator[Segment]:
        """All that is not in delivery, oldest first within each place."""
        yield from self.returned
        yield from self.ready
        yield from self.waiting


def _first_id(segment: Segment) -> int:
    return segment.first_id


def _joins(before: Segment, after: Segment) -> bool:
    return before.run is after.run and before.start + before.n == after.start and before.deliveries == after.deliveries
