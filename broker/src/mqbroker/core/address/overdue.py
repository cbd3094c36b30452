"""What has come due in queues: scheduled messages are deliverable, expired ones leave, and who was idle may go.
What is too much for a ring that was made smaller leaves as well.

As there may be very many at once it is done piece by piece, as much in a step as that gives. To find what has expired
every message of a queue is looked at, from the place that was reached; who found little for all that work rests for
some time before it looks again, and what expires meanwhile is given to nobody (dispatch.py). Invariant: a queue with
something overdue is among these, or has a deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.amqp import frame_costs
from mqbroker.base.look import LOOK
from mqbroker.core.queue.backlog import EXPIRED
from mqbroker.core.queue.kinds import RETROACTIVE

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.address.auto_delete import AutoDelete
    from mqbroker.core.queue.backlog import Segment
    from mqbroker.core.queue.queue import Queue

LOOKS_PER_MS: Final = 200  # looks in vain for which a queue rests a millisecond: a tenth of the time at most


class Overdue:
    """All queues of a node of which something is due; each has its turn."""

    def __init__(self, store: AddressStore, auto_delete: AutoDelete) -> None:
        self._store = store
        self._auto_delete = auto_delete
        self._queues: dict[Queue, None] = {}

    @property
    def is_due(self) -> bool:
        """Whether there is something to do."""
        return bool(self._queues)

    def add(self, queue: Queue) -> None:
        """Something in the queue is due, or it holds too much: it is looked at in one of the next steps."""
        LOOK.has_touched = True
        self._queues[queue] = None

    def go_on(self, work_max: int) -> None:
        """About so much of it, in units of amqp/frame_costs.py."""
        queues, left = self._queues, work_max
        LOOK.has_touched = True
        while queues and left > 0:
            queue = next(iter(queues))
            del queues[queue]
            if not queue.is_deleted:
                left = self._piece(queue, left - frame_costs.DUE)

    def _piece(self, queue: Queue, left: int) -> int:
        """Of one queue; what is left of the work of the step."""
        store, now_ms = self._store, self._store.at.wall_ms
        left -= queue.bring_scheduled(now_ms, left // frame_costs.SCHEDULED + 1) * frame_costs.SCHEDULED
        if left > 0 and queue.begin_expiring(now_ms):
            left = self._expire(queue, left)
        if left > 0:
            left -= queue.overflow(left // frame_costs.DROPPED + 1) * frame_costs.DROPPED
        if queue.expiring_from >= 0 or queue.is_schedule_due(now_ms) or queue.excess_count:
            LOOK.has_touched = True
            self._queues[queue] = None
            store.changed(queue)
            return left
        self._auto_delete.look(queue)
        return left - frame_costs.DELETED * queue.is_deleted

    def _expire(self, queue: Queue, left: int) -> int:
        """Take what has expired out of the queue, from where the last piece ended."""
        target = self._store.settings.of(queue.kind.address).expiry_address
        is_moved = bool(target) and queue.kind.routing != RETROACTIVE
        width = self._store.diverts.width_of(target, is_moved=True) if is_moved else 0
        each = frame_costs.MADE_ANEW + frame_costs.FOLLOWED * width if is_moved else 0
        LOOK.has_touched = True
        for segment in queue.backlog.from_rank(queue.expiring_from):
            while queue.expiring_from < segment.rank + segment.n:
                if left <= 0:
                    return left
                left -= self._look(queue, segment, left // each + 1 if each else 0, each)
        queue.end_expiring(self._store.at.wall_ms + queue.vain_looks // LOOKS_PER_MS)
        return left

    def _look(self, queue: Queue, segment: Segment, moved_max: int, moved_work: int) -> int:
        """At the next messages, which are of a segment and alike; `moved_max`: so many may go to another address, 0: to
        none; `moved_work`: what each of these costs. Says how much work that was.
        """
        first = max(segment.rank, queue.expiring_from)
        part = segment.part(segment.start + first - segment.rank, segment.rank + segment.n - first)
        LOOK.has_touched = True
        if not 0 < segment.run.expires_ms <= self._store.at.wall_ms:
            queue.note_expiry(segment)
        elif count := queue.free_count(part):
            count = min(count, moved_max or count)
            queue.gone.append((EXPIRED, queue.backlog.take_at(first, count)))
            queue.expiring_from = first + count
            return 1 + (moved_work * count if moved_max else frame_costs.DROPPED)
        elif queue.handed_over is not None:
            part = part.part(part.start, queue.handed_over.awaited_count(part.first_id, part.n))
        queue.vain_looks += 1
        queue.expiring_from = first + part.n
        return 1
