"""Queues that drain to another node: begun, shown, called off (docs/adr/0025-drain.md)."""

from __future__ import annotations

from typing import Any, Final

from mqbroker.admin.arguments import queue_named
from mqbroker.base.errors import Refused
from mqbroker.base.time import NS_PER_S
from mqbroker.core.queue.kinds import check_is_public
from mqbroker.core.queue.queue import Queue
from mqbroker.node.broker.broker import Broker
from mqbroker.node.broker.eviction import lock
from mqbroker.node.cluster.membership.cluster_connection import ClusterConnection
from mqbroker.node.values.bridge_states import BridgeState
from mqbroker.node.values.inputs import AdminRequest

REFUSED: Final = "amqp:precondition-failed"


def begin(broker: Broker, request: AdminRequest) -> None:
    """`drain-queue`: what is in it, and what comes, goes to the queue of its name at a node, named or by its id."""
    queue = queue_named(broker, request, "queue")
    check_is_public(queue.kind)
    connection, node_id = linked(broker, request)
    if why := why_it_takes_nothing(connection, node_id):
        raise Refused(REFUSED, f"{request.operation}: node {node_id} {why}")
    lock(broker, queue, node_id)
    # Consumers that were let in and wait for the disk are told of by decisions that are before this one.
    broker.store.decisions.wait_for_earlier(_begin_now, broker, request, queue, connection.options.name, node_id)


def _begin_now(broker: Broker, request: AdminRequest, queue: Queue, connection: str, node_id: str) -> None:
    if queue.is_deleted:
        broker.reply_error(request.id, "amqp:not-found", f"queue {queue.kind.name!r} was deleted meanwhile")
        return
    lock(broker, queue, node_id)
    try:
        broker.store.remotes.begin_drain(queue, connection, node_id)
    except Refused as refused:
        broker.reply_error(request.id, refused.condition, refused.description)
        return
    broker.store.decisions.wait(broker.reply, request.id, row_of(broker, queue))


def show(broker: Broker, request: AdminRequest) -> None:
    """`drain-show`: those of this node, or that of one queue; rate is messages in a second."""
    wanted: str = request.arguments["queue"]
    queues = sorted(broker.store.remotes.drains.queues.values(), key=lambda each: each.kind.name)
    rows = [row_of(broker, each) for each in queues if wanted in ("", each.kind.name)]
    broker.reply(request.id, {"drains": rows})


def cancel(broker: Broker, request: AdminRequest) -> None:
    """`drain-cancel`: it is served here again once the other node has answered for what it may have; `force`: at once,
    and that may come twice."""
    queue = queue_named(broker, request, "queue")
    if not queue.kind.is_draining:
        raise Refused(REFUSED, f"drain-cancel: queue {queue.kind.name!r} does not drain")
    row, before = row_of(broker, queue), queue.kind
    is_forced: bool = request.arguments["force"]
    broker.cluster.call_off(queue, is_forced=is_forced)
    row |= {"state": _state(queue)}
    decisions = broker.store.decisions
    answer = decisions.wait_for_earlier if queue.kind is before else decisions.wait  # it was called off already
    answer(broker.reply, request.id, row)


def linked(broker: Broker, request: AdminRequest) -> tuple[ClusterConnection, str]:
    """The node that is meant, by its id or its name, and a cluster connection with a link to it. Raises Refused."""
    wanted: str = request.arguments["node"]
    named = [
        (connection, member.node_id)
        for connection in broker.cluster.connections.values()
        for member in connection.topology.others
        if wanted in (member.node_id, member.name)
    ]
    if not named:
        raise Refused("amqp:not-found", f"{request.operation}: no other node of the cluster is known as {wanted!r}")
    if len({node_id for _, node_id in named}) > 1:
        raise Refused(REFUSED, f"{request.operation}: several nodes are called {wanted!r}; say the id of one")
    for connection, node_id in named:
        bridge = connection.bridges.get(node_id)
        if bridge is not None and bridge.state is BridgeState.UP:
            return connection, node_id
    raise Refused(REFUSED, f"{request.operation}: no link to node {wanted} stands")


def why_it_takes_nothing(connection: ClusterConnection, node_id: str) -> str:
    """Empty where that node stays, and takes what others have."""
    member = connection.topology.get(node_id)
    if member is None or not member.heir:
        return ""
    return "is cordoned" if member.heir == node_id else f"leaves itself, to node {member.heir}"


def row_of(broker: Broker, queue: Queue) -> dict[str, Any]:
    """What is shown of a queue that drains, or could."""
    progress, kind = broker.store.remotes.drains.progress.get(queue.kind.name), queue.kind
    moved, elapsed_ns, why, is_paused_there = 0, 1, "", None
    if progress is not None:
        why, is_paused_there = progress.why, progress.is_paused_there
        moved = max(queue.acknowledged_total - progress.moved_before, 0)
        elapsed_ns = max(broker.at.monotonic_ns - progress.since_ns, 1)
    return {
        "queue": kind.name, "node_id": kind.forwards_to, "connection": kind.connection, "state": _state(queue),
        "left": queue.message_count, "unanswered": queue.delivering_count, "scheduled": queue.scheduled_count,
        "moved": moved, "rate": round(moved * NS_PER_S / elapsed_ns, 1), "why": why or None,
        "paused": queue.is_paused, "paused_there": is_paused_there,
    }  # fmt: skip


def _state(queue: Queue) -> str:
    kind = queue.kind
    if not kind.is_draining:
        return "serves"
    if kind.drain_ends:
        return "ends"
    return "drains" if queue.message_count else "is drained"
