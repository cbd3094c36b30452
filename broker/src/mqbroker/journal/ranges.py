"""Which owner does an id belong to: a map from ranges of ids to owners, for ids that arrive ascending.

Pieces are sorted and disjoint and each reaches to the start of the next, the last one to infinity. So an id that was
never given an owner of its own belongs to the piece before it: nobody asks for such ids. Lookups are one bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from typing import Generic, TypeVar

from mqbroker.base.look import LOOK

Owner = TypeVar("Owner")


class RangeMap(Generic[Owner]):
    """`None` owns what lies before the first piece."""

    def __init__(self) -> None:
        self._starts: list[int] = [0]
        self._owners: list[Owner | None] = [None]

    def __len__(self) -> int:
        return len(self._starts)

    def append(self, first: int, owner: Owner) -> None:
        """All ids from `first` on. `first` is not before the start of the last piece."""
        if self._owners[-1] is owner:
            return
        LOOK.has_touched = True
        if self._starts[-1] == first:
            self._starts.pop()
            self._owners.pop()
            if self._owners and self._owners[-1] is owner:
                return
        self._starts.append(first)
        self._owners.append(owner)

    def assign(self, first: int, end: int, owner: Owner | None) -> None:
        """The ids from `first` to before `end`, whoever had them."""
        if first >= end:
            return
        low = bisect_left(self._starts, first)
        high = bisect_left(self._starts, end)
        after = self._owners[bisect_right(self._starts, end) - 1]
        starts, owners = [first, end], [owner, after]
        if low > 0 and self._owners[low - 1] is owner:
            starts, owners = [end], [after]
        if owner is after:
            starts.pop()
            owners.pop()
        if high < len(self._starts) and self._starts[high] == end:
            high += 1
        LOOK.has_touched = True
        self._starts[low:high] = starts
        self._owners[low:high] = owners

    def at(self, number: int) -> Owner | None:
        return self._owners[bisect_right(self._starts, number) - 1]

    def owner_of_all(self, first: int, end: int) -> Owner | None:
        """The one owner of everything from `first` to before `end`, None if there are several or none."""
        index = bisect_right(self._starts, first)
        if index < len(self._starts) and self._starts[index] < end:
            return None
        return self._owners[index - 1]

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, int, Owner | None]]:
        """(first, end, owner) of everything from `first` to before `end`. The map must not change meanwhile."""
        index = bisect_right(self._starts, first) - 1
        while first < end:
            stop = end
            if index + 1 < len(self._starts):
                stop = min(end, self._starts[index + 1])
            yield first, stop, self._owners[index]
            first = stop
            index += 1

    def owned_by(self, owner: Owner) -> list[tuple[int, int | None]]:
        """(first, end) of every piece of `owner`, end None for the last piece of all. Looks at every piece."""
        stops: list[int | None] = [*self._starts[1:], None]
        return [
            (start, stop) for start, stop, held in zip(self._starts, stops, self._owners, strict=True) if held is owner
        ]


def forgotten(held: Collection[int], before: int, oldest: int) -> list[int]:
    """Which of these numbers are below `oldest`, where none was below `before`; costs no more than there are."""
    if oldest - before > len(held):
        return [number for number in held if number < oldest]
    return list(range(before, oldest))


def subtract(ranges: list[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    """Sorted disjoint (first, n) less the ids from `first` to before `end`."""
    kept: list[tuple[int, int]] = []
    for start, n in ranges:
        stop = start + n
        if stop <= first or start >= end:
            kept.append((start, n))
            continue
        if start < first:
            kept.append((start, first - start))
        if stop > end:
            kept.append((end, stop - end))
    return kept


def merge(bounds: list[int]) -> list[int]:
    """Flat bounds (first, end, first, end, …) in any order, sorted and joined where they touch."""
    pairs = sorted(zip(bounds[::2], bounds[1::2], strict=True))
    merged: list[int] = []
    LOOK.has_touched = True
    for first, end in pairs:
        if merged and merged[-1] == first:
            merged[-1] = end
        else:
            merged.append(first)
            merged.append(end)
    return merged
