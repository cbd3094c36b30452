"""Clients: their connections."""

from __future__ import annotations

from mqbroker.node.broker import Broker
from mqbroker.node.inputs import AdminRequest


def show_all(broker: Broker, request: AdminRequest) -> None:
    """`connections`: one object each."""
    rows = [
        {
            "connection": peer.conn,
            "peer": peer.accepted.peer,
            "listener": peer.listener.name,
            "user": peer.user,
            "container_id": peer.connection.peer_open.container_id if peer.connection.peer_open else None,
            "sessions": len(peer.connection.sessions),
            "links": sum(len(session.by_handle) for session in peer.connection.sessions),
            "unsettled": sum(session.unsettled.count for session in peer.connection.sessions),
            "blocked": peer.is_blocked,
        }
        for peer in broker.peers.values()
    ]
    broker.reply(request.id, {"connections": rows})
