"""The answer to a peer's open: what we can, whether it may stay, and where else it may go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mqbroker.amqp.redirect import (
    CONNECTION_REDIRECT,
    FAILOVER_SERVER_LIST,
    TOPOLOGY,
    RedirectPlace,
    place_of,
    redirect_info,
)
from mqbroker.cluster.routing.router import STAY
from mqbroker.node.amqp.listeners.containers import SOLE_CONNECTION
from mqbroker.wire.frames import HEADER_SIZE
from mqbroker.wire.performatives import Open, encode
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer

# Properties of an open for a node of the cluster, and why it may not stay: the condition, and words.
Greeting: TypeAlias = "tuple[dict[Symbol, Any], tuple[str, str] | None]"
IDLE_TIME_OUT_MS_MIN: Final = 50  # what we announce ourselves at the least, half of the smallest idle-timeout-ms
ESTABLISHMENT_FAILED = Symbol("amqp:connection-establishment-failed")
OFFERED = (SOLE_CONNECTION, *(Symbol(name) for name in ("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY")))


def answer(peer: AcceptedPeer, *, is_late: bool = False) -> None:
    """Send our open. Where the peer may not stay, a close with the reason follows at once, and the open says so
    beforehand. Where its router does not know yet, nothing is sent, and it is held. `is_late`: it has been.
    """
    limits, listener, connection = peer.broker.options.limits, peer.listener, peer.connection
    verdict = peer.acceptor.route(peer, is_late=is_late)
    if verdict is None:
        connection.is_held, peer.due_ns = True, 0
        peer.pause_if_needed()
        return
    greeting, refusal = peer.acceptor.greet(peer) if (hurry := _hurry(peer)) is None else ({}, hurry)
    goes_on = not listener.redirect_to and verdict == STAY and refusal is None
    is_second = goes_on and not peer.acceptor.containers.claim(peer)
    properties: dict[Symbol, Any] = peer.broker.open_properties | greeting
    elsewhere = peer.acceptor.failover_list
    if servers := elsewhere.servers(listener):
        properties[FAILOVER_SERVER_LIST] = servers
    if is_second or not goes_on:
        properties[ESTABLISHMENT_FAILED] = True
    ours = Open(
        container_id=peer.broker.container_id, max_frame_size=listener.max_frame_size_bytes,
        channel_max=limits.sessions_per_connection_max - 1,
        idle_time_out=peer.patience.idle_ms // 2 or None, properties=properties,
        offered_capabilities=(*OFFERED, TOPOLOGY) if elsewhere.may_change(listener) else OFFERED,
    )  # fmt: skip
    connection.open(_within(ours, properties, connection.peer_frame_size))
    if listener.redirect_to:
        why = f"listener {listener.name!r} sends its clients to {listener.redirect_to}"
        connection.close(CONNECTION_REDIRECT, why, redirect_info(place_of(listener.redirect_to)))
    elif verdict.place is not None:
        place = RedirectPlace(verdict.place.host, verdict.place.port)
        why = verdict.why or f"router {listener.router!r} sends this connection to {place.host}:{place.port}"
        connection.close(CONNECTION_REDIRECT, why, redirect_info(place))
    elif verdict.why:
        connection.close("amqp:connection:forced", verdict.why)
    elif is_second:
        why = f"container {peer.container_id!r} is connected already and wants to be the only one of its name"
        connection.close("amqp:invalid-field", why, {Symbol("invalid-field"): Symbol("container-id")})
    elif refusal is not None:
        connection.close(*refusal)
    connection.forget_open()
    if goes_on and not is_second:
        peer.set_due()
        peer.broker.timers.add(peer)


def _within(ours: Open, properties: dict[Symbol, Any], size_max: int) -> Open:
    """With as many of the other brokers as fit a frame of the peer's, from the first on."""
    servers = properties.get(FAILOVER_SERVER_LIST)
    while servers and len(encode(ours)) + HEADER_SIZE > size_max:
        servers = servers[:-1]
        ours = replace(ours, properties=properties | {FAILOVER_SERVER_LIST: servers})
    return ours


def _hurry(peer: AcceptedPeer) -> tuple[str, str] | None:
    """Why it may not stay that wants to hear of us more often than we would say anything (§2.4.5)."""
    wanted_ms = peer.connection.peer_idle_timeout_ms
    if wanted_ms == 0 or wanted_ms >= IDLE_TIME_OUT_MS_MIN:
        return None
    return (
        "amqp:not-allowed",
        f"idle-time-out {wanted_ms} ms is below {IDLE_TIME_OUT_MS_MIN} ms, the least that is kept",
    )


def resume(peer: AcceptedPeer) -> None:
    """Answer a connection that was held, and take in what it has sent ahead meanwhile."""
    if peer.connection.is_dead:
        return
    answer(peer, is_late=True)
    peer.go_on()
    peer.pause_if_needed()
