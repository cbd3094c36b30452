"""The deliverable messages of a queue in their order: higher priority first, then by id.

Segments lie in blocks of bounded size, so that the usual ways (append at the end, take from the head) cost the same
however many there are, and any place can be found by bisection and cut open. A place is a `rank`: one integer that
orders messages of a queue. Invariant: segments do not overlap, ranks ascend, no block is empty.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.base.value import Value
from mqbroker.wire.run import Run

BLOCK_SEGMENTS_MAX: Final = 256
PRIORITY_MAX: Final = 9
ID_BITS: Final = 56
# By priority, which is a ubyte on the wire.
_FIRST_RANKS: Final = tuple(PRIORITY_MAX - min(priority, PRIORITY_MAX) << ID_BITS for priority in range(256))
# Why messages left a queue by themselves.
EXPIRED, REPLACED, OVERFLOWED = "expired", "replaced", "overflowed"


class Segment(Value):
    """`n` messages of a run from `start` on, which were delivered in vain `deliveries` times."""

    __match_args__ = ("run", "start", "n", "deliveries")
    __slots__ = __match_args__

    def __init__(self, run: Run, start: int, n: int, deliveries: int) -> None:
        self.run: Final = run
        self.start: Final = start
        self.n: Final = n
        self.deliveries: Final = deliveries

    def part(self, start: int, n: int) -> Segment:
        """`n` messages of the same run, `start` its first, delivered as often."""
        return Segment(self.run, start, n, self.deliveries)

    @property
    def first_id(self) -> int:
        """The id of the first message of the segment."""
        return self.run.first_id + self.start

    @property
    def rank(self) -> int:
        """Place of the first message; the next ones follow one by one."""
        run = self.run
        return _FIRST_RANKS[run.section.priority] + run.first_id + self.start


def rank_of(priority: int, message_id: int) -> int:
    """The place of a message. Priorities above 9 count as 9 (AMQP 1.0 §3.2.1 allows brokers fewer levels)."""
    return _FIRST_RANKS[priority] + message_id


def _rank(segment: Segment) -> int:
    return segment.rank


def first_id_of(segment: Segment) -> int:
    return segment.first_id


def _block_rank(block: list[Segment]) -> int:
    return block[0].rank


class Backlog:
    """See the module's docstring."""

    __slots__ = ("_blocks", "count")

    def __init__(self) -> None:
        self._blocks: list[list[Segment]] = []
        self.count = 0

    def __iter__(self) -> Iterator[Segment]:
        for block in self._blocks:
            yield from block

    @property
    def head(self) -> Segment:
        """The first segment. There must be one."""
        return self._blocks[0][0]

    @property
    def last_rank(self) -> int:
        """The place of the last message, -1 where there is none."""
        if not self._blocks:
            return -1
        last = self._blocks[-1][-1]
        return last.rank + last.n - 1

    def add(self, segment: Segment) -> None:
        """Put a segment at its place, which usually is the end."""
        blocks = self._blocks
        LOOK.has_touched = True
        if blocks and segment.rank < blocks[-1][-1].rank:
            self._insert(segment)
        elif blocks and len(blocks[-1]) < BLOCK_SEGMENTS_MAX:
            blocks[-1].append(segment)
        else:
            blocks.append([segment])
        self.count += segment.n

    def _insert(self, segment: Segment) -> None:
        """Before something else, joined with its neighbours where they are of one piece."""
        blocks, rank = self._blocks, segment.rank
        at = max(bisect_right(blocks, rank, key=_block_rank) - 1, 0)
        block = blocks[at]
        place = bisect_left(block, rank, key=_rank)
        if place < len(block) and _joins(segment, block[place]):
            segment = segment.part(segment.start, segment.n + block[place].n)
            del block[place]
        if place and _joins(block[place - 1], segment):
            before = block[place - 1]
            block[place - 1] = before.part(before.start, before.n + segment.n)
        else:
            block.insert(place, segment)
        if len(block) > BLOCK_SEGMENTS_MAX:
            half = len(block) // 2
            blocks[at : at + 1] = [block[:half], block[half:]]

    def take(self, count: int) -> Segment:
        """The first messages, at most `count`, as one segment. There must be one."""
        block = self._blocks[0]
        head = block[0]
        LOOK.has_touched = True
        if head.n <= count:
            del block[0]
            if not block:
                del self._blocks[0]
            taken = head
        else:
            run, start, n, deliveries = head.run, head.start, head.n, head.deliveries
            taken = Segment(run, start, count, deliveries)
            block[0] = Segment(run, start + count, n - count, deliveries)
        self.count -= taken.n
        return taken

    def take_oldest(self, count: int) -> Segment:
        """At most `count` messages of the lowest ids, as one segment. There must be one."""
        if self.head.run.section.priority == self._blocks[-1][-1].run.section.priority:
            return self.take(count)
        heads = [next(self.from_rank(rank_of(priority, 0)), self.head) for priority in range(PRIORITY_MAX + 1)]
        oldest = min(heads, key=first_id_of)
        return self.take_at(oldest.rank, min(oldest.n, count))

    def take_at(self, rank: int, count: int) -> Segment:
        """`count` messages from the place `rank` on, all of one segment. They must be there."""
        at = bisect_right(self._blocks, rank, key=_block_rank) - 1
        block = self._blocks[at]
        place = bisect_right(block, rank, key=_rank) - 1
        whole = block[place]
        before = rank - whole.rank
        behind = whole.n - before - count
        run, start, deliveries = whole.run, whole.start, whole.deliveries
        pieces = []
        if before:
            pieces.append(Segment(run, start, before, deliveries))
        if behind:
            pieces.append(Segment(run, start + before + count, behind, deliveries))
        LOOK.has_touched = True
        block[place : place + 1] = pieces
        if not block:
            del self._blocks[at]
        self.count -= count
        return Segment(run, start + before, count, deliveries)

    def has(self, rank: int) -> bool:
        """Whether the message at this place is here."""
        at = bisect_right(self._blocks, rank, key=_block_rank) - 1
        if at < 0:
            return False
        block = self._blocks[at]
        segment = block[bisect_right(block, rank, key=_rank) - 1]
        return rank < segment.rank + segment.n

    def from_rank(self, rank: int) -> Iterator[Segment]:
        """Segments from the place `rank` on; the first may begin before it. What is taken on the way may be taken."""
        while True:
            at = max(bisect_right(self._blocks, rank, key=_block_rank) - 1, 0)
            if at >= len(self._blocks):
                return
            block = tuple(self._blocks[at])
            after = block[-1].rank + block[-1].n
            if after <= rank:
                if at + 1 == len(self._blocks):
                    return
                rank = _block_rank(self._blocks[at + 1])
                continue
            for segment in block:
                if segment.rank + segment.n > rank:
                    yield segment
            rank = after

    def may_have(self, first_id: int, end_id: int) -> bool:
        """Whether messages of these ids may be here; where all are of one priority, a look at both ends says no."""
        if not self._blocks:
            return False
        head, last = self._blocks[0][0], self._blocks[-1][-1]
        if head.run.section.priority != last.run.section.priority:
            return True
        return head.first_id < end_id and first_id < last.first_id + last.n

    def of_ids(self, first_id: int, end_id: int) -> Iterator[Segment]:
        """Segments with messages of these ids. Each priority has its stretch, so none but these is looked at."""
        if not self._blocks:
            return
        lowest, highest = (PRIORITY_MAX - (rank >> ID_BITS) for rank in (self.last_rank, self.head.rank))
        for priority in range(highest, lowest - 1, -1):
            end = rank_of(priority, end_id)
            for segment in self.from_rank(rank_of(priority, first_id)):
                if segment.rank >= end:
                    break
                yield segment

    def clear(self) -> None:
        """Take all messages out; the backlog is empty."""
        LOOK.has_touched = True
        self._blocks.clear()
        self.count = 0


def _joins(before: Segment, after: Segment) -> bool:
    return before.run is after.run and before.start + before.n == after.start and before.deliveries == after.deliveries
