"""Who consumes from a queue comes and goes: what else hears of it, what that ends, and when nobody gets anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.core.address.deletion import purge

if TYPE_CHECKING:
    from mqbroker.core.queue.queue import Consumer, Queue
    from mqbroker.core.store.store import Store


def join(store: Store, queue: Queue, consumer: Consumer) -> None:
    """See `Store.join`."""
    delay_ms = queue.kind.delay_before_dispatch_ms
    is_first = not consumer.is_browser and not queue.takers_count
    LOOK.has_touched = True
    if is_first and delay_ms >= 0 and queue.kind.consumers_before_dispatch:
        queue.dispatcher.gate_ms = store.at.wall_ms + delay_ms
        store.watch(queue)
    queue.is_used = True
    queue.join(consumer)
    store.dirty[queue] = None
    if not consumer.is_browser and not queue.kind.is_forwarding:
        for each in store.queue_observers:
            each.consumer_joined(queue, consumer)
        store.redistribution.look(queue)


def leave(store: Store, queue: Queue, consumer: Consumer) -> None:
    """See `Store.leave`."""
    LOOK.has_touched = True
    queue.leave(consumer)
    store.dirty[queue] = None
    if not consumer.is_browser and not queue.kind.is_forwarding:
        for each in store.queue_observers:
            each.consumer_left(queue, consumer)
        store.redistribution.look(queue)
        if queue.kind.purge_on_no_consumers and not queue.takers_count:
            purge(store, queue)
    if not queue.consumers:
        store.auto_delete.left(queue)
        store.look_at_end(queue)


def pause(store: Store, queue: Queue, *, is_paused: bool) -> None:
    """Hand out nothing from this queue, or again; a durable queue stays so over restarts."""
    LOOK.has_touched = True
    queue.kind = replace(queue.kind, paused=is_paused)
    queue.is_paused = is_paused or store.addresses[queue.kind.address].is_paused
    if queue.journal_id:
        store.journal.declare(queue.journal_id, queue.kind.encoded())
    store.changed(queue)
