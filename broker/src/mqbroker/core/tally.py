"""What a transaction brings to an address that has bounds, counted before its commit: it comes in as a whole, or not.

As with messages outside of transactions (meter.py): FAIL and page-full-policy FAIL refuse, which rolls back; DROP drops
the messages that do not fit; BLOCK has held back credit and takes what is there. What the same transaction takes
out of the address makes room first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.core.meter import BLOCK, PAGE, Meter

if TYPE_CHECKING:
    from mqbroker.core.backlog import Segment
    from mqbroker.wire.run import Run


class Tally:
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

    def takes(self, run: Run) -> bool:
        """Whether the address takes these as well; if so, they count from now on."""
        meter = self._meter
        share = max(meter.queues_count, 1)
        size_bytes, count = run.size_bytes(0, run.count) * share, run.count * share
        is_full = meter.would_be_full(self._size_bytes, self._count)
        LOOK.has_touched = True
        if meter.policy == PAGE and (is_full or self._paged_count or meter.is_node_full):
            if not meter.could_page(self._paged_bytes, self._paged_count, count):
                return False
            self._paged_bytes += size_bytes
            self._paged_count += count
            return True
        if meter.policy not in (PAGE, BLOCK) and (is_full or not meter.could_hold(self._count + run.count)):
            return False
        self._size_bytes += size_bytes
        self._count += count
        return True
