"""How many bytes messages really hold.

A run keeps its whole read buffer alive, so that is what counts: one unacknowledged message of 100 B must not pin
256 KiB unseen. Small runs are copied out of large buffers when they arrive; for runs that have shrunk since, `sweep`
works like a collector: when what is held is far above what is live, all live ranges are gathered and the buffers of
runs of which less than a quarter is live are cut down.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqbroker.core.large import LargeFiles
from mqbroker.wire.run import Run

SWEEP_MIN_BYTES = 4 << 20
SHARE = 4  # a buffer of which less than 1/SHARE is live is copied


class Memory:
    """Bytes held by messages against `global-max-size`."""

    __slots__ = ("_large", "_swept_bytes", "held_bytes", "max_bytes")

    def __init__(self, max_bytes: int, large: LargeFiles) -> None:
        self._large = large  # what is in files is held there
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._swept_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be taken in."""
        return self.held_bytes >= self.max_bytes

    @property
    def has_room(self) -> bool:
        """Whether credit may be granted again: a margin below the limit, so that it does not flap."""
        return self.held_bytes < self.max_bytes - self.max_bytes // 8

    def hold(self, run: Run) -> None:
        """A run came in. Its share of a buffer that it has not for itself is copied out."""
        size = run.size_bytes(0, run.count)
        if size * SHARE < len(run.buffer):
            run.compact([(0, run.count)])
        run.held_bytes = len(run.buffer)
        self.held_bytes += run.held_bytes
        if run.large is not None:
            self._large.hold(run.large.file)

    def release(self, run: Run) -> None:
        """The last reference to a run is settled."""
        self.held_bytes -= run.held_bytes
        run.held_bytes = 0
        if run.large is not None:
            self._large.settle(run.large.file)

    @property
    def wants_sweep(self) -> bool:
        """Whether it is worth looking: held bytes doubled since the last look found them well used."""
        return self.held_bytes > SWEEP_MIN_BYTES and self.held_bytes > 2 * self._swept_bytes

    def sweep(self, live: Iterable[tuple[Run, int, int]]) -> None:
        """Cut down buffers, given every live range (run, index, count)."""
        ranges: dict[int, tuple[Run, list[tuple[int, int]]]] = {}
        for run, index, count in live:
            ranges.setdefault(id(run), (run, []))[1].append((index, count))
        for run, pairs in ranges.values():
            pairs.sort()
            size = sum(run.size_bytes(index, count) for index, count in pairs)
            if size * SHARE < run.held_bytes:
                run.compact(_disjoint(pairs))
                self.held_bytes += len(run.buffer) - run.held_bytes
                run.held_bytes = len(run.buffer)
        self._swept_bytes = self.held_bytes


def _disjoint(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ranges, which overlap where several queues share messages, as disjoint ones."""
    merged: list[tuple[int, int]] = []
    for index, count in pairs:
        if merged and index <= merged[-1][0] + merged[-1][1]:
            first, before = merged[-1]
            merged[-1] = (first, max(before, index + count - first))
        else:
            merged.append((index, count))
    return merged
