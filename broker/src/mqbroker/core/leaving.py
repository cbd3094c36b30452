"""Messages that leave a queue other than to a consumer: expired, replaced, pushed out, dead.

Expired and dead ones may go to another address, everything else is settled and gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.config.slices import AddressSettings
from mqbroker.core.address import FULLY_QUALIFIED, MULTICAST, Address, Origin
from mqbroker.core.backlog import EXPIRED, Segment
from mqbroker.core.kinds import RETROACTIVE, QueueKind
from mqbroker.core.moved import moved
from mqbroker.core.queue import Queue

if TYPE_CHECKING:
    from mqbroker.core.store import Store


class Leaving:
    """See the module's docstring."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def clear(self, queue: Queue) -> None:
        """Settle what left a queue by itself; expired messages go to the expiry address."""
        settings = self._store.settings.of(queue.kind.address)
        for why, segment in queue.take_gone():
            if why == EXPIRED and settings.expiry_address and queue.kind.routing != RETROACTIVE:
                own = settings.expiry_queue_prefix + queue.kind.address + settings.expiry_queue_suffix
                target = settings.expiry_address, own if settings.auto_create_expiry_resources else ""
                self._move(queue, segment, target, "expired")
            else:
                self._store.settle(queue, segment)

    def reject(self, queue: Queue, segment: Segment, cause: str) -> None:
        """Messages in delivery that nobody can use: to the dead-letter address, or dropped where there is none."""
        settings = self._store.settings.of(queue.kind.address)
        LOOK.has_touched = True
        queue.killed_total += segment.n
        if settings.dead_letter_address:
            own = settings.dead_letter_queue_prefix + queue.kind.address + settings.dead_letter_queue_suffix
            target = settings.dead_letter_address, own if settings.auto_create_dead_letter_resources else ""
            self._move(queue, segment, target, cause)
        else:
            self._store.settle(queue, segment)

    def astray(self, origin: str, segments: list[Segment]) -> bool:
        """Messages that reached no queue of their address: to the dead-letter address, where the settings say so.

        True: they must wait for this step's append.
        """
        settings = self._store.settings.of(origin)
        if not settings.send_to_dla_on_no_route or not settings.dead_letter_address:
            return False
        try:
            address = self._dead_letters(origin, settings)
        except Refused:
            return False
        waits = False
        for segment in segments:
            for index in range(segment.start, segment.start + segment.n):
                run = moved(segment, index, (origin, ""), "no queue of its address takes it")
                waits = self._store.publish(address, run, Origin(origin)) or waits
        return waits

    def _dead_letters(self, origin: str, settings: AddressSettings) -> Address:
        own = settings.dead_letter_queue_prefix + origin + settings.dead_letter_queue_suffix
        return self._target(
            origin, (settings.dead_letter_address, own if settings.auto_create_dead_letter_resources else "")
        )

    def _target(self, origin: str, target: tuple[str, str], queue: str = "") -> Address:
        """The address, and a queue for this origin alone if there is to be one. Raises Refused.

        `queue` is what the messages are in. Where the target is `address::queue`, that says which queue gets them.
        """
        name, own = target
        if name in (origin, f"{origin}{FULLY_QUALIFIED}{queue}"):
            raise Refused("amqp:precondition-failed", "it is there already")
        if FULLY_QUALIFIED in name:
            return self._store.target_for(name)
        if own and own not in self._store.queues:
            self._store.create_queue(QueueKind(own, name, MULTICAST, auto_created=True, moved_from=origin))
        return self._store.address_for(name)

    def _move(self, queue: Queue, segment: Segment, target: tuple[str, str], cause: str) -> None:
        """To another address, in the same append: a crash leaves them here or there, never in both or in none.

        `target`: the address, and the name of a queue for this origin alone, if there is to be one.
        """
        origin = queue.kind.address
        try:
            address = self._target(origin, target, queue.kind.name)
        except Refused:
            self._store.settle(queue, segment)
            return
        for index in range(segment.start, segment.start + segment.n):
            self._store.publish(address, moved(segment, index, (origin, queue.kind.name), cause), Origin(origin))
        self._store.settle(queue, segment)
