"""What the file of options declares beside options: addresses with their queues, and diverts; at start and on reload.

What is in the file is made or changed. What is gone from it goes where the address settings say so (`config-delete-…`),
also where somebody uses it: a queue that a transaction still has messages of goes when that ends. Source: Artemis's
manual, "Configuration Reload".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.notice import Level
from mqbroker.config.compare import ends
from mqbroker.config.slices import BrokerOptions
from mqbroker.core.diverts import Diverts
from mqbroker.node.eviction import evict, evict_producers

if TYPE_CHECKING:
    from mqbroker.core.address import Address
    from mqbroker.core.queue import Queue
    from mqbroker.node.broker import Broker


def deploy(broker: Broker, options: BrokerOptions) -> list[str]:
    """Bring it into force; the settings of addresses hold already. Says what could not be done."""
    _divert(broker, options)
    broker.store.retroactive.apply()
    addresses, queues = broker.store.configured.gone(options.addresses)
    for queue in queues:
        _delete_queue(broker, queue)
    for address in addresses:
        _delete_address(broker, address)
    remarks = broker.store.configured.apply(options.addresses)
    for remark in remarks:
        broker.notice(Level.WARNING, "deployment-differs", why=remark)
    return remarks


def _divert(broker: Broker, options: BrokerOptions) -> None:
    """Diverts that are gone from the file stay until a restart, unless the settings say otherwise."""
    store = broker.store
    names = {one.name for one in options.diverts}
    kept = tuple(one for one in store.diverts.options if one.name not in names and not ends(one, options))
    store.diverts = Diverts(options.diverts + kept, store)


def _delete_address(broker: Broker, address: Address) -> None:
    for queue in address.queues:
        _delete_queue(broker, queue)
    evict_producers(broker, address, f"address {address.name!r} is gone from the configuration")
    broker.store.declared.delete(address)


def _delete_queue(broker: Broker, queue: Queue) -> None:
    name, count = queue.kind.name, queue.message_count
    evict(broker, queue, f"queue {name!r} is gone from the configuration")
    broker.termini.end_queue(queue)
    broker.notice(Level.INFO, "queue-undeployed", queue=name, messages=count)
