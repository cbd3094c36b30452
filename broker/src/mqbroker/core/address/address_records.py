"""Addresses of which a person said something: that they are there, what their queues may be, that they pause.

All of it is in the journal, so it holds after a restart, with queues or without. Such an address is never deleted by
itself. A pause of an address is a thing of its own: it holds for all queues there, also for those that come later, and
its end leaves those paused that were paused by themselves. Source: Artemis's management operations createAddress,
deleteAddress, and pause and resume of an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.address import ANYCAST, FULLY_QUALIFIED, MULTICAST, Address
from mqbroker.core.address.permissions import BROKER, Actor
from mqbroker.core.address.quotas import ADDRESSES
from mqbroker.core.address.stored_tables import unreadable
from mqbroker.core.queue.kinds import check_name

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.address.auto_delete import AutoDelete
    from mqbroker.journal.recovered import Recovered

ROUTING_TYPES = (ANYCAST, MULTICAST)


class AddressRecords:
    """See the module's docstring."""

    def __init__(self, store: AddressStore, auto_delete: AutoDelete) -> None:
        self._store = store
        self._auto_delete = auto_delete

    def create(self, name: str, routing_types: tuple[str, ...]) -> Address:
        """Make an address without a queue; on disk with this step's append. Raises Refused."""
        store = self._store
        check_name("address", name)
        if FULLY_QUALIFIED in name:
            raise Refused("amqp:invalid-field", f"{name!r} is the name of a queue at an address, not of an address")
        if name in store.addresses:
            raise Refused("amqp:precondition-failed", f"address {name!r} exists")
        self.check_count(BROKER)
        address = store.add_address(name)
        self._say(address, routing_types)
        self._record(address)
        return address

    def configure(self, name: str, routing_types: tuple[str, ...]) -> None:
        """The file of options declares an address: it is there, and its queues may be of these types, and of those
        that it has. None: nothing is said of that. Raises Refused."""
        store = self._store
        check_name("address", name)
        address = store.addresses.get(name)
        if address is None:
            self.check_count(BROKER)
            address = store.add_address(name)
        before = _attributes_of(address)
        LOOK.has_touched = True
        address.is_configured = True
        if routing_types:
            bound = {queue.kind.routing for queue in address.queues}
            self._say(address, tuple(each for each in ROUTING_TYPES if each in routing_types or each in bound))
        if _attributes_of(address) != before:
            self._record(address)
        store.quotas.disown(address)

    def adopt(self, address: Address) -> None:
        """Another node, whose queue is here now, says that somebody made its address: where nothing was said here it is
        kept here too, for any type. Who is served here, and the node that drains here next, was told of no fewer."""
        if not _attributes_of(address):
            self._say(address, ROUTING_TYPES)
            self._record(address)

    def delete(self, address: Address) -> bool:
        """Forget an address, to which no queue is bound that clients know; whether the journal was told."""
        was_recorded = bool(_attributes_of(address))
        rings = [each for each in address.rings if not each.kind.is_draining]  # what moves is for who comes elsewhere
        is_told = was_recorded or bool(rings)
        for ring in rings:
            self._store.delete_queue(ring, BROKER)
        LOOK.has_touched = True
        address.routing_types, address.is_paused, address.is_pause_kept = (), False, False
        address.is_configured = False
        if was_recorded:
            self._store.journal.drop_address(address.name)
        self._store.forget_address(address.name)
        return is_told

    def pause(self, address: Address, is_paused: bool, *, is_kept: bool) -> bool:
        """Hand out nothing from the queues there, or again. `is_kept`: also after a restart.

        Says whether the journal was told, so that an answer has to wait for it.
        """
        before = _attributes_of(address)
        LOOK.has_touched = True
        address.is_paused = is_paused
        address.is_pause_kept = is_paused and is_kept
        for queue in address.queues:
            queue.is_paused = is_paused or queue.kind.paused
            self._store.changed(queue)
        is_told = _attributes_of(address) != before
        if is_told:
            self._record(address)
        if address.is_empty:
            self._auto_delete.vacated(address)
        return is_told

    def check_count(self, actor: Actor | None) -> None:
        """Whether there may be one address more. Raises Refused."""
        store = self._store
        if len(store.addresses) >= store.limits.queues_max:
            raise Refused("amqp:resource-limit-exceeded", f"there are {len(store.addresses)} addresses: queues-max")
        store.quotas.check(ADDRESSES, actor)

    def check(self, name: str, routing: str) -> None:
        """Whether a queue of this routing type may be at an address. Raises Refused."""
        address = self._store.addresses.get(name)
        if address is not None and address.routing_types and routing not in address.routing_types:
            why = f"address {name!r} was made for {' and '.join(address.routing_types)} queues, not for {routing} ones"
            raise Refused("amqp:not-allowed", why)

    def routing_of(self, name: str) -> str:
        """What an address without queues does where nobody says: its one type, or what the settings say."""
        address = self._store.addresses.get(name)
        if address is not None and len(address.routing_types) == 1:
            return address.routing_types[0]
        return self._store.settings.of(name).default_address_routing_type.lower()

    def load(self, recovered: Recovered) -> None:
        """Take over what recovery found; before the queues, which pause with their address. Raises StorageFault."""
        for name, attributes in said_in(recovered):
            address = self._store.add_address(name)
            self._say(address, tuple(attributes.get("routing_types", ())))
            address.is_paused = address.is_pause_kept = bool(attributes.get("paused", False))
            address.is_configured = bool(attributes.get("configured", False))

    @staticmethod
    def _say(address: Address, routing_types: tuple[str, ...]) -> None:
        LOOK.has_touched = True
        address.routing_types = routing_types
        address.is_topic = routing_types == (MULTICAST,)

    def _record(self, address: Address) -> None:
        self._store.quotas.disown(address)
        attributes = _attributes_of(address)
        if attributes:
            self._store.journal.declare_address(address.name, attributes)
        else:
            self._store.journal.drop_address(address.name)


def said_in(recovered: Recovered) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was said of addresses. Raises StorageFault."""
    for name, attributes in recovered.addresses.items():
        try:
            check_attributes(attributes)
        except ValueError as error:
            raise unreadable(f"address {name!r}", str(error)) from None
        yield name, attributes


def told_of(address: Address) -> dict[str, Any]:
    """What goes along with its queues to another node: that somebody made it. Not that a file of options declares it
    here, as another one does there; and no pause: its queues that are made there are paused, each by itself."""
    return {} if address.is_configured or not address.routing_types else {"routing_types": list(address.routing_types)}


def check_attributes(attributes: dict[str, Any]) -> None:
    """Whether a broker could load this. Raises ValueError."""
    routing_types = attributes.get("routing_types", [])
    is_known = isinstance(routing_types, list) and all(each in ROUTING_TYPES for each in routing_types)
    are_flags = all(isinstance(attributes.get(name, False), bool) for name in ("paused", "configured"))
    if not is_known or not are_flags or set(attributes) - {"routing_types", "paused", "configured"}:
        raise ValueError(f"attributes of an address: {attributes}")


def _attributes_of(address: Address) -> dict[str, Any]:
    """What the journal keeps; empty where there is nothing to be kept."""
    said: dict[str, Any] = {}
    if address.routing_types:
        said["routing_types"] = list(address.routing_types)
    if address.is_pause_kept:
        said["paused"] = True
    if address.is_configured:
        said["configured"] = True
    return said
