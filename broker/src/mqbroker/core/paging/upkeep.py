"""What is done a piece at a time, beside the messages: compaction of the journal, and the sweep of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mqbroker.core.queue.compaction import Live, store_again

if TYPE_CHECKING:
    from mqbroker.core.paging.paging_store import PagingStore


def live_of_ids(store: PagingStore, ranges: list[tuple[int, int]], *, is_stored: bool = True) -> Iterator[Live]:
    """At least what is not settled of these (first id, count), and in memory. `is_stored`: that the journal knows."""
    low, high = min(first for first, _ in ranges), max(first + count for first, count in ranges)
    for queue in store.queues.values():
        if (is_stored and not queue.journal_id) or not queue.has_any_of(low, high):
            continue
        for segment, due_ms in queue.segments_of(low, high):
            yield Live(queue, segment, due_ms)
    for queue, segment in store.remains.live_of_ids(low, high):
        yield Live(queue, segment)
    for queue, segment in store.in_delivery():
        yield Live(queue, segment)


def upkeep(store: PagingStore) -> bool:
    """One bounded piece of both; whether there may be more."""
    if store.paging.queues or store.paging.moves.is_unfinished:
        more = store.paging.moves.upkeep()
    else:
        ranges = store.journal.compactable()
        more = bool(ranges)
        if ranges:
            store_again(store.journal, ranges, live_of_ids(store, ranges))
    if store.memory.is_sweep_due():
        _sweep(store)
        more = store.memory.is_sweep_due() or more
    return more


def _sweep(store: PagingStore) -> None:
    runs = store.memory.next_swept()
    if runs:
        live = live_of_ids(store, [(run.first_id, run.count) for run in runs], is_stored=False)
        store.memory.sweep(runs, ((one.segment.run, one.segment.start, one.segment.n) for one in live))
