"""One heap of deadlines. A deadline that moved to later is found out when it fires, so moving one costs nothing.

A process may have stood still: its machine was moved or had no processor for it, or a disk did not answer. What others
said in time lies unread then, and the loop looks at clocks before it looks at sockets. So whoever judges others by what
came in time (`judges_others`) is not asked at once where it is late for that, but when there was time to read.
"""

from __future__ import annotations

import heapq
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.base.time import LATE_NS, NS_PER_MS, Timed

FIRED_MAX: Final = 100  # of a step; each may send something, or end a connection or an address
READ_NS: Final = 20 * NS_PER_MS  # the loop looks at all sockets meanwhile


class Timers:
    """Deadlines of many owners; an entry that an earlier one has replaced is passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._count = 0
        self._spared: set[Timed] = set()  # they are late, and have had time to be told of what came

    def add(self, owner: Timed) -> None:
        """Make sure that the owner is looked at when it is due. Cheap when it is scheduled early enough already."""
        LOOK.has_touched = True
        if owner.due_ns and (not owner.scheduled_ns or owner.due_ns < owner.scheduled_ns):
            self._push(owner, owner.due_ns)

    def _push(self, owner: Timed, at_ns: int) -> None:
        LOOK.has_touched = True
        owner.scheduled_ns = at_ns
        self._count += 1
        heapq.heappush(self._heap, (at_ns, self._count, owner))

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
            is_due = 0 < owner.due_ns <= now_ns
            if is_due and now_ns - at_ns >= LATE_NS and self._spares(owner):
                self._push(owner, now_ns + READ_NS)
                continue
            self._spared.discard(owner)
            if is_due:
                owner.on_time(now_ns)
            self.add(owner)
        return False

    def _spares(self, owner: Timed) -> bool:
        """Whether the owner waits until more is read, which it does once for a deadline."""
        if not getattr(owner, "judges_others", False) or owner in self._spared:
            return False
        LOOK.has_touched = True
        self._spared.add(owner)
        return True

    @property
    def wake_at_ns(self) -> int | None:
        """The next instant to look at."""
        return self._heap[0][0] if self._heap else None
