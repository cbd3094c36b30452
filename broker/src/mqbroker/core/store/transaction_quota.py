"""What a transaction brings to an address that has bounds, counted before its commit: it comes in as a whole, or not.

As with messages outside of transactions (meter.py): FAIL and page-full-policy FAIL refuse, which rolls back; DROP drops
the messages that do not fit; BLOCK has held back credit and takes what is there. What the same transaction takes
out of the address makes room first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.core.queue.meter import BLOCK, PAGE, Meter

if TYPE_CHECKING:
    from mqbroker.core.queue.backlog import Segment
    from mqbroker.wire.run import Run


class TransactionQuota:
    """One address, as the commit would leave it."""

    __slots__ = ("_count", "_meter", "_paged_bytes", "_paged_count", "_size_bytes")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._size_bytes = meter.size_bytes
        self._count = meter.count
        self._paged_bytes, self._paged_count = meter.paged

    def free(self, segment: Segment) -> None:
        """Messages will be gone from a queue."""
        LOOK.has_touched = True
        self._size_bytes -= segment.run.size_bytes(segment.start, segment.n)
        self._count -= segment.n

    def fitting(self, run: Run) -> int:
        """How many messages of the run, the first ones, the address takes as well; they count from now on."""
        size_bytes = run.size_bytes(0, run.count)
        if run.count > 1 and self._has_room(size_bytes, run.count):
            self._add(size_bytes, run.count, to_pages=self._is_paging)
            return run.count
        for index in range(run.count):
            if not self.takes(run.size_bytes(index, 1)):
                return index
        return run.count

    @property
    def _share(self) -> int:
        return max(self._meter.queues_count, 1)

    @property
    def _is_paging(self) -> bool:
        meter = self._meter
        is_full = meter.would_be_full(self._size_bytes, self._count)
        return meter.policy == PAGE and (is_full or self._paged_count > 0 or meter.is_node_full)

    def _has_room(self, size_bytes: int, count: int) -> bool:
        """Whether all of them come in, and no bound is near enough to ask for each."""
        meter, share = self._meter, self._share
        size_bytes, count = size_bytes * share, count * share
        if self._is_paging:
            return meter.could_page(self._paged_bytes + size_bytes, self._paged_count, count)
        return meter.policy == BLOCK or not meter.would_be_full(self._size_bytes + size_bytes, self._count + count)

    @property
    def is_open(self) -> bool:
        """Whether the address takes one more."""
        meter = self._meter
        if self._is_paging:
            return meter.could_page(self._paged_bytes, self._paged_count, self._share)
        return meter.policy in (PAGE, BLOCK) or self.is_within_bounds

    @property
    def is_within_bounds(self) -> bool:
        """Whether one more in memory is within the bounds of the address, whatever it does beyond them."""
        meter = self._meter
        return not meter.would_be_full(self._size_bytes, self._count) and meter.could_hold(self._count + 1)

    def takes(self, size_bytes: int) -> bool:
        """Whether the address takes one more; if so, it counts from now on."""
        if not self.is_open:
            return False
        self._add(size_bytes, 1, to_pages=self._is_paging)
        return True

    def _add(self, size_bytes: int, count: int, *, to_pages: bool) -> None:
        share = self._share
        LOOK.has_touched = True
        if to_pages:
            self._paged_bytes += size_bytes * share
            self._paged_count += count * share
        else:
            self._size_bytes += size_bytes * share
            self._count += count * share
