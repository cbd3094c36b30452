"""Queues and addresses that nobody uses any more, and when they are deleted by themselves.

A queue that was made by itself goes once it had a consumer, has none, and is empty enough; so does one that somebody
made where `auto-delete-created-queues` says so. One that is paused by itself stays while it is, so that its pause does.
An address goes when no queue is bound to it and, where it gives copies, no producer is attached either: those of a
shared queue make it again by sending, those of a topic would not. Both wait for their delay, and at least as long as
Artemis takes to look, so that a client that comes back at once finds what it left. Only the address of a shared queue
does not wait again after its queue, unless it has a delay of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mqbroker.amqp import frame_costs
from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.permissions import BROKER

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.queue.queue import Queue

IDLE_MS_MIN: Final = 30_000


class AutoDelete:
    """See the module's docstring."""

    def __init__(self, store: AddressStore) -> None:
        self._store = store

    # -- queues --------------------------------------------------------------------------------------------------------

    def left(self, queue: Queue, *, before_ms: int = 0) -> None:
        """The last consumer of a queue is gone. `before_ms`: it was already, and this was to be the end."""
        store = self._store
        settings = store.settings.of(queue.kind.address)
        LOOK.has_touched = True
        if self._may_go(queue):
            until_ms = store.at.wall_ms + max(settings.auto_delete_queues_delay, IDLE_MS_MIN)
            queue.idle_until_ms = min(before_ms or until_ms, until_ms)
            store.watch(queue)

    def drained(self, queue: Queue) -> None:
        """Messages left a queue that nobody consumes from: they expired, or a person took them out."""
        if queue.is_used and not queue.idle_until_ms:
            self.left(queue)

    def settings_changed(self) -> Iterator[int]:
        """Queues and addresses that were to stay may go now, or sooner; their time counts from now on at the latest.

        Each is a piece, and yields what it cost, in units of amqp/frame_costs.py.
        """
        for queue in list(self._store.queues.values()):
            if queue.is_used and not queue.consumers and not queue.is_deleted:
                self.left(queue, before_ms=queue.idle_until_ms)
            yield frame_costs.LOOKED_AT
        for address in list(self._store.addresses.values()):
            if address.is_empty and not address.due_ns:
                self.vacated(address)
            yield frame_costs.LOOKED_AT

    def restored(self, queue: Queue) -> None:
        """A queue of an earlier run of the process, in which it was used as far as anybody knows."""
        queue.is_used = True
        self.left(queue)

    def look(self, queue: Queue) -> None:
        """A time has come that mattered to the queue, and what was due of its messages is done."""
        store = self._store
        store.changed(queue)  # first, because what has just left is not gone with the queue: it goes where it is to
        if 0 < queue.idle_until_ms <= store.at.wall_ms:
            self.queue_due(queue)
        if not queue.is_deleted:
            store.watch(queue)

    def queue_due(self, queue: Queue) -> None:
        """The queue has been idle for long enough, unless somebody has come."""
        LOOK.has_touched = True
        queue.idle_until_ms = 0
        settings = self._store.settings.of(queue.kind.address)
        allowed = settings.auto_delete_queues_message_count
        is_unused = not queue.consumers and not queue.arriving_count and not queue.delivering_count
        if is_unused and self._may_go(queue) and (allowed < 0 or queue.message_count <= allowed):
            self._store.delete_queue(queue, BROKER)

    def _may_go(self, queue: Queue) -> bool:
        """Whether a queue of this kind goes by itself. What the file of options declares does not, nor what somebody
        paused: the one that is made next would hand out what was to stand."""
        if queue.kind.is_internal or queue.kind.is_draining or queue.kind.paused:
            return False
        settings = self._store.settings.of(queue.kind.address)
        if queue.kind.auto_created:
            return settings.auto_delete_queues
        return settings.auto_delete_created_queues and not queue.kind.configured and not self._store.ends_itself(queue)

    # -- addresses -----------------------------------------------------------------------------------------------------

    def vacated(self, address: Address) -> None:
        """An address has no queues, or lost a producer: it may be that nobody uses it."""
        store = self._store
        settings = store.settings.of(address.name)
        if not settings.auto_delete_addresses or not self._is_unused(address):
            return
        if not address.is_topic and not settings.auto_delete_addresses_delay:
            store.forget_address(address.name)
            return
        delay_ms = max(settings.auto_delete_addresses_delay, IDLE_MS_MIN)
        LOOK.has_touched = True
        address.due_ns = store.at.monotonic_ns + delay_ms * NS_PER_MS
        store.schedule(address)

    def address_due(self, address: Address) -> None:
        """The address has been idle for long enough, unless somebody has come or nobody ever was there."""
        settings = self._store.settings.of(address.name)
        is_deletable = address.was_bound or settings.auto_delete_addresses_skip_usage_check
        if settings.auto_delete_addresses and is_deletable and self._is_unused(address):
            self._store.forget_address(address.name)

    def _is_unused(self, address: Address) -> bool:
        is_there = self._store.addresses.get(address.name) is address
        is_free = address.is_empty and not address.rings  # what is kept for later waits for somebody to come
        return is_there and is_free and not (address.is_topic and address.producers_count)

    def attached(self, address: Address) -> None:
        """A producer has come to the address, which stays while it is there."""
        LOOK.has_touched = True
        address.producers_count += 1

    def detached(self, address: Address) -> None:
        """A producer has gone from the address, which goes where nobody else uses it."""
        LOOK.has_touched = True
        address.producers_count -= 1
        self.vacated(address)
