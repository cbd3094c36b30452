"""Queues and addresses that are deleted although somebody uses them: who does is told by the end of the link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mqbroker.amqp import frame_costs
from mqbroker.amqp.links import ReceiverLink
from mqbroker.core.address.address import Address
from mqbroker.core.queue.queue import Queue
from mqbroker.node.amqp.peers.clients import clients_of
from mqbroker.node.values.link_ends import receiving_end

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.broker.broker import Broker

DELETED = "amqp:resource-deleted"
LOCKED = "amqp:resource-locked"


def evict(broker: Broker, queue: Queue, why: str, condition: str = DELETED) -> None:
    """End everybody who consumes from the queue, or is about to; what they had is in the queue again."""
    broker.local.withdraw(queue, why)
    broker.turns.part_consumers(queue)
    if not queue.consumers and not queue.arriving_count:
        return
    for peer in list(broker.peers.values()):
        for client in peer.clients():
            if client.queue is queue:
                client.end(condition, why)
    for client in clients_of(queue):  # that have no link
        client.end(condition, why)


def lock(broker: Broker, queue: Queue, node_id: str) -> None:
    """Nobody consumes from a queue of clients that is to drain; what they had is in it again."""
    broker.turns.part_consumers(queue)
    if not queue.kind.is_forwarding and not queue.kind.is_draining:
        evict(broker, queue, f"queue {queue.kind.name!r} drains to node {node_id}", LOCKED)


def evicted(queue: Queue, why: str) -> Iterator[int]:
    """The same of those who consume by now, one after the other; yields what each cost, in units of
    amqp/frame_costs.py."""
    for client in clients_of(queue):
        if client.is_there:
            client.end(DELETED, why)
            yield frame_costs.REVOKED


def evict_producers(broker: Broker, address: Address, why: str) -> None:
    """Detach everybody who sends there."""
    for peer, link in list(producers_at(broker, address)):
        peer.detach(link, DELETED, why)


def producers_at(broker: Broker, address: Address) -> Iterator[tuple[Peer, ReceiverLink]]:
    """Links on which messages may come, also those to one queue of it."""
    for peer in broker.peers.values():
        for link in peer.producers:
            if link.is_attached and receiving_end(link).address_name == address.name:
                yield peer, link
