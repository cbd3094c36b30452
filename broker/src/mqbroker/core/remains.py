"""What queues held that are no more: it is given back piece by piece, as it may be very much.

The journal and everybody else have forgotten the queue by then; what is left to be done is the memory that its messages
hold, and the room that they take at their address, where others are bound to that: an address without queues has all
its room at once. Invariant: each of them is given back once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.backlog import Backlog, Segment

if TYPE_CHECKING:
    from mqbroker.core.meter import Meter
    from mqbroker.core.queue import Queue
    from mqbroker.core.store import Store

AT_ONCE: Final = 100  # segments that are given back with their queue
WHOLE: Final = 1 << 62


class Remains:
    """Of all queues of a node, the first that went first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: deque[tuple[Meter | None, int, Backlog, list[Segment]]] = deque()  # number: `Meter.emptied_count`

    @property
    def is_due(self) -> bool:
        """Whether there is something to do."""
        return bool(self._held)

    def add(self, queue: Queue) -> None:
        """The queue is deleted."""
        LOOK.has_touched = True
        rest = [*(segment for _, _, segment in queue.scheduled), *queue.waiting]
        emptied_count = 0 if queue.meter is None else queue.meter.emptied_count
        self._held.append((queue.meter, emptied_count, queue.backlog, rest))
        queue.backlog, queue.scheduled = Backlog(), []
        queue.waiting.clear()  # what waits for the disk waits in vain
        queue.scheduled_count = queue.waiting_count = 0
        if len(self._held) == 1:
            self.go_on(AT_ONCE)

    def go_on(self, work_max: int) -> None:
        """Of so many segments, each of which is about a unit of amqp/work.py."""
        memory, left = self._store.memory, work_max
        LOOK.has_touched = True
        while self._held:
            meter, emptied_count, backlog, rest = self._held[0]
            while backlog.count or rest:
                if left <= 0:
                    return
                left -= 1
                segment = backlog.take(WHOLE) if backlog.count else rest.pop()
                if meter is not None and meter.emptied_count == emptied_count:
                    meter.remove(segment)
                memory.settle(segment.run, segment.n)
            self._held.popleft()
