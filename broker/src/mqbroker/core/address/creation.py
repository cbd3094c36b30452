"""What a new queue or address has to be: whoever wants one may have it, and nothing stands in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.address.address_records import AddressRecords
from mqbroker.core.address.auto_delete import AutoDelete
from mqbroker.core.address.permissions import BROKER, CREATE, CREATE_ADDRESS
from mqbroker.core.address.quotas import ADDRESSES, QUEUES, maker_for
from mqbroker.core.address.wildcards import Wildcards
from mqbroker.core.queue.kinds import QueueKind, check_name
from mqbroker.core.selector.selector import compile_selector

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.address.permissions import Actor


class Creation:
    """See the module's docstring."""

    def __init__(
        self, store: AddressStore, records: AddressRecords, auto_delete: AutoDelete, wildcards: Wildcards
    ) -> None:
        self._store = store
        self._records = records
        self._auto_delete = auto_delete
        self._wildcards = wildcards

    def check_queue(self, kind: QueueKind, actor: Actor | None) -> None:
        """Whether a client, an administrator or the broker gets this queue. Raises Refused."""
        store = self._store
        check_name("name", kind.name)
        check_name("address", kind.address)
        if kind.name in store.queues:
            raise Refused("amqp:precondition-failed", f"queue {kind.name!r} exists")
        self._check_count()
        if kind.selector:
            compile_selector(kind.selector)
        self._records.check(kind.address, kind.routing)
        if kind.address not in store.addresses:
            store.permit(actor, CREATE_ADDRESS, kind.address)
            store.quotas.check(ADDRESSES, actor)
            self._wildcards.check(kind.address)
        store.permit(actor, CREATE[kind.is_durable], kind.address)
        store.quotas.check(QUEUES, actor)

    def check_ring(self, kind: QueueKind) -> None:
        """Whether there is room for what another node keeps for later queues of an address. Raises Refused."""
        store = self._store
        check_name("address", kind.address)
        self._check_count()
        if kind.address not in store.addresses:
            self._records.check_count(BROKER)
            self._wildcards.check(kind.address)

    def _check_count(self) -> None:
        count = len(self._store.queues)
        if count >= self._store.limits.queues_max:
            raise Refused("amqp:resource-limit-exceeded", f"there are {count} queues, which is queues-max")

    def make_address(self, name: str, actor: Actor | None, *, is_temporary: bool) -> Address:
        """The address of this name, made for `actor` where there is none; Refused where that may not."""
        store = self._store
        check_name("address", name)
        address = store.addresses.get(name)
        LOOK.has_touched = True
        if address is None:
            if not is_temporary:
                store.settings.check_creation(name)
            store.permit(actor, CREATE_ADDRESS, name)
            self._records.check_count(actor)
            self._wildcards.check(name)
            address = store.add_address(name, maker_for(actor))
            address.is_topic = True
            self._auto_delete.vacated(address)
        else:
            self._records.check(name, MULTICAST)
            address.is_topic = address.is_topic or not (address.is_shared or address.has_copies)
        return address
