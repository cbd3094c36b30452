"""What a new queue has to be: whoever wants one may have it, and nothing stands in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.errors import Refused
from mqbroker.core.kinds import QueueKind, check_name
from mqbroker.core.permissions import CREATE, CREATE_ADDRESS
from mqbroker.core.selector import compile_selector

if TYPE_CHECKING:
    from mqbroker.core.store import Store


def check_new(store: Store, kind: QueueKind) -> None:
    """Whether a client or an administrator gets this queue. Raises Refused."""
    check_name("name", kind.name)
    check_name("address", kind.address)
    if kind.name in store.queues:
        raise Refused("amqp:precondition-failed", f"queue {kind.name!r} exists")
    if len(store.queues) >= store.limits.queues_max:
        raise Refused("amqp:resource-limit-exceeded", f"there are {len(store.queues)} queues, which is queues-max")
    if kind.selector:
        compile_selector(kind.selector)
    store.declared.check(kind.address, kind.routing)
    if kind.address not in store.addresses:
        store.permit(CREATE_ADDRESS, kind.address)
    store.permit(CREATE[kind.is_durable], kind.address)
