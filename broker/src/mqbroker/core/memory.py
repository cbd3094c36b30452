"""How many bytes messages really hold.

A run keeps its whole read buffer alive, so that is what counts: one unacknowledged message of 100 B must not pin
256 KiB unseen. Small runs are copied out of large buffers when they arrive; for runs that have shrunk since, `sweep`
works like a collector: when much of what is held is used no more, all live ranges are gathered and the buffers of
runs of which less than a quarter is live are cut down. A sweep looks at every message, so it must not come because
many are there, only because much could be had: `unused_bytes` adds up what was settled of runs that are still held.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqbroker.base.errors import Bug
from mqbroker.base.look import LOOK
from mqbroker.core.large import LargeFiles
from mqbroker.wire.run import Run

SWEEP_MIN_BYTES: Final = 4 << 20
SHARE: Final = 4  # a buffer of which less than 1/SHARE is live is copied


class Memory:
    """Bytes held by messages against `global-max-size`."""

    __slots__ = ("_large", "_left_bytes", "held_bytes", "is_shut", "max_bytes", "unused_bytes")

    def __init__(self, max_bytes: int, large: LargeFiles) -> None:
        self._large = large  # what is in files is held there
        self.max_bytes = max_bytes
        self.is_shut = False  # whatever the memory holds: the disk is nearly full
        self.held_bytes = 0
        self.unused_bytes = 0
        self._left_bytes = 0  # unused, and what the last sweep could not free

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be taken in."""
        return self.held_bytes >= self.max_bytes or self.is_shut

    @property
    def has_room(self) -> bool:
        """Whether credit may be granted again."""
        return not self.is_tight and not self.is_shut

    @property
    def is_tight(self) -> bool:
        """Whether it is nearly full: by a margin, so that credit does not flap."""
        return self.held_bytes >= self.max_bytes - self.max_bytes // 8

    @property
    def why_full(self) -> str:
        """What those are told whose messages are not taken in."""
        if self.is_shut:
            return "the disk is nearly full: less is free than min-disk-free"
        return f"the broker holds {self.held_bytes} bytes of messages, which is global-max-size"

    def hold(self, run: Run) -> None:
        """A run came in. Its share of a buffer that it has not for itself is copied out."""
        size = run.size_bytes(0, run.count)
        if size * SHARE < len(run.buffer):
            run.compact([(0, run.count)])
        LOOK.has_touched = True
        run.held_bytes = len(run.buffer)
        self.held_bytes += run.held_bytes
        if run.large is not None:
            self._large.hold(run.large.file)

    def settle(self, run: Run, count: int) -> None:
        """So many references to messages of the run are settled. Raises Bug where there were fewer."""
        LOOK.has_touched = True
        references = run.references = run.references or run.live
        run.live -= count
        if run.live > 0:
            unused_bytes = run.held_bytes * count // references
            run.unused_bytes += unused_bytes
            self.unused_bytes += unused_bytes
        elif run.live == 0:
            self.release(run)
        else:
            raise Bug(f"run {run.first_id} settled more often than it was routed")

    def release(self, run: Run) -> None:
        """The run is held no more."""
        LOOK.has_touched = True
        self.held_bytes -= run.held_bytes
        self.unused_bytes -= run.unused_bytes
        run.held_bytes = run.unused_bytes = 0
        if run.large is not None:
            self._large.settle(run.large.file)

    def is_sweep_due(self) -> bool:
        """Whether it is worth looking: as much again is unused as the last look had to leave."""
        self._left_bytes = min(self._left_bytes, self.unused_bytes)
        return self.unused_bytes > SWEEP_MIN_BYTES + 2 * self._left_bytes

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
                self.unused_bytes -= run.unused_bytes
                run.unused_bytes = run.references = 0
        self._left_bytes = self.unused_bytes


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
