"""Connections that come to a listener, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.node.amqp.accepted_peer import AcceptedPeer
from mqbroker.node.amqp.rated_peer import RatedPeer
from mqbroker.node.values.effects import CloseConnection

if TYPE_CHECKING:
    from mqbroker.node.broker.broker import Broker
    from mqbroker.node.values.inputs import ConnectionAccepted


def admit(broker: Broker, accepted: ConnectionAccepted) -> None:
    """A connection came to a listener: it is a peer from now on, or is closed again."""
    listener = broker.listeners.get(accepted.listener)
    peer = None
    if listener is not None and broker.is_running:
        kind = RatedPeer if listener.frames_per_second_max else AcceptedPeer
        peer = kind(broker, accepted, listener)
    LOOK.has_touched = True
    if peer is None:
        broker.effects.append(CloseConnection(accepted.conn, 0))
    else:
        broker.counters.connections += 1
        broker.peers[accepted.conn] = peer
