"""The end of what is in a queue, and the end of a queue: it is unbound, and all that is in it goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.permissions import DELETE
from mqbroker.core.queue.leaving_reasons import DELETED, PURGED
from mqbroker.core.queue.queue import Queue, QueueKind

if TYPE_CHECKING:
    from mqbroker.core.store.store import Store

NOTHING: Final = Queue(QueueKind("", ""), 0)  # what is handed out of a queue that is no more


def delete(store: Store, queue: Queue) -> int:
    """See `Store.delete_queue`. Raises Refused while it is in use."""
    if queue.consumers or queue.delivering_count or queue.arriving_count:
        raise Refused("amqp:precondition-failed", f"queue {queue.kind.name!r} is in use")
    store.permit(DELETE[queue.kind.is_durable], queue.kind.address, queue.kind.name)
    dropped = queue.message_count
    if queue.journal_id:
        store.journal.drop(queue.journal_id)
    LOOK.has_touched = True
    store.remains.add(queue)
    store.paging.drop(queue, is_settled=False)
    address = store.addresses[queue.kind.address]
    address.unbind(queue)
    store.quotas.queue_gone(queue.kind, queue.made_on)
    store.quotas.look(address)
    if queue.kind.is_forwarding:
        store.remotes.gone(queue)
    elif queue.kind.is_internal:
        store.retroactive.gone(queue)
    else:
        for each in store.queue_observers:
            each.queue_removed(queue)
    if queue.alone is not None:
        queue.alone.unbind(queue)
    if address.is_empty:
        store.auto_delete.vacated(address)
    store.dead_letters.left_totals[DELETED] += dropped
    del store.queues[queue.kind.name]
    store.dirty.pop(queue, None)
    queue.is_deleted = True
    queue.dispatcher.turn_to(NOTHING)
    return dropped


def purge(store: Store, queue: Queue) -> int:
    """See `Store.purge`."""
    dropped = store.remains.purge(queue)
    paged = store.paging.drop(queue, is_settled=True).messages
    store.dead_letters.left_totals[PURGED] += paged
    return dropped + paged
