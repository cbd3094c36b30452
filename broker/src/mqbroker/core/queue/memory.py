"""How many bytes messages really hold.

A run keeps its whole read buffer alive, so that is what counts: one unacknowledged message of 100 B must not pin
256 KiB unseen. Small runs are copied out of large buffers when they arrive; for runs that have shrunk since, `sweep`
works like a collector: when much of what is held is used no more, the live ranges of runs of which little is live are
gathered, and their buffers are cut down where that is less than a quarter. `unused_bytes` adds up what was settled of
runs that are still held; those of which more than three quarters was are `sparse`, and only for them anything is looked
at: some runs at a time whose ids are not far apart, so that it takes no look at all that is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqbroker.base.errors import Bug
from mqbroker.base.look import LOOK
from mqbroker.core.queue.large import LargeFiles
from mqbroker.wire.run import Run

SWEEP_MIN_BYTES: Final = 4 << 20
SHARE: Final = 4  # a buffer of which less than 1/SHARE is live is copied
SWEPT_MAX: Final = 200  # runs of one sweep,
SPAN_MAX: Final = 20_000  # and how far apart their ids are


class Memory:
    """Bytes held by messages against `global-max-size`."""

    __slots__ = (
        "_large", "_sparse", "_sparse_bytes", "_swept", "held_bytes", "is_shut", "max_bytes", "unused_bytes",
    )  # fmt: skip

    def __init__(self, max_bytes: int, large: LargeFiles) -> None:
        self._large = large  # what is in files is held there
        self.max_bytes = max_bytes
        self.is_shut = False  # whatever the memory holds: the disk is nearly full
        self.held_bytes = 0
        self.unused_bytes = 0
        self._sparse: dict[Run, None] = {}
        self._sparse_bytes = 0  # unused in these
        self._swept: list[Run] = []  # those of a round that has begun, by id, the first one last

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

    def has_margin(self, owed_bytes: int = 0) -> bool:
        """Whether what takes memory for a while only may go on though it is full: a quarter beyond the bound.

        `owed_bytes`: what is held and about to be given back.
        """
        return self.held_bytes - owed_bytes < self.max_bytes * 5 // 4

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

    def replace(self, runs: list[Run], run: Run) -> None:
        """A run that holds the messages of others is there in their place."""
        LOOK.has_touched = True
        run.held_bytes = len(run.buffer)
        self.held_bytes += run.held_bytes - sum(each.held_bytes for each in runs)

    def settle(self, run: Run, count: int) -> None:
        """So many references to messages of the run are settled. Raises Bug where there were fewer."""
        LOOK.has_touched = True
        references = run.references = run.references or run.live
        run.live -= count
        if run.live > 0:
            unused_bytes = run.held_bytes * count // references
            run.unused_bytes += unused_bytes
            self.unused_bytes += unused_bytes
            if run.unused_bytes * SHARE > run.held_bytes * (SHARE - 1):
                self._sparse_bytes += unused_bytes if run in self._sparse else run.unused_bytes
                self._sparse[run] = None
        elif run.live == 0:
            self.release(run)
        else:
            raise Bug(f"run {run.first_id} settled more often than it was routed")

    def release(self, run: Run) -> None:
        """The run is not held from now on."""
        LOOK.has_touched = True
        self.held_bytes -= run.held_bytes
        self._forget_unused(run)
        run.held_bytes = 0
        if run.large is not None:
            self._large.settle(run.large.file)

    def _forget_unused(self, run: Run) -> None:
        LOOK.has_touched = True
        self.unused_bytes -= run.unused_bytes
        if run in self._sparse:
            del self._sparse[run]
            self._sparse_bytes -= run.unused_bytes
        run.unused_bytes = 0

    def is_sweep_due(self) -> bool:
        """Whether it is worth looking, or not all was looked at."""
        return bool(self._swept) or self._sparse_bytes > SWEEP_MIN_BYTES

    def next_swept(self) -> list[Run]:
        """The runs to look at next."""
        LOOK.has_touched = True
        left = self._swept = self._swept or sorted(self._sparse, key=_first_id, reverse=True)
        chosen: list[Run] = []
        while left and len(chosen) < SWEPT_MAX and left[-1].first_id - (chosen or left[-1:])[0].first_id <= SPAN_MAX:
            chosen.append(left.pop())
        return [run for run in chosen if run in self._sparse]

    def sweep(self, runs: Iterable[Run], live: Iterable[tuple[Run, int, int]]) -> None:
        """Cut down the buffers of these runs, given at least every live range of theirs (run, index, count)."""
        ranges: dict[Run, list[tuple[int, int]]] = {run: [] for run in runs}
        LOOK.has_touched = True
        for run, index, count in live:
            if run in ranges:
                ranges[run].append((index, count))
        for run, pairs in ranges.items():
            pairs.sort()
            size = sum(run.size_bytes(index, count) for index, count in pairs)
            # Where some are not found, a queue that is gone has them and has not given them back.
            is_whole = sum(count for _, count in pairs) >= run.live
            if is_whole and size * SHARE < run.held_bytes:
                run.compact(_disjoint(pairs))
                self.held_bytes += len(run.buffer) - run.held_bytes
                run.held_bytes = len(run.buffer)
            # What is unused is counted from here on, also where nothing could be had: it is not looked at each time.
            self._forget_unused(run)
            run.references = 0


def _first_id(run: Run) -> int:
    return run.first_id


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
