"""One heap of deadlines. A deadline that moved to later is found out when it fires, so moving one costs nothing."""

from __future__ import annotations

import heapq
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.base.time import Timed

FIRED_MAX: Final = 100  # of a step; each may send something, or end a connection or an address


class Timers:
    """Deadlines of many owners; an entry that an earlier one has replaced is passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._count = 0

    def add(self, owner: Timed) -> None:
        """Make sure that the owner is looked at when it is due. Cheap when it is scheduled early enough already."""
        LOOK.has_touched = True
        if owner.due_ns and (not owner.scheduled_ns or owner.due_ns < owner.scheduled_ns):
            owner.scheduled_ns = owner.due_ns
            self._count += 1
            heapq.heappush(self._heap, (owner.due_ns, self._count, owner))

    def fire(self, now_ns: int) -> bool:
        """Let those act whose time has come, so many at most; whether there are more."""
        heap, left = self._heap, FIRED_MAX
        while heap and heap[0][0] <= now_ns:
            if not left:
                return True
            left -= 1
            at_ns, _, owner = heapq.heappop(heap)
            if at_ns != owner.scheduled_ns:
                continue
            owner.scheduled_ns = 0
            if owner.due_ns and owner.due_ns <= now_ns:
                owner.on_time(now_ns)
            self.add(owner)
        return False

    @property
    def wake_at_ns(self) -> int | None:
        """The next instant to look at."""
        return self._heap[0][0] if self._heap else None
