"""From what recovery found to queues with messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mqbroker.core.paging.recorded_messages import messages_in
from mqbroker.core.queue.backlog import Segment
from mqbroker.journal.message_records import RANGE_COUNT_MAX
from mqbroker.journal.recovered import Recovered

if TYPE_CHECKING:
    from mqbroker.core.paging.paging_store import PagingStore
    from mqbroker.core.queue.queue import Queue

Range = tuple[int, int, int, int, int]  # queue id, first id, count, delivery count, due


def bring_back(store: PagingStore, recovered: Recovered, by_id: dict[int, Queue], files: Mapping[int, int]) -> None:
    """Give the queues, by their ids in the journal, what recovery found. Raises StorageFault.

    `files`: id -> bytes of all files of large messages.
    """
    suspect: Range | None = None
    store.remotes.restored()
    for queue_id, messages, is_suspect in messages_in(recovered, store.at.wall_ms):
        queue, piece, large = by_id[queue_id], messages.piece, messages.large_run()
        if large is not None and not store.large.keep_whole(large, files, queue_id):
            continue
        if piece is not None and (messages.is_left or store.paging.keeps_out(queue)):
            store.paging.restore(queue, piece, messages.due_ms)
            if large is not None:
                store.paging.files.hold(large, 1, is_stored=True)
        else:
            _into_memory(store, queue, messages.segment(), messages.due_ms)
        for each in store.message_observers:
            each.messages_restored(queue, messages.first_id, messages.count)
        if is_suspect:
            here = queue_id, messages.first_id, messages.count, messages.deliveries, messages.due_ms
            suspect = _suspected(store, suspect, here)
    _suspected(store, suspect, None)
    for queue in by_id.values():
        store.changed(queue)


def _into_memory(store: PagingStore, queue: Queue, segment: Segment, due_ms: int) -> None:
    run = segment.run
    store.set_times(queue, run)
    store.hold_again(queue, segment)
    store.large.stored(run)
    if run.traits.group_id:
        queue.dispatcher.grouped()
    due_ms = max(run.deliver_at_ms, due_ms)
    if due_ms > store.at.wall_ms and not queue.kind.is_internal:
        queue.add_scheduled(segment, due_ms)
    else:
        queue.add(segment)


def _suspected(store: PagingStore, before: Range | None, after: Range | None) -> Range | None:
    """Write down what may have been delivered: the next crash may come before the queue has a consumer again.

    Ranges of one queue come in the order of ids; what lies between them is not in the queue.
    """
    if before is not None and after is not None and before[0] == after[0] and before[3:] == after[3:]:
        count = after[1] + after[2] - before[1]
        if count <= RANGE_COUNT_MAX:
            return before[0], before[1], count, before[3], before[4]
    if before is not None:
        store.journal.count(*before)
    return after
