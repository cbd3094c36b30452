"""What a reload takes from those who are connected: their user, or the permission to receive.

Users and permissions that were read together are looked at together, once both hold: a role that has another name in
both takes nothing from anybody. A changed password counts for the next login. Who may not send any more keeps its link
(address_end.py): senders hear of each message, receivers would hear of nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mqbroker.amqp import frame_costs
from mqbroker.base.notice import Level
from mqbroker.node.amqp.peers.clients import client_on, clients_of
from mqbroker.node.values.link_ends import receiving_end
from mqbroker.wire.performatives import Close

if TYPE_CHECKING:
    from mqbroker.core.queue.queue import Client
    from mqbroker.node.amqp.peers.amqp_broker import AmqpBroker
    from mqbroker.node.amqp.peers.peer import Peer

NAME_SIZE_MAX = 200  # characters of a link's name in a notice


def revoke(broker: AmqpBroker) -> Iterator[int]:
    """Look at everybody: close connections whose user is gone, end consumers that may not receive.

    There may be very many, so each connection, link and queue is a piece, which yields what it cost, in units of
    amqp/frame_costs.py. Nobody gets a permission meanwhile that it has not any more: that is asked of what holds now.
    """
    looked_at: set[int] = set()
    for peer in list(broker.peers.values()):
        if broker.peers.get(peer.conn) is peer:
            if peer.close_if_gone():
                looked_at.add(peer.conn)
                yield frame_costs.GENERAL[Close]
                continue
            if peer.is_accepted:  # consumers of all others are met in their queues
                looked_at.add(peer.conn)
                yield from _rechecked(peer)
                yield from _looked_at(peer)
        yield frame_costs.LOOKED_AT
    for queue in list(broker.store.queues.values()):
        for client in clients_of(queue):
            if client.conn not in looked_at:
                yield from _ended(broker, client)
        yield frame_costs.LOOKED_AT


def _rechecked(peer: Peer) -> Iterator[int]:
    """All links on which messages may come."""
    for link in list(peer.producers):
        if link in peer.producers:
            receiving_end(link).recheck(peer.actor)
        yield frame_costs.LOOKED_AT


def _looked_at(peer: Peer) -> Iterator[int]:
    """All links on which it may receive."""
    for session in list(peer.connection.sessions):
        for link in list(session.by_handle.values()):
            client = client_on(link)
            if client is not None:
                yield from _ended(peer.broker, client)
            yield frame_costs.LOOKED_AT


def _ended(broker: AmqpBroker, client: Client) -> Iterator[int]:
    """If it would not be let in now. The end of another one may have ended it."""
    refused = client.refusal() if client.is_there else None
    if refused is not None:
        broker.notice(Level.INFO, "link-revoked", conn=client.conn, link=client.name[:NAME_SIZE_MAX],
                      why=refused.description)  # fmt: skip
        client.end(refused.condition, refused.description)
        yield frame_costs.REVOKED
