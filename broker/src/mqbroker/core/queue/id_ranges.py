"""A set of ids that come in stretches: sorted, disjoint, joined where they touch.

What comes usually lies behind all that is there, and what goes usually before it. Anything else costs a bisection, and
what it takes to move the rest of a list.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from mqbroker.base.look import LOOK


class IdRanges:
    """`count` ids, in stretches from each of the starts to before the end beside it."""

    __slots__ = ("_ends", "_starts", "count")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.count = 0

    def __len__(self) -> int:
        """Stretches."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(first, end) of each stretch, as they are now."""
        return iter(list(zip(self._starts, self._ends, strict=True)))

    @property
    def end(self) -> int:
        """All ids are before this one; 0 where there are none."""
        return self._ends[-1] if self._ends else 0

    def add(self, first: int, end: int) -> None:
        """The ids from `first` to before `end`, whether they are there or not."""
        starts, ends = self._starts, self._ends
        LOOK.has_touched = True
        if ends and first == ends[-1]:
            ends[-1] = end
            self.count += end - first
            return
        low, high = bisect_left(ends, first), bisect_right(starts, end)
        if low < high:
            first, end = min(first, starts[low]), max(end, ends[high - 1])
            self.count -= sum(ends[low:high]) - sum(starts[low:high])
        starts[low:high], ends[low:high] = [first], [end]
        self.count += end - first

    def remove(self, first: int, end: int) -> None:
        """The ids from `first` to before `end`, whether they are there or not."""
        starts, ends = self._starts, self._ends
        low, high = bisect_right(ends, first), bisect_left(starts, end)
        if low >= high:
            return
        before, after = starts[low], ends[high - 1]
        left = [each for each in ((before, first), (end, after)) if each[0] < each[1]]
        LOOK.has_touched = True
        self.count -= sum(ends[low:high]) - sum(starts[low:high])
        self.count += sum(stop - start for start, stop in left)
        starts[low:high] = [start for start, _ in left]
        ends[low:high] = [stop for _, stop in left]

    def first_within(self, first: int, end: int) -> int:
        """The lowest id from `first` to before `end` that is there; `end` where none is."""
        low = bisect_right(self._ends, first)
        return min(max(self._starts[low], first), end) if low < len(self._starts) else end

    def within(self, first: int, end: int) -> list[tuple[int, int]]:
        """(first, end) of the stretches between `first` and `end` that are there."""
        starts, ends = self._starts, self._ends
        low, high = bisect_right(ends, first), bisect_left(starts, end)
        return [(max(starts[at], first), min(ends[at], end)) for at in range(low, high)]

    def missing(self, first: int, end: int) -> list[tuple[int, int]]:
        """(first, end) of the stretches between `first` and `end` that are not there."""
        starts, ends = self._starts, self._ends
        stretches: list[tuple[int, int]] = []
        at = bisect_right(ends, first)
        while first < end:
            stop = starts[at] if at < len(starts) else end
            if first < stop:
                stretches.append((first, min(stop, end)))
            if at >= len(starts):
                break
            first = ends[at]
            at += 1
        return stretches
