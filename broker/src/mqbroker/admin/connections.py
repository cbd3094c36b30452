"""Clients: their connections, sessions and links, and how to be rid of one.

Lists are cut at ROWS_MAX rows and say so (`is_whole`); arguments narrow them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from mqbroker.admin import listing
from mqbroker.admin.arguments import number, text
from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.amqp.session import Session
from mqbroker.base.errors import Refused
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.quotas import NOTHING
from mqbroker.core.queue.queue import Client, Queue
from mqbroker.node.amqp.peers.clients import clients_of
from mqbroker.node.amqp.peers.peer import Peer
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.ends import SendingEndOf
from mqbroker.node.values.inputs import AdminRequest
from mqbroker.node.values.link_ends import consumer_of, receiving_end, sending_end

ROWS_MAX = 10_000
CONNECTIONS_MAX = 2**53
# Which connections are meant; all of them where none is said.
WHO = (
    number("connection", None, (-CONNECTIONS_MAX, CONNECTIONS_MAX)), text("user", None), text("container_id", None),
)  # fmt: skip

RowsOf = Callable[[Any], Iterable[dict[str, Any]]]


def show_all(broker: Broker, request: AdminRequest) -> None:
    """`connections`: one object each; `closing`: it is closed once the disk has what it is owed an answer for."""

    made = broker.store.quotas.connections

    def rows_of(peer: Peer) -> Iterator[dict[str, Any]]:
        share = made.get(peer.conn, NOTHING)
        yield _client(peer) | {
            "listener": peer.listener_name,
            "sessions": len(peer.sessions),
            "links": sum(len(session.by_handle) for session in peer.sessions),
            "unsettled": sum(session.unsettled.count for session in peer.sessions),
            "queues": share.queues,
            "addresses": share.addresses,
            "blocked": peer.is_blocked,
            "closing": peer.farewell.is_final,
        }

    listing.answer(broker, request, list(broker.peers.values()), _of_present(broker, rows_of))


def show_sessions(broker: Broker, request: AdminRequest) -> None:
    """`sessions`: one object each."""

    def rows_of(peer: Peer) -> Iterator[dict[str, Any]]:
        for session in peer.sessions:
            links = session.by_handle.values()
            yield _client(peer) | {
                "channel": session.channel,
                "consumers": sum(isinstance(link, SenderLink) and _is_shown(link) for link in links),
                "producers": sum(isinstance(link, ReceiverLink) for link in links),
                "unsettled": session.unsettled.count,
                "window": session.window,
            }

    listing.answer(broker, request, _chosen(broker, request), _of_present(broker, rows_of), rows_max=ROWS_MAX)


def show_consumers(broker: Broker, request: AdminRequest) -> None:
    """`consumers`: one object each; `lag` are the messages that wait in its queue, `delivered` counts since attach.
    Of a consumer that has no link it is not known, nor is `unsettled`."""
    wanted: str = request.arguments["queue"]
    chosen: list[Callable[[], Iterable[dict[str, Any]]]]
    chosen = [partial(_of_present(broker, partial(_consumers, broker)), peer) for peer in _chosen(broker, request)]
    if all(request.arguments[each.name] is None for each in WHO):
        chosen.append(partial(_waiting, broker))
    if request.arguments["user"] is None and request.arguments["container_id"] is None:
        queues, conn = broker.store.queues.values(), request.arguments["connection"]
        chosen += [partial(_without_links, broker, queue, conn) for queue in queues if queue.consumers]

    def rows_of(rows: Callable[[], Iterable[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
        return (row for row in rows() if not wanted or row["queue"] == wanted)

    listing.answer(broker, request, chosen, rows_of, rows_max=ROWS_MAX)


def show_producers(broker: Broker, request: AdminRequest) -> None:
    """`producers`: one object each; `sent` counts since attach."""
    wanted: str = request.arguments["address"]

    def rows_of(peer: Peer) -> Iterator[dict[str, Any]]:
        rows = (row for session in peer.sessions for row in _producers(broker, peer, session))
        return (row for row in rows if not wanted or row["address"] == wanted)

    listing.answer(broker, request, _chosen(broker, request), _of_present(broker, rows_of), rows_max=ROWS_MAX)


def _of_present(broker: Broker, rows_of: RowsOf) -> RowsOf:
    """Nothing of connections that have gone since the list was asked for."""

    def rows(peer: Peer) -> Iterable[dict[str, Any]]:
        return () if broker.peers.get(peer.conn) is not peer else rows_of(peer)

    return rows


def _consumers(broker: Broker, peer: Peer) -> Iterator[dict[str, Any]]:
    for session in peer.sessions:
        unsettled: dict[Any, int] = {}
        for taken in session.unsettled:
            unsettled[taken.link] = unsettled.get(taken.link, 0) + taken.n
        for link in session.by_handle.values():
            if isinstance(link, SenderLink) and (client := consumer_of(link)) is not None:
                yield _consumer(broker, (peer, session), link, client, unsettled.get(link, 0))
    if not peer.sessions:
        for client in peer.clients():
            yield _client(peer) | _without_link(client)


def _waiting(broker: Broker) -> Iterator[dict[str, Any]]:
    for receive in broker.local.waiting:
        yield {
            "connection": None, "peer": "admin", "user": None, "container_id": None, "channel": None,
            "link": f"admin-{receive.session}", "queue": receive.queue.kind.name,
            "address": receive.queue.kind.address, "credit": receive.capacity(), "unsettled": receive.count,
            "delivered": receive.count, "lag": receive.queue.ready_count, "idle_ms": None,
            "browser": receive.is_browser, "selector": getattr(receive.filter, "text", ""),
        }  # fmt: skip


def _without_links(broker: Broker, queue: Queue, conn: int | None) -> Iterator[dict[str, Any]]:
    """Clients of a queue, all or those of one connection, that are with none of the peers, so that no link has them."""
    for client in clients_of(queue):
        if client.conn not in broker.peers and conn in (None, client.conn):
            who = {"connection": client.conn, "peer": client.far, "user": None, "container_id": None}
            yield who | _without_link(client)


def _without_link(client: Client) -> dict[str, Any]:
    """What is known of one that has no link."""
    queue = client.queue
    return {
        "channel": None, "link": client.name, "queue": queue.kind.name, "address": queue.kind.address,
        "credit": client.capacity(), "unsettled": None, "delivered": None, "lag": queue.ready_count,
        "idle_ms": None, "browser": client.is_browser, "selector": getattr(client.filter, "text", ""),
    }  # fmt: skip


def _is_shown(link: SenderLink) -> bool:
    end: SendingEndOf[Peer] | None = sending_end(link)
    return end is None or end.is_shown


def _consumer(
    broker: Broker, place: tuple[Peer, Session], link: SenderLink, consumer: Client, unsettled: int
) -> dict[str, Any]:
    peer, session = place
    traffic = broker.activity.of(link)
    return _client(peer) | {
        "channel": session.channel,
        "link": link.name,
        "queue": consumer.queue.kind.name,
        "address": consumer.queue.kind.address,
        "credit": link.credit,
        "unsettled": unsettled,
        "delivered": traffic.count,
        "lag": consumer.queue.ready_count,
        "idle_ms": _idle_ms(broker, traffic.active_ns),
        "browser": consumer.is_browser,
        "selector": getattr(consumer.filter, "text", ""),
    }


def _producers(broker: Broker, peer: Peer, session: Session) -> Iterator[dict[str, Any]]:
    for link in session.by_handle.values():
        if not isinstance(link, ReceiverLink) or not link.is_attached:
            continue  # one that we have ended is there until its peer has answered
        traffic = broker.activity.of(link)
        yield _client(peer) | {
            "channel": session.channel,
            "link": link.name,
            "address": receiving_end(link).address_name,
            "credit": link.credit,
            "sent": traffic.count,
            "starved": link.is_starved,
            "idle_ms": _idle_ms(broker, traffic.active_ns),
        }


def _idle_ms(broker: Broker, active_ns: int) -> int | None:
    return (broker.at.monotonic_ns - active_ns) // NS_PER_MS if active_ns else None


def _client(peer: Peer) -> dict[str, Any]:
    return {
        "connection": peer.conn,
        "peer": peer.far,
        "user": peer.user,
        "container_id": peer.said_container_id,
    }


def _chosen(broker: Broker, request: AdminRequest) -> list[Peer]:
    """The connections that the arguments mean; all without one."""
    peers = list(broker.peers.values())
    for name in (each.name for each in WHO):
        wanted = request.arguments[name]
        if wanted is not None:
            peers = [peer for peer in peers if _client(peer)[name] == wanted]
    return peers


def close(broker: Broker, request: AdminRequest) -> None:
    """`connection-close`: by id, or all of a user or of a container id. What they had in delivery returns. One
    that sends is closed once all that was taken in of it is answered, and takes in nothing more until then: as long as
    the disk takes, `connections` has it as `closing`, and what it settles comes again. Others are closed at once."""
    said = [each.name for each in WHO if request.arguments[each.name] is not None]
    if len(said) != 1:
        names = ", ".join(each.name for each in WHO)
        raise Refused("amqp:invalid-field", f"connection-close: give exactly one of {names}")
    chosen = [peer for peer in _chosen(broker, request) if not peer.is_gone]
    if not chosen:
        what = f"{said[0]} {request.arguments[said[0]]!r}"
        raise Refused("amqp:not-found", f"connection-close: there is no connection of {what}")
    for peer in chosen:
        peer.close("amqp:connection:forced", "an administrator closes the connection")
    broker.reply(request.id, {"closed": len(chosen)})
