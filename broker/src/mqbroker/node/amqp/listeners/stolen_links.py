"""Links that are attached again from elsewhere: the new one has the name, the old one is told (AMQP 1.0 §2.6.1).

A link is known by its container, its name and its direction, and here by its user too: nobody takes somebody else's by
calling himself so. Which links may be stolen is an option of the listener (`link-stealing`). Some libraries name their
links alike in each process, and processes may share a container id, so by default only links that outlive their
connection have their names for themselves. Coordinators are never stolen: a transaction belongs to its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.amqp.links import LinkBase
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.node.values.subscriptions import is_durable
from mqbroker.wire.performatives import Attach, Coordinator

if TYPE_CHECKING:
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.peers.peer import Peer

STOLEN = "amqp:link:stolen"
ALL, DURABLE = "all", "durable"
NAME_SIZE_MAX = 200  # characters of a link's name in a notice

LinkKey = tuple[str | None, str, str, bool]


class Stealing:
    """Which links of which connections have their names for themselves."""

    def __init__(self) -> None:
        self._owners: dict[LinkKey, tuple[Peer, LinkBase]] = {}
        self._stolen: LinkBase | None = None  # the one that is told now

    def attach(self, peer: AcceptedPeer, link: LinkBase, attach: Attach) -> None:
        """A link is being attached. One of its name elsewhere ends now, and gives back what it had."""
        if not _has_its_name_alone(peer, attach):
            return
        key = _key(peer, link)
        owner = self._owners.get(key)
        self._owners[key] = (peer, link)
        if owner is None or not owner[1].is_attached:
            return
        old_peer, old_link = owner
        self._stolen = old_link
        peer.broker.notice(Level.INFO, "link-stolen", conn=old_peer.conn, by=peer.conn, link=link.name[:NAME_SIZE_MAX])
        why = f"link {link.name!r} of container {peer.container_id!r} is attached elsewhere now"
        old_peer.detach(old_link, STOLEN, why)
        self._stolen = None

    def is_stolen(self, link: LinkBase) -> bool:
        """Whether it ends because another one is about to have its terminus."""
        return link is self._stolen

    def gone(self, peer: Peer, link: LinkBase) -> None:
        """A link is detached, and its name is free."""
        key = _key(peer, link)
        LOOK.has_touched = True
        if self._owners.get(key) == (peer, link):
            del self._owners[key]


def _key(peer: Peer, link: LinkBase) -> LinkKey:
    return peer.user, peer.container_id, link.name, link.role


def _has_its_name_alone(peer: AcceptedPeer, attach: Attach) -> bool:
    """A link without a terminus asks only what is there. Shared subscriptions are shared by name."""
    mode, source, target = peer.listener.link_stealing, attach.source, attach.target
    terminus = source if attach.role else target
    if not peer.container_id or terminus is None or isinstance(terminus, Coordinator):
        return False
    if mode == ALL:
        return True
    return mode == DURABLE and is_durable(terminus) and "shared" not in (terminus.capabilities or ())
