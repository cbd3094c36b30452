"""What is other in a queue of clients while it drains to another node, and what ends with that.

New messages do not wait here until they are due, a ring is twice as large, and a value is replaced only where it
was never sent: the other node may have an earlier one, and finds out itself which is newer. The last value of each key
is noted all the same, since one that is in delivery, or waits until it is delivered again, is told by that alone from
those that were replaced. A value with a delay goes before it is due, and counts for nothing here until the drain ends.
Source: docs/adr/0025-drain.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from mqbroker.base.look import LOOK
from mqbroker.core.queue.backlog import ID_BITS, OVERFLOWED, REPLACED, Segment
from mqbroker.core.queue.last_value import age, keyed, values

if TYPE_CHECKING:
    from mqbroker.core.queue.backlog import Backlog
    from mqbroker.core.queue.kinds import QueueKind
    from mqbroker.core.queue.unanswered_forwards import HandedOver

ID_END: Final = 1 << ID_BITS  # above the ids of all messages
OVERFLOWED_MAX: Final = 100  # pieces that leave a ring at once; the rest follows by turns


class QueueThatDrains(Protocol):
    """What is asked of the queue here (core/queue/queue.py has all of it)."""

    kind: QueueKind
    backlog: Backlog
    handed_over: HandedOver | None
    scheduled: list[tuple[int, int, Segment]]
    scheduled_count: int
    gone: list[tuple[str, Segment]]
    last_values: dict[str, Segment]

    def schedule(self, segment: Segment, due_ms: int) -> None:
        """The messages of the segment wait until `due_ms`, in ms since 1970."""

    def free_count(self, segment: Segment) -> int:
        """How many of these no other node may have."""

    def is_last(self, key: str, segment: Segment) -> bool:
        """Whether it is the last value of its key."""

    def overflow(self, count_max: int) -> int:
        """What is beyond the size of a ring goes, so many pieces at most."""


def begin(queue: QueueThatDrains) -> None:
    """It drains from now on. Values that are to be delivered again, and were replaced since, go: none is behind them
    later that says so."""
    LOOK.has_touched = True
    waiting, queue.scheduled, queue.scheduled_count = queue.scheduled, [], 0
    for due_ms, _, segment in waiting:
        for key, piece in keyed(queue.kind, segment) if queue.kind.last_value else (("", segment),):
            if due_ms != segment.run.deliver_at_ms and is_stale(queue, key, piece):
                queue.gone.append((REPLACED, piece))
            else:
                queue.schedule(piece, due_ms)


def arrived(queue: QueueThatDrains, key: str, piece: Segment) -> None:
    """A value has come, which is one message. It replaces the one before if the other node cannot have that."""
    if piece.run.deliver_at_ms:
        return
    LOOK.has_touched = True
    old = queue.last_values.get(key)
    queue.last_values[key] = piece
    if old is not None and queue.backlog.has(old.rank) and queue.free_count(old):
        queue.gone.append((REPLACED, queue.backlog.take_at(old.rank, 1)))


def is_stale(queue: QueueThatDrains, key: str, piece: Segment) -> bool:
    """Whether a message that was in delivery, or was to be delivered again, is an earlier value that may go."""
    if not key or queue.is_last(key, piece):
        return False
    is_free = not piece.run.deliver_at_ms and queue.free_count(piece) == piece.n
    return is_free or not queue.kind.is_draining


def push_out(queue: QueueThatDrains, count_max: int) -> int:
    """What is beyond twice the size of a ring goes, oldest first, at most so many pieces; says how many.

    The drain may be stuck for long. What comes before the last message that the other node may have stays, so that a
    look is short.
    """
    handed_over, count = queue.handed_over, 0
    excess = queue.backlog.count - 2 * queue.kind.ring_size if queue.kind.ring_size >= 0 else 0
    LOOK.has_touched = True
    while handed_over is not None and excess > 0 and count < count_max:
        first_id = handed_over.free_from
        segment = next(queue.backlog.of_ids(first_id, ID_END), None)
        if segment is None:
            break
        skip = max(first_id - segment.first_id, 0)
        taken = queue.backlog.take_at(segment.rank + skip, min(segment.n - skip, excess))
        excess -= taken.n
        count += 1
        queue.gone.append((OVERFLOWED, taken))
    return count


def end(queue: QueueThatDrains, now_ms: int) -> None:
    """It drains no more: earlier values, and what is beyond the size of a ring, go again; what is not due waits."""
    LOOK.has_touched = True
    for segment in [each for each in queue.backlog if each.run.deliver_at_ms > now_ms]:
        queue.schedule(queue.backlog.take_at(segment.rank, segment.n), segment.run.deliver_at_ms)
    if queue.kind.last_value:
        _keep_last(queue)
    queue.overflow(OVERFLOWED_MAX)


def _keep_last(queue: QueueThatDrains) -> None:
    """Of each key. What is to be delivered again is asked when its time comes."""
    held, unknown = queue.last_values, set()
    LOOK.has_touched = True
    lying = [(key, piece) for each in queue.backlog for key, piece in values(queue.kind, each) if key]
    again = [segment for due_ms, _, segment in queue.scheduled if due_ms != segment.run.deliver_at_ms]
    awaiting = [(key, piece) for each in again for key, piece in values(queue.kind, each) if key]
    for key, piece in (*lying, *awaiting):
        last = held.get(key)
        if last is None:
            unknown.add(key)
        if last is None or ((key in unknown or piece.run.deliver_at_ms) and age(last) < age(piece)):
            held[key] = piece
    old = [piece for key, piece in lying if not queue.is_last(key, piece)]
    queue.gone += [(REPLACED, queue.backlog.take_at(piece.rank, 1)) for piece in old]
