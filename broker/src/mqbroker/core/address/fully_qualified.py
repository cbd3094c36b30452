"""Fully qualified names, `address::queue`: one queue of an address, for those who consume from it or send to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.address import ANYCAST, FULLY_QUALIFIED, MULTICAST, Address
from mqbroker.core.address.permissions import BROKER, Actor, may_see
from mqbroker.core.address.routing_demands import ANY, ROUTINGS, WAYS, find_aside, there_at
from mqbroker.core.address.settings import MoveTarget, queue_of_origin
from mqbroker.core.address.wildcard_names import check_is_one
from mqbroker.core.queue.kinds import TEMPORARY_PREFIX, check_is_public, kind_of

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.queue.queue import Queue

NAMED_MAX: Final = 5  # queues that an error names


def queue_at(store: AddressStore, address: str, name: str, actor: Actor | None, routing: str = "") -> Queue:
    """The queue, made where that is allowed. Raises Refused.

    `routing` is what whoever asks wants of a new one; where that is empty the address decides. One for what is moved
    from an address alone is that whoever makes it, as those of that name elsewhere are: else it would get all that is
    moved there.
    """
    queue = store.queues.get(name)
    if queue is not None:
        if queue.kind.address != address:
            own = (
                f"address {queue.kind.address!r}"
                if may_see(store.permit, actor, queue.kind.address)
                else "another address"
            )
            why = f"queue {name!r} belongs to {own}, not to {address!r}"
            raise Refused("amqp:precondition-failed", why)
        check_is_public(queue.kind)
        return queue
    store.settings.check_creation(address, name, is_new=address not in store.addresses)
    if moved_from := store.settings.origin_of(address, name) or _origin_elsewhere(store, address, name):
        return store.create_queue(queue_of_origin(MoveTarget(address, name), moved_from), actor)
    routing = routing or (MULTICAST if store.is_multicast(address) else ANYCAST)
    kind = kind_of(name, address, store.settings.of(address), routing=routing, auto_created=True)
    return store.create_queue(kind, actor)


def _origin_elsewhere(store: AddressStore, address: str, name: str) -> str:
    """The address from which queues of this name take what is moved, at all nodes that have one; empty: any, or none
    has one."""
    whole = store.addresses.get(address)
    bindings = None if whole is None else whole.cluster_bindings
    return "" if bindings is None else bindings.origin_of(name)


def queue_here(store: AddressStore, target: str) -> Queue:
    """The queue that its name, its address or `address::queue` leads to; none is made. Raises Refused."""
    address, mark, name = target.partition(FULLY_QUALIFIED)
    whole = store.addresses.get(target)
    if target in store.queues or (whole is not None and whole.anycast):
        return store.queue_for(target, BROKER)
    if mark and name in store.queues:
        return queue_at(store, address, name, BROKER)
    if mark:
        raise Refused("amqp:not-found", f"address {address!r} has no queue {name!r} on this node")
    if whole is None:
        raise Refused("amqp:not-found", f"no queue and no address is called {target!r} on this node")
    if not whole.multicast:
        raise Refused("amqp:not-found", f"address {target!r} has no queue on this node")
    names = ", ".join(repr(queue.kind.name) for queue in whole.multicast[:NAMED_MAX])
    more = f" and {len(whole.multicast) - NAMED_MAX} more" if len(whole.multicast) > NAMED_MAX else ""
    raise Refused("amqp:not-found", f"address {target!r} gives each of its queues a copy; name one: {names}{more}")


def alone_at(store: AddressStore, address: str, name: str, actor: Actor | None, routing: str = "") -> Address:
    """For those who send to one queue of an address: an address that leads there alone. Raises Refused."""
    queue = queue_at(store, address, name, actor, routing)
    alone: Address | None = queue.alone
    LOOK.has_touched = True
    if alone is None:
        alone = queue.alone = store.addresses[address].alone(name)
        alone.bind(queue)
    return alone


def target_at(store: AddressStore, target: str, actor: Actor | None, wanted: str = ANY) -> Address:
    """Where messages go that name their target, an address or `address::queue`. Raises Refused.

    `wanted`: what whoever sends wants there, as in routing_demands.py.
    """
    address, mark, queue = target.partition(FULLY_QUALIFIED)
    if mark:
        return alone_at(store, address, queue, actor, ROUTINGS[wanted])
    check_is_one(address)
    whole = store.addresses.get(address)
    step = WAYS[wanted][there_at(store, whole, wanted)]
    if ROUTINGS[wanted] == MULTICAST:
        return _topic_at(store, address, actor, is_alone=wanted == MULTICAST)
    if whole is not None and whole.goes_elsewhere and address.startswith(TEMPORARY_PREFIX):
        return whole  # a reply: nobody would ever use, or end, a queue of that name here
    try:
        return store.address_for(address, actor, anycast=ANYCAST in (wanted, step))
    except Refused as refused:
        if whole is None:
            raise
        # Who has no permission, or no room, for a queue is told; a way beside one is for those who are not to make any.
        may_be_aside = refused.condition == "amqp:not-found"
        if not whole.goes_elsewhere and not (may_be_aside and find_aside(store, wanted, whole)):
            raise  # also where another node has it and gets nothing that is sent here
        return whole


def _topic_at(store: AddressStore, name: str, actor: Actor | None, *, is_alone: bool) -> Address:
    """The address of who sends to a topic; it becomes one only where nobody else sends there, who may want a queue."""
    whole = store.addresses.get(name)
    was_topic = whole is not None and whole.is_topic
    address = store.make_address(name, actor)
    LOOK.has_touched = True
    if not is_alone:
        address.is_topic = was_topic
    return address
