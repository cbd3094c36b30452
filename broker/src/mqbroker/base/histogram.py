"""How often something took how long, in plain integers: one addition for each time that it happened."""

from __future__ import annotations

from itertools import accumulate


class Histogram:
    """Counts by upper bounds in seconds, ascending; the last count is of what was longer. One thread adds at a time."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, took_s: float) -> None:
        """It took this long once more. A bound includes itself."""
        # Nearly always one of the first bounds, so a search by halves would cost more.
        place = 0
        for bound_s in self.bounds_s:
            if took_s <= bound_s:
                break
            place += 1
        self.counts[place] += 1
        self.sum_s += took_s

    def cumulated(self) -> list[int]:
        """How many took at most each bound, and how many there were."""
        return list(accumulate(self.counts))
