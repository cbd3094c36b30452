"""What the file of options declares beside options: addresses with their queues, and diverts; at start and on reload.

What is in the file is made or changed. What is gone from it goes where the address settings say so (`config-delete-…`),
also where somebody uses it: a queue that a transaction still has messages of goes when that ends. Source: Artemis's
manual, "Configuration Reload".

As that may be very much it is done piece by piece; between two of them others come and go. So what is to be deleted is
looked at once more when its turn comes, and whoever came to it meanwhile is told as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mqbroker.amqp import frame_costs
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.config.compare import ends
from mqbroker.config.slices import BrokerOptions
from mqbroker.core.address.address import Address
from mqbroker.core.address.diverts import Diverts
from mqbroker.node.amqp.links.address_end import bound_runs
from mqbroker.node.broker.eviction import evict, evict_producers, evicted
from mqbroker.node.values.link_ends import receiving_end

if TYPE_CHECKING:
    from mqbroker.core.queue.queue import Queue
    from mqbroker.node.broker.broker import Broker
    from mqbroker.node.values.ends import ReceivingEndOf


def deploy(broker: Broker, options: BrokerOptions, remarks: list[str]) -> Iterator[int]:
    """Bring it into force; the settings of addresses hold already.

    Each piece yields what it cost, in units of amqp/frame_costs.py; what could not be done is added to `remarks`.
    """
    _divert(broker, options)
    yield from broker.store.retroactive.apply()
    for gone in broker.store.deployed_addresses.gone(options.addresses):
        if gone is None:
            yield frame_costs.LOOKED_AT
        elif isinstance(gone, Address):
            yield from _delete_address(broker, gone)
        else:
            yield from _delete_queue(broker, gone)
    for cost, why in broker.store.deployed_addresses.apply(options.addresses):
        for remark in why:
            broker.notice(Level.WARNING, "deployment-differs", why=remark)
        remarks += why
        yield cost


def _divert(broker: Broker, options: BrokerOptions) -> None:
    """Diverts that are gone from the file stay until a restart, unless the settings say otherwise."""
    store = broker.store
    names = {one.name for one in options.diverts}
    kept = tuple(one for one in store.diverts.options if one.name not in names and not ends(one, options))
    LOOK.has_touched = True
    store.diverts = Diverts(options.diverts + kept, store)
    for peer in broker.peers.values():
        for link in peer.producers:
            end: ReceivingEndOf[Any] = receiving_end(link)
            address = store.addresses.get(end.address_name or "")
            if address is not None and end.takes_posts:  # what other nodes forward follows none
                bound_runs(store, link, address)


def _delete_address(broker: Broker, address: Address) -> Iterator[int]:
    for queue in address.queues:
        yield from _delete_queue(broker, queue)
    if broker.store.addresses.get(address.name) is address:
        evict_producers(broker, address, f"address {address.name!r} is gone from the configuration")
        broker.store.address_records.delete(address)
    yield frame_costs.DECLARED


def _delete_queue(broker: Broker, queue: Queue) -> Iterator[int]:
    name, count = queue.kind.name, queue.message_count
    why = f"queue {name!r} is gone from the configuration"
    yield from evicted(queue, why)
    if not queue.is_deleted:
        evict(broker, queue, why)
        broker.termini.end_queue(queue)
        broker.notice(Level.INFO, "queue-undeployed", queue=name, messages=count)
    yield frame_costs.DEPLOYED
