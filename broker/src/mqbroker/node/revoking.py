"""What a reload takes from those who are connected: their user, or the permission to receive.

Users and permissions that were read together are looked at together, once both hold: a role that has another name in
both takes nothing from anybody. A changed password counts for the next login. Who may not send any more keeps its link
(rebinding.py): senders hear of each message, receivers would hear of nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.errors import Refused
from mqbroker.base.notice import Level
from mqbroker.core.permissions import BROWSE, CONSUME
from mqbroker.node.accepted_peer import AcceptedPeer
from mqbroker.node.consumer import LinkConsumer
from mqbroker.node.rebinding import withdraw

if TYPE_CHECKING:
    from mqbroker.node.broker import Broker

NAME_SIZE_MAX = 200  # characters of a link's name in a notice


def revoke(broker: Broker) -> None:
    """Look at everybody who came in: close connections whose user is gone, detach receivers that may not receive."""
    for peer in list(broker.peers.values()):
        if isinstance(peer, AcceptedPeer) and not peer.close_if_gone():
            with broker.permissions.acting(peer.actor):
                withdraw(peer)
                refused = _refused(peer)
            for consumer, why in refused:
                _detach(consumer, why)


def _refused(peer: AcceptedPeer) -> list[tuple[LinkConsumer, Refused]]:
    """Its receivers that would not be let in now."""
    found: list[tuple[LinkConsumer, Refused]] = []
    for session in peer.connection.sessions:
        for link in session.by_handle.values():
            consumer = link.owner
            if isinstance(consumer, LinkConsumer) and link.is_attached:
                permission = BROWSE if consumer.is_browser else CONSUME
                try:
                    peer.broker.store.permit(permission, consumer.queue.kind.address)
                except Refused as refused:
                    found.append((consumer, refused))
    return found


def _detach(consumer: LinkConsumer, refused: Refused) -> None:
    peer, link = consumer.peer, consumer.link
    if not link.is_attached:
        return  # the end of another one has ended it
    peer.broker.notice(Level.INFO, "link-revoked", conn=peer.conn, link=link.name[:NAME_SIZE_MAX],
                       why=refused.description)  # fmt: skip
    peer.detach(link, refused.condition, refused.description)
