"""What a node is and how it is: status, health, metrics, and its end."""

from __future__ import annotations

from mqbroker import __version__
from mqbroker.admin import health, metrics
from mqbroker.admin.certificates import row_of
from mqbroker.admin.topology import links
from mqbroker.base.native import IS_NATIVE
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS, NS_PER_S
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest, Stop


def show(broker: Broker, request: AdminRequest) -> None:
    """`status`: what the node is and holds."""
    store = broker.store
    broker.reply(
        request.id,
        {
            "node": broker.options.node.name,
            "node_id": broker.node_id,
            "version": __version__,
            "native": IS_NATIVE,
            "state": health.state_of(broker),
            "uptime_ms": (broker.at.monotonic_ns - broker.started_at.monotonic_ns) // NS_PER_MS,
            "connections": len(broker.peers),
            "queues": len(store.queues),
            "messages": sum(queue.message_count for queue in store.queues.values()),
            "held_bytes": store.memory.held_bytes,
            "global_max_size_bytes": store.memory.max_bytes,
            "journal_segments": broker.journal.segments_count,
            "journal_position": broker.journal.position,
            "synced_position": store.journal.synced_position,
            "certificates": [row_of(ending, broker.at.wall_ms // 1000) for ending in broker.endings],
            "links": [row for each in broker.cluster.connections.values() for row in links(each)],
        },
    )


def show_health(broker: Broker, request: AdminRequest) -> None:
    """`health`: what the checks of health look at."""
    broker.reply(request.id, health.of_node(broker))


def show_metrics(broker: Broker, request: AdminRequest) -> None:
    """`metrics`: families and their values."""
    broker.reply(request.id, metrics.of_node(broker, per_object=request.arguments["per_object"]))


def stop(broker: Broker, request: AdminRequest) -> None:
    """`stop`: gracefully."""
    broker.notice(Level.INFO, "stop-requested", session=request.session)
    broker.reply(request.id, {})
    broker.stopping.stop(Stop())


def restart_begins(broker: Broker, request: AdminRequest) -> None:
    """`restart-begins`: a stop within so many seconds is that of a restart. So nothing moves to another node for it,
    whatever `[scale-down]` says: it is served here again at once."""
    within_s: int = request.arguments["within_s"]
    broker.stopping.restart_begins(within_s * NS_PER_S)
    broker.reply(request.id, {"within_s": within_s})
