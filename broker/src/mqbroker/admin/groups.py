"""Groups of messages that are kept together in the cluster, and the nodes that own them, as a node knows them."""

from __future__ import annotations

from itertools import islice
from typing import Any

from mqbroker.base.time import NS_PER_MS
from mqbroker.core.cluster.group_owners import GroupKey, Pin
from mqbroker.core.queue.kinds import NODE_ID_SIZE
from mqbroker.node.broker.broker import Broker
from mqbroker.node.cluster.grouping.grouping import GroupingHandler
from mqbroker.node.values.inputs import AdminRequest

ROWS_MAX = 10_000


def show(broker: Broker, request: AdminRequest) -> None:
    """`groups`: one object each, those that were used last first; none where there is no grouping handler."""
    wanted, limit = request.arguments["queue"], request.arguments["limit"]
    handler = broker.grouping
    rows: list[dict[str, Any]] = []
    if handler is not None:
        pins = reversed(list(handler.core.owners.items()))
        kept = (_row(broker, handler, *each) for each in pins if wanted in ("", each[0][0]))
        rows = list(islice(kept, limit + 1))
    broker.reply(
        request.id,
        {
            "type": handler.options.type if handler is not None else None,
            "arbiter": handler.arbiter or None if handler is not None else None,
            "groups": rows[:limit],
            "is_whole": len(rows) <= limit,
        },
    )


def _row(broker: Broker, handler: GroupingHandler, key: GroupKey, pin: Pin) -> dict[str, Any]:
    node_id = pin.owner[-NODE_ID_SIZE:]
    members = [each.topology.get(node_id) for each in broker.cluster.connections.values()]
    own = broker.options.node.name if node_id == broker.node_id else None
    return {
        "handler": handler.options.name,
        "queue": key[0],
        "group": key[1],
        "node": next((member.name for member in members if member is not None), own),
        "node_id": node_id,
        "decides": handler.core.is_arbiter,
        "idle_ms": (broker.at.monotonic_ns - pin.used_ns) // NS_PER_MS,
    }
