"""What deleted queues held, and what was purged of others: it is given back piece by piece, as it may be very much.

Of a queue that is deleted the journal and everybody else have forgotten all by then; what is left to be done is the
memory that its messages hold, and the room that they take at their address, where others are bound to that: an address
without queues has all its room at once. What is purged is not in the queue from the first moment on, and is settled
as its turn comes. Invariant: each message is given back once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mqbroker.amqp import frame_costs
from mqbroker.base.look import LOOK
from mqbroker.core.queue.backlog import Backlog, Segment
from mqbroker.core.queue.leaving_reasons import DELETED, PURGED

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.address.dead_letters import DeadLetters
    from mqbroker.core.queue.queue import Queue

AT_ONCE: Final = 100  # segments that are given back with their queue
WHOLE: Final = 1 << 62


class QueueRemains:
    """What one queue held: what was deliverable, and the rest."""

    __slots__ = ("backlog", "emptied_count", "is_purged", "meter", "queue", "rest")

    def __init__(self, queue: Queue, rest: list[Segment], *, is_purged: bool) -> None:
        self.is_purged: Final = is_purged
        self.queue: Final = queue
        self.meter: Final = queue.meter
        self.emptied_count: Final = 0 if queue.meter is None else queue.meter.emptied_count
        self.backlog: Final = queue.backlog
        self.rest: Final = rest

    @property
    def is_unsettled(self) -> bool:
        """Whether the journal has it so far."""
        return self.is_purged and not self.queue.is_deleted


class Remains:
    """Of all queues of a node, the first that went first."""

    def __init__(self, store: AddressStore, dead_letters: DeadLetters) -> None:
        self._store = store
        self._dead_letters = dead_letters
        self._held: deque[QueueRemains] = deque()

    @property
    def is_due(self) -> bool:
        """Whether there is something to do."""
        return bool(self._held)

    def add(self, queue: Queue) -> None:
        """The queue is deleted; what it held is given back by turns."""
        LOOK.has_touched = True
        self._hold(queue, is_purged=False)

    def purge(self, queue: Queue) -> int:
        """Nobody is to get what the queue has to hand out, now or later; says how many messages that are."""
        count = queue.backlog.count + queue.scheduled_count + queue.waiting_count
        LOOK.has_touched = True
        self._hold(queue, is_purged=True)
        return count

    def _hold(self, queue: Queue, *, is_purged: bool) -> None:
        LOOK.has_touched = True
        rest = [*queue.take_waiting(), *(segment for _, _, segment in queue.scheduled)]
        self._held.append(QueueRemains(queue, rest, is_purged=is_purged))
        queue.backlog, queue.scheduled, queue.scheduled_count = Backlog(), [], 0
        if len(self._held) == 1:
            self.go_on(AT_ONCE * frame_costs.GIVEN_BACK)

    def is_purging(self, queue: Queue) -> bool:
        """Whether something that was purged of it is to be settled so far."""
        return any(held.queue is queue and held.is_unsettled for held in self._held)

    def live_of_ids(self, first_id: int, end_id: int) -> Iterator[tuple[Queue, Segment]]:
        """What may have messages of these ids and is not settled so far: what is purged."""
        for held in self._held:
            if held.is_unsettled:
                yield from ((held.queue, segment) for segment in held.backlog.of_ids(first_id, end_id))
                yield from ((held.queue, segment) for segment in held.rest)

    def go_on(self, work_max: int) -> None:
        """About so much of it, in units of amqp/frame_costs.py."""
        left = work_max
        LOOK.has_touched = True
        while self._held:
            held = self._held[0]
            left = self._settle(held, left) if held.is_unsettled else self._give_back(held, left)
            if held.backlog.count or held.rest:
                return
            self._held.popleft()

    def _settle(self, held: QueueRemains, left: int) -> int:
        """Of what is purged; what is left of the work."""
        queue, backlog, rest = held.queue, held.backlog, held.rest
        LOOK.has_touched = True
        while left > 0 and (backlog.count or rest):
            left -= frame_costs.PURGED
            segment = backlog.take(WHOLE) if backlog.count else rest.pop()
            queue.delivering_count += segment.n
            self._store.discard(queue, segment, PURGED)
        return left

    def _give_back(self, held: QueueRemains, left: int) -> int:
        """Of what the journal knows no more; what is left of the work."""
        memory, meter, backlog, rest = self._store.memory, held.meter, held.backlog, held.rest
        LOOK.has_touched = True
        while left > 0 and (backlog.count or rest):
            left -= frame_costs.GIVEN_BACK
            segment = backlog.take(WHOLE) if backlog.count else rest.pop()
            if held.is_purged:  # its queue was deleted meanwhile, which counted what was in that then
                self._dead_letters.left_totals[PURGED] += segment.n
            if meter is not None and meter.emptied_count == held.emptied_count:
                meter.remove(segment)
            memory.settle(segment.run, segment.n)
            if self._store.message_observers:
                why = PURGED if held.is_purged else DELETED
                self._store.tell_left(held.queue, segment.first_id, segment.n, why)
        return left
