"""Channels and handles: the lowest number that nobody has, found without a look at those that somebody has."""

from __future__ import annotations

from heapq import heappop, heappush


class Numbers:
    """Numbers from 0 on. Bounded by how many were in use at a time."""

    __slots__ = ("_free", "_next")

    def __init__(self) -> None:
        self._free: list[int] = []  # a heap of those below `_next` that were given back
        self._next = 0

    def take(self, count_max: int) -> int:
        """The lowest one that is free; -1: it is not below `count_max`."""
        if self._free and self._free[0] < count_max:
            return heappop(self._free)
        if self._next >= count_max:
            return -1
        self._next += 1
        return self._next - 1

    def give_back(self, number: int) -> None:
        """It is free again. Only once for each time that it was taken."""
        heappush(self._free, number)
