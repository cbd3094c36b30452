"""What a new queue or address has to be: whoever wants one may have it, and nothing stands in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.address.permissions import CREATE, CREATE_ADDRESS
from mqbroker.core.address.quotas import ADDRESSES, QUEUES, maker_for
from mqbroker.core.queue.kinds import QueueKind, check_name
from mqbroker.core.selector.selector import compile_selector

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address
    from mqbroker.core.address.permissions import Actor
    from mqbroker.core.store.store import Store


def check_new(store: Store, kind: QueueKind, actor: Actor | None) -> None:
    """Whether a client, an administrator or the broker gets this queue. Raises Refused."""
    check_name("name", kind.name)
    check_name("address", kind.address)
    if kind.name in store.queues:
        raise Refused("amqp:precondition-failed", f"queue {kind.name!r} exists")
    if len(store.queues) >= store.limits.queues_max:
        raise Refused("amqp:resource-limit-exceeded", f"there are {len(store.queues)} queues, which is queues-max")
    if kind.selector:
        compile_selector(kind.selector)
    store.address_records.check(kind.address, kind.routing)
    if kind.address not in store.addresses:
        store.permit(actor, CREATE_ADDRESS, kind.address)
        store.quotas.check(ADDRESSES, actor)
        store.wildcards.check(kind.address)
    store.permit(actor, CREATE[kind.is_durable], kind.address)
    store.quotas.check(QUEUES, actor)


def check_addresses(store: Store, actor: Actor | None) -> None:
    """Whether there may be one address more. Raises Refused."""
    if len(store.addresses) >= store.limits.queues_max:
        raise Refused("amqp:resource-limit-exceeded", f"there are {len(store.addresses)} addresses: queues-max")
    store.quotas.check(ADDRESSES, actor)


def make_address(store: Store, name: str, actor: Actor | None, *, is_temporary: bool = False) -> Address:
    """See `Store.make_address`."""
    check_name("address", name)
    found = store.addresses.get(name)
    LOOK.has_touched = True
    if found is None:
        if not is_temporary:
            store.settings.check_creation(name)
        store.permit(actor, CREATE_ADDRESS, name)
        check_addresses(store, actor)
        store.wildcards.check(name)
        found = store.add_address(name, maker_for(actor))
        found.is_topic = True
        store.auto_delete.vacated(found)
    else:
        store.address_records.check(name, MULTICAST)
        found.is_topic = found.is_topic or found.is_empty
    return found
