"""Messages that a consumer does not want to see again: `undeliverable-here` (AMQP 1.0 §3.4.5).

Kept by place (see backlog.py) for as long as the consumer is there and the message too. Bounded: the oldest message is
forgotten first, and may then come again to whoever did not want it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK

if TYPE_CHECKING:
    from mqbroker.core.queue.backlog import Segment
    from mqbroker.core.queue.queue import Consumer

PAIRS_MAX: Final = 10_000  # pairs of a message and a consumer, in one queue


class UndeliverableHere:
    """Which messages of one queue are not for which consumers. False while there is no such pair."""

    __slots__ = ("_by_rank", "count")

    def __init__(self) -> None:
        self._by_rank: dict[int, list[Consumer]] = {}
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def has(self, rank: int, consumer: Consumer) -> bool:
        """Whether the message at this place is not for this consumer."""
        return consumer in self._by_rank.get(rank, ())

    def add(self, segment: Segment, consumer: Consumer) -> list[int]:
        """These messages are not for this consumer any more; the places of messages that were forgotten for them."""
        forgotten = []
        LOOK.has_touched = True
        for rank in range(segment.rank, segment.rank + segment.n):
            consumers = self._by_rank.setdefault(rank, [])
            if consumer not in consumers:
                consumers.append(consumer)
                self.count += 1
            if self.count > PAIRS_MAX:
                forgotten.append(next(iter(self._by_rank)))
                self._drop(forgotten[-1])
        return forgotten

    def forget(self, segment: Segment) -> None:
        """The messages of the segment are gone from the queue."""
        first, last = segment.rank, segment.rank + segment.n - 1
        if segment.n <= len(self._by_rank):
            ranks = [rank for rank in range(first, last + 1) if rank in self._by_rank]
        else:
            ranks = [rank for rank in self._by_rank if first <= rank <= last]
        for rank in ranks:
            self._drop(rank)

    def left(self, consumer: Consumer) -> None:
        """The consumer is gone, and what it could not use is forgotten."""
        LOOK.has_touched = True
        for rank, consumers in list(self._by_rank.items()):
            if consumer in consumers:
                consumers.remove(consumer)
                self.count -= 1
                if not consumers:
                    del self._by_rank[rank]

    def _drop(self, rank: int) -> None:
        LOOK.has_touched = True
        self.count -= len(self._by_rank.pop(rank))
