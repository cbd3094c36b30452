"""Which segment holds what is live: a count of references (message and queue) for each segment and queue.

Invariant: a segment's count is the number of (message, queue) pairs whose newest RUN record lies in it and that are not
settled. It is what makes the deletion of a segment safe, so a count that would go below zero is a Bug, never a shrug.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mqbroker.base.errors import Bug
from mqbroker.base.look import LOOK
from mqbroker.journal.format import FILE_HEADER_BYTES
from mqbroker.journal.ranges import RangeMap


@dataclass(slots=True, eq=False)
class JournalSegment:
    """One file. `refs` is the sum of `refs_by_queue`; `id_bytes` are those of duplicate ids that are still wanted.

    `pins` are places in it that somebody will read (journal/places.py), `loose_bytes` those of places without `refs`.
    """

    number: int
    size_bytes: int
    used_bytes: int = FILE_HEADER_BYTES
    run_bytes: int = 0
    stored_refs: int = 0
    refs: int = 0
    refs_by_queue: dict[int, int] = field(default_factory=dict)
    id_bytes: int = 0
    pins: int = 0
    loose_bytes: int = 0

    @property
    def live_bytes(self) -> int:
        """An estimate: as if all messages of the segment were of one size."""
        stored = self.run_bytes * self.refs // self.stored_refs if self.stored_refs else 0
        return stored + self.loose_bytes

    def add(self, queue_id: int, n: int) -> None:
        LOOK.has_touched = True
        self.refs += n
        self.refs_by_queue[queue_id] = self.refs_by_queue.get(queue_id, 0) + n

    def remove(self, queue_id: int, n: int) -> None:
        left = self.refs_by_queue.get(queue_id, 0) - n
        if left < 0:
            raise Bug(f"queue {queue_id} settled {-left} more messages than journal segment {self.number} holds for it")
        LOOK.has_touched = True
        if left:
            self.refs_by_queue[queue_id] = left
        else:
            del self.refs_by_queue[queue_id]
        self.refs -= n


class Ledger:
    """All segments in their order, and the segment of every stored id."""

    def __init__(self) -> None:
        self.segments: list[JournalSegment] = []
        self._segment_of: RangeMap[JournalSegment] = RangeMap()
        self._placed_end = 0

    @property
    def current(self) -> JournalSegment | None:
        return self.segments[-1] if self.segments else None

    def by_number(self, number: int) -> JournalSegment:
        """Their numbers follow one another, so this is one look, but where a start went on without some files."""
        index = max(min(number - self.segments[0].number, len(self.segments) - 1), 0)
        while index and self.segments[index].number > number:
            index -= 1
        segment = self.segments[index]
        if segment.number != number:
            raise Bug(f"journal segment {number} is not where it should be")
        return segment

    def store(self, first_id: int, segment: JournalSegment, refs: dict[int, int]) -> None:
        """Ids from `first_id` on, all of them new, are in `segment`."""
        LOOK.has_touched = True
        self._segment_of.append(first_id, segment)
        for queue_id, n in refs.items():
            segment.add(queue_id, n)

    def restore(self, bounds: tuple[int, int], queue_ids: Sequence[int], segment: JournalSegment) -> None:
        """Move what is live of an id range to another segment."""
        first, end = bounds
        LOOK.has_touched = True
        for low, high, older in self._segment_of.pieces(first, end):
            for queue_id in queue_ids:
                if older is not None and queue_id in older.refs_by_queue:
                    older.remove(queue_id, high - low)
                    segment.add(queue_id, high - low)
        self._segment_of.assign(first, end, segment)

    def place(self, first: int, end: int, segment: JournalSegment) -> None:
        """These ids are in `segment`, as recovery found them: mostly ascending, none twice in two segments."""
        LOOK.has_touched = True
        if first >= self._placed_end:
            self._segment_of.append(first, segment)
            self._placed_end = end
        else:
            self._segment_of.assign(first, end, segment)
            self._placed_end = max(self._placed_end, end)

    def claim(self, first: int, end: int, segment: JournalSegment) -> None:
        """An id range of which nothing is live elsewhere: one piece instead of many."""
        self._segment_of.assign(first, end, segment)

    def settle(self, queue_id: int, bounds: list[int]) -> None:
        """`bounds` is flat: first id, id behind the last, …"""
        LOOK.has_touched = True
        if len(bounds) == 2:
            segment = self._segment_of.owner_of_all(bounds[0], bounds[1])
            if segment is not None:
                segment.remove(queue_id, bounds[1] - bounds[0])
                return
        for at in range(0, len(bounds), 2):
            for low, high, segment in self._segment_of.pieces(bounds[at], bounds[at + 1]):
                if segment is None:
                    raise Bug(f"queue {queue_id} settled messages from {low} on, which no journal segment holds")
                segment.remove(queue_id, high - low)

    def drop(self, queue_id: int) -> None:
        LOOK.has_touched = True
        for segment in self.segments:
            segment.refs -= segment.refs_by_queue.pop(queue_id, 0)

    def ranges_of(self, segment: JournalSegment, next_id: int) -> list[tuple[int, int]]:
        """(first, end) of the ids that belong to a segment."""
        return [(first, next_id if end is None else end) for first, end in self._segment_of.owned_by(segment)]

    def forget(self, numbers: Sequence[int]) -> None:
        """These segments are deleted: their ids belong to nobody."""
        LOOK.has_touched = True
        for segment in [segment for segment in self.segments if segment.number in numbers]:
            for first, end in self._segment_of.owned_by(segment):
                if end is not None:
                    self._segment_of.assign(first, end, None)
            self.segments.remove(segment)
