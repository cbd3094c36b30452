"""The cluster as a node sees it: members, and its links to each of them."""

from __future__ import annotations

from typing import Any

from mqbroker.base.errors import Refused
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.journal_formats import read_by
from mqbroker.core.queue.queue import Queue
from mqbroker.node.broker.broker import Broker
from mqbroker.node.cluster.forwarding.abandoned_messages import DEAD_LETTER
from mqbroker.node.cluster.membership.bridge import Bridge
from mqbroker.node.cluster.membership.cluster_connection import ClusterConnection
from mqbroker.node.values.inputs import AdminRequest

REROUTE = "reroute"
CANARY_MS, CANARY_MS_MAX = 5_000, 60_000
ACTIONS = (REROUTE, DEAD_LETTER)


def show(broker: Broker, request: AdminRequest) -> None:
    """`topology`: of all cluster connections. Empty lists where there are none.

    `journal_formats` are those of journal files that all nodes of the cluster read. A node that does not say reads 1,
    and so does one that is only known by its place, or by messages that wait for it.
    """
    connections = list(broker.cluster.connections.values())
    broker.reply(
        request.id,
        {
            "node_id": broker.node_id,
            "members": [row for each in connections for row in _members(each)],
            "links": [row for each in connections for row in links(each)],
            "inbound": sorted(broker.cluster.inbound),
            "journal_formats": list(broker.cluster.journal_formats),
        },
    )


def forget(broker: Broker, request: AdminRequest) -> None:
    """`cluster-forget`: give up a node that does not come back, and what is to become of messages for it."""
    node_id, action = request.arguments["node_id"], request.arguments["action"]
    if node_id == broker.node_id:
        raise Refused("amqp:precondition-failed", "a node does not forget itself")
    counts_or_none = [each.forget(node_id, action) for each in broker.cluster.connections.values()]
    counts = [count for count in counts_or_none if count is not None]
    if not counts:
        raise Refused("amqp:not-found", f"{request.operation}: nothing is known of a node {node_id!r} here")
    broker.reply(request.id, {"node_id": node_id, "action": action, "messages": sum(counts)})


def canary(broker: Broker, request: AdminRequest) -> None:
    """`cluster-canary`: a message over each link to another node, answered when all have it or the time is over."""
    broker.canaries.send(request.id, request.arguments["timeout_ms"])


def _members(connection: ClusterConnection) -> list[dict[str, Any]]:
    return [
        {
            "connection": connection.options.name,
            "node": member.name,
            "node_id": member.node_id,
            "boot_id": member.boot_id,
            "connector": member.connectors[0].uri if member.connectors else None,
            "is_self": member.node_id == connection.broker.node_id,
            "journal_formats": list(read_by(member)),
            "scale_down_group": member.scale_down_group,
        }
        for member in connection.topology.members
    ]


def links(connection: ClusterConnection) -> list[dict[str, Any]]:
    """One row for each bridge, those to places whose nodes are not known yet among them.

    After a restart nobody may know of a node that messages wait for: it has a row too, by which it can be forgotten.
    """
    bridges = [*connection.bridges.values(), *connection.probes]
    rows = [_link(connection, each) for each in bridges if not each.is_look]
    missing = [node_id for node_id in connection.owed if node_id not in connection.bridges]
    return rows + [_unreached(connection, node_id) for node_id in missing]


def _link(connection: ClusterConnection, bridge: Bridge) -> dict[str, Any]:
    broker = connection.broker
    member = connection.topology.get(bridge.node_id)
    table = connection.tables.get(bridge.node_id)
    bindings = [] if table is None else list(table.bindings.values())
    return {
        "connection": connection.options.name,
        "node": None if member is None else member.name,
        "node_id": bridge.node_id or None,
        "connector": bridge.connector.uri,
        "state": bridge.state.value,
        "since_ms": (broker.at.monotonic_ns - bridge.since_ns) // NS_PER_MS,
        "why": bridge.why or None,
        "attempts": bridge.attempts,
        "bindings": len(bindings),
        "consumers": sum(each.consumers_count for each in bindings),
        **_waiting(connection, bridge.node_id),
    }


def _unreached(connection: ClusterConnection, node_id: str) -> dict[str, Any]:
    broker = connection.broker
    return {
        "connection": connection.options.name, "node": None, "node_id": node_id, "connector": None, "state": "gone",
        "since_ms": (broker.at.monotonic_ns - broker.started_at.monotonic_ns) // NS_PER_MS,
        "why": f"not reached since this broker was started; if it is lost: mqctl cluster forget {node_id}",
        "attempts": 0, "bindings": 0, "consumers": 0, **_waiting(connection, node_id),
    }  # fmt: skip


def _waiting(connection: ClusterConnection, node_id: str) -> dict[str, int]:
    """What waits for a node; `unanswered`: what it may have of that. Nothing where nobody knows yet which it is."""
    store, now_ms = connection.broker.store, connection.broker.at.wall_ms
    queues = store.remotes.queues_of(node_id, connection.options.name) if node_id else []
    return {
        "queues": len(queues),
        "depth": sum(queue.message_count for queue in queues),
        "unanswered": sum(queue.unanswered_count for queue in queues),
        "lag_ms": max((_age_ms(queue, now_ms) for queue in queues), default=0),
    }


def _age_ms(queue: Queue, now_ms: int) -> int:
    """How long the first message that is not under way has waited."""
    if not queue.backlog.count:
        return 0
    return max(now_ms - queue.backlog.head.run.arrived_ms, 0)
