"""Discovery: the groups of a node and the nodes that it hears."""

from __future__ import annotations

from typing import Any

from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.discovery.broadcaster import Broadcaster
from mqbroker.cluster.discovery.datagram import Drop
from mqbroker.cluster.discovery.group import DiscoveryGroup
from mqbroker.cluster.discovery.places import place_of
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest

# What is dropped without anything being wrong. By gossip the same record comes by many ways.
EVERYDAY = {
    "udp": (Drop.OWN, Drop.PROBE), "file": (Drop.OWN,), "dns": (), "gossip": (Drop.OWN, Drop.REPLAYED),
}  # fmt: skip


def show(broker: Broker, request: AdminRequest) -> None:
    """`discovery`: groups of both kinds, and the nodes that are heard.

    What a node hears of itself and of `mqctl preflight`, and by gossip what it knows already, is among
    `dropped_by_reason`, and not in `dropped`, which should stay 0. What DNS names has no node, node id and boot id.
    """
    discovery = broker.discovery
    broker.reply(
        request.id,
        {
            "groups": [
                *(_broadcast(each) for each in discovery.broadcasters.values()),
                *(_listening(each) for each in discovery.groups.values()),
            ],
            "nodes": [row for each in discovery.groups.values() for row in _nodes(each, broker.at.monotonic_ns)],
            "conflicts": discovery.conflicts,
        },
    )


def _broadcast(group: Broadcaster) -> dict[str, Any]:
    options = group.options
    return {
        "group": options.name,
        "kind": "broadcast",
        "discovery": options.discovery,
        "place": place_of(options),
        "local": options.local_bind_address or None,
        "state": "failing" if group.trouble else "sending",
        "trouble": group.trouble or None,
        "connector": options.connector_ref,
        "sent": group.sent_total,
        "failed": group.failed_total,
        "heard": None,
        "dropped": None,
        "dropped_by_reason": None,
    }


def _listening(group: DiscoveryGroup) -> dict[str, Any]:
    options = group.options
    return {
        "group": options.name,
        "kind": "discovery",
        "discovery": options.discovery,
        "place": place_of(options),
        "local": options.local_bind_address or None,
        "state": group.state.value,
        "trouble": group.trouble or None,
        "connector": None,
        "sent": None,
        "failed": None,
        "heard": group.heard_total,
        "dropped": sum(count for drop, count in group.dropped.items() if drop not in EVERYDAY[options.discovery]),
        "dropped_by_reason": {drop.value: count for drop, count in group.dropped.items()},
    }


def _nodes(group: DiscoveryGroup, now_ns: int) -> list[dict[str, Any]]:
    conflicts = group.table.conflicts
    return [
        {
            "group": group.options.name,
            "discovery": group.options.discovery,
            "node": entry.announcement.name if entry.announcement.node_id else None,
            "node_id": entry.announcement.node_id or None,
            "boot_id": entry.announcement.boot_id or None,
            "connector": entry.announcement.connectors[0].uri,
            "connectors": [one.uri for one in entry.announcement.connectors],
            "source": entry.source,
            "age_ms": (now_ns - entry.heard_ns) // NS_PER_MS,
            "known_for_ms": (now_ns - entry.found_ns) // NS_PER_MS,
            "period_ms": entry.announcement.period_ms or None,
            "conflict": entry.announcement.node_id in conflicts,
        }
        for entry in group.table.entries
    ]
