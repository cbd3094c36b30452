"""Steps of the wall clock: somebody set it, or it was corrected by more than a moment.

What people name as a time of day goes by the clock, whatever it says: expiry, and the delivery time of a message.
What is a duration goes on as if nothing had happened: the delay of a message and of a redelivery, the time that a queue
is idle or waits for consumers. Else a clock that is set back by an hour would hold them all for an hour. What is on
disk keeps the times that it was written with.
"""

from __future__ import annotations

from heapq import heapify
from typing import TYPE_CHECKING, Final

from mqbroker.base.time import NS_PER_MS, At

if TYPE_CHECKING:
    from mqbroker.core.queue.queue import Queue
    from mqbroker.core.store.store import Store
    from mqbroker.wire.run import Run

STEP_MS_MIN: Final = 1000  # what a clock drifts or is slewed meanwhile is too little to matter


def take_time(store: Store, at: At) -> None:
    """A step of the node begins."""
    step_ms = _offset_ms(at) - _offset_ms(store.at)
    before_ms = store.at.wall_ms
    store.at = at
    if -STEP_MS_MIN < step_ms < STEP_MS_MIN:
        return
    delayed: dict[Run, None] = {}
    for queue in store.queues.values():
        _shift(queue, step_ms, delayed, before_ms)
        store.watch(queue)
    for run in delayed:
        run.deliver_at_ms += step_ms


def _shift(queue: Queue, step_ms: int, delayed: dict[Run, None], before_ms: int) -> None:
    """Durations of a queue; `delayed` gathers the runs that have a delay, which may be in several queues. `before_ms`:
    what the clock said before the step."""
    if queue.idle_until_ms:
        queue.idle_until_ms += step_ms
    if queue.rested_ms:
        queue.rested_ms += step_ms
    if queue.dispatcher.gate_ms:
        queue.dispatcher.gate_ms += step_ms
    for place, (due_ms, rank, segment) in enumerate(queue.scheduled):
        run = segment.run
        if due_ms != run.deliver_at_ms or run.traits.delay_ms:
            queue.scheduled[place] = (due_ms + step_ms, rank, segment)
        if due_ms == run.deliver_at_ms and run.traits.delay_ms:
            delayed[run] = None
    heapify(queue.scheduled)
    queue.is_in_order = False
    for segment in queue.waiting:
        if segment.run.traits.delay_ms:
            delayed[segment.run] = None
    # A queue that drains has what waits for its time among what goes; runs that are due say no more of a delay.
    for segment in queue.backlog if queue.kind.is_draining else ():
        if segment.run.traits.delay_ms and segment.run.deliver_at_ms > before_ms:
            delayed[segment.run] = None


def _offset_ms(at: At) -> int:
    return at.wall_ms - at.monotonic_ns // NS_PER_MS
