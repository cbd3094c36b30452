"""What a reload takes from those who are connected: their user, or the permission to receive.

Users and permissions that were read together are looked at together, once both hold: a role that has another name in
both takes nothing from anybody. A changed password counts for the next login. Who may not send any more keeps its link
(rebinding.py): senders hear of each message, receivers would hear of nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mqbroker.amqp import work
from mqbroker.base.errors import Refused
from mqbroker.base.notice import Level
from mqbroker.core.permissions import BROWSE, CONSUME
from mqbroker.node.accepted_peer import AcceptedPeer
from mqbroker.node.consumer import LinkConsumer
from mqbroker.node.rebinding import withdraw
from mqbroker.wire.performatives import Close

if TYPE_CHECKING:
    from mqbroker.node.broker import Broker

NAME_SIZE_MAX = 200  # characters of a link's name in a notice


def revoke(broker: Broker) -> Iterator[int]:
    """Look at everybody who came in: close connections whose user is gone, detach receivers that may not receive.

    There may be very many, so each connection and each link is a piece, which yields what it cost, in units of
    amqp/work.py. Nobody gets a permission meanwhile that it has not any more: that is asked of what holds now.
    """
    for peer in list(broker.peers.values()):
        if isinstance(peer, AcceptedPeer) and broker.peers.get(peer.conn) is peer:
            if peer.close_if_gone():
                yield work.GENERAL[Close]
                continue
            yield from withdraw(peer)
            yield from _detached(peer)
        yield work.LOOKED_AT


def _detached(peer: AcceptedPeer) -> Iterator[int]:
    """Its receivers that would not be let in now are ended."""
    for session in list(peer.connection.sessions):
        for link in list(session.by_handle.values()):
            consumer = link.owner
            refused = _refused(consumer) if isinstance(consumer, LinkConsumer) else None
            if isinstance(consumer, LinkConsumer) and refused is not None:
                _detach(consumer, refused)
                yield work.REVOKED
            yield work.LOOKED_AT


def _refused(consumer: LinkConsumer) -> Refused | None:
    """Why it would not be let in now, if that is so."""
    peer = consumer.peer
    if not consumer.link.is_attached:
        return None  # the end of another one has ended it
    try:
        with peer.broker.permissions.acting(peer.actor):
            permission = BROWSE if consumer.is_browser else CONSUME
            peer.broker.store.permit(permission, consumer.queue.kind.address)
    except Refused as refused:
        return refused.without_trace()
    return None


def _detach(consumer: LinkConsumer, refused: Refused) -> None:
    peer, link = consumer.peer, consumer.link
    peer.broker.notice(Level.INFO, "link-revoked", conn=peer.conn, link=link.name[:NAME_SIZE_MAX],
                       why=refused.description)  # fmt: skip
    peer.detach(link, refused.condition, refused.description)
