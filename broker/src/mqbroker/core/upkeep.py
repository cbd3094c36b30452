"""What is done a piece at a time, beside the messages: compaction of the journal, and the sweep of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mqbroker.core.compaction import Live, store_again
from mqbroker.core.queue import Queue, Segment

if TYPE_CHECKING:
    from mqbroker.core.store import Store


def live_segments(store: Store) -> Iterator[tuple[Queue, Segment]]:
    """Everything that is not settled."""
    for queue in store.queues.values():
        for segment in queue.segments():
            yield queue, segment
    yield from store.in_delivery()


def live_of_ids(store: Store, ranges: list[tuple[int, int]]) -> Iterator[Live]:
    """At least what is not settled of these (first id, count), and in memory."""
    low, high = min(first for first, _ in ranges), max(first + count for first, count in ranges)
    for queue in store.queues.values():
        for segment, due_ms in queue.segments_of(low, high):
            yield Live(queue, segment, due_ms)
    for queue, segment in store.in_delivery():
        yield Live(queue, segment)


def upkeep(store: Store) -> bool:
    """One bounded piece of both; whether there may be more."""
    if store.paging.queues or store.paging.moves.is_unfinished:
        more = store.paging.moves.upkeep()
    else:
        ranges = store.journal.compactable()
        more = bool(ranges)
        if ranges:
            store_again(store.journal, ranges, live_of_ids(store, ranges))
    if store.memory.is_sweep_due():
        store.memory.sweep((segment.run, segment.start, segment.n) for _, segment in live_segments(store))
    return more
