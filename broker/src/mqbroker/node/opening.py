"""The answer to a peer's open: what we can, whether it may stay, and where else it may go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqbroker.amqp.redirect import (
    CONNECTION_REDIRECT,
    FAILOVER_SERVER_LIST,
    failover_servers,
    place_of,
    redirect_info,
)
from mqbroker.node.containers import SOLE_CONNECTION
from mqbroker.node.handshake import hello_of
from mqbroker.wire.performatives import Open
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.node.accepted_peer import AcceptedPeer

ESTABLISHMENT_FAILED = Symbol("amqp:connection-establishment-failed")
OFFERED = (SOLE_CONNECTION, *(Symbol(name) for name in ("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY")))


def answer(peer: AcceptedPeer) -> bool:
    """Send our open. False: a close with the reason followed it at once, and the open says so beforehand."""
    limits, listener, connection = peer.broker.options.limits, peer.listener, peer.connection
    greeting, stranger = _greet(peer)
    is_second = not listener.redirect_to and not peer.broker.containers.claim(peer)
    properties: dict[Symbol, Any] = peer.broker.open_properties | greeting
    if listener.failover_server_list:
        properties[FAILOVER_SERVER_LIST] = failover_servers(listener.failover_server_list, has_tls=listener.has_tls)
    if is_second or listener.redirect_to or stranger:
        properties[ESTABLISHMENT_FAILED] = True
    connection.open(
        Open(
            container_id=peer.broker.container_id, max_frame_size=listener.max_frame_size_bytes,
            channel_max=limits.sessions_per_connection_max - 1,
            idle_time_out=peer.patience.idle_ms // 2 or None, properties=properties,
            offered_capabilities=OFFERED,
        )
    )  # fmt: skip
    if listener.redirect_to:
        why = f"listener {listener.name!r} sends its clients to {listener.redirect_to}"
        connection.close(CONNECTION_REDIRECT, why, redirect_info(place_of(listener.redirect_to)))
    elif is_second:
        why = f"container {peer.container_id!r} is connected already and wants to be the only one of its name"
        connection.close("amqp:invalid-field", why, {Symbol("invalid-field"): Symbol("container-id")})
    elif stranger:
        connection.close("amqp:not-found", stranger)
    return not is_second and not listener.redirect_to and not stranger


def _greet(peer: AcceptedPeer) -> tuple[dict[Symbol, Any], str]:
    """What we say of ourselves where a node of the cluster opens the connection, or why it is none of ours."""
    opened = peer.connection.peer_open
    hello = hello_of(opened) if opened is not None and peer.listener.kind == "cluster" else None
    if hello is None:
        return {}, ""
    ours = peer.broker.cluster.answer_to(hello)
    if ours is None:
        return {}, f"there is no cluster connection {hello.connection!r} here: it has one name on all nodes"
    peer.hello = hello
    if hello.ttl_ms:
        peer.patience = peer.patience._replace(idle_ms=hello.ttl_ms)
    peer.broker.cluster.heard_of(hello)
    return ours._replace(ttl_ms=0).properties, ""
