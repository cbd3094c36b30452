"""Containers that want to be the only one of their name: JMS client ids (AMQP 1.0 Enforcing Connection Uniqueness)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer

SOLE_CONNECTION: Final = Symbol("sole-connection-for-container")


class Containers:
    """Which connection has which name for itself alone. A connection that does not ask shares its name with any."""

    def __init__(self) -> None:
        self._owners: dict[str, Peer] = {}

    def claim(self, peer: Peer) -> bool:
        """Whether the peer may open. False: somebody has the name that it wants for itself."""
        opened = peer.connection.peer_open
        if opened is None or SOLE_CONNECTION not in (opened.desired_capabilities or ()):
            return True
        owner = self._owners.get(opened.container_id)
        if owner is not None and not (owner.connection.is_dead or peer.broker.turns.is_gone(owner)):
            return False
        LOOK.has_touched = True
        self._owners[opened.container_id] = peer
        return True

    def release(self, peer: Peer) -> None:
        """The peer is gone, its name is free."""
        LOOK.has_touched = True
        if self._owners.get(peer.container_id) is peer:
            del self._owners[peer.container_id]
