"""What nodes of a simulated cluster are told of each other, and how many there are.

Meshes, chains, rings, and nodes that find each other by datagrams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from mqbroker.config.declarations.cluster_connections import ClusterConnectionTable, cluster_connection
from mqbroker.config.declarations.options import BrokerFile, default_listener, to_slices
from mqbroker.config.slices import BrokerOptions, ConnectorOptions

PORT: Final = 5673
MESH, CHAIN, RING, DISCOVERED = "mesh", "chain", "ring", "discovered"
SIZES: Final = (2,) * 24 + (3,) * 22 + (4,) * 9 + (5,) * 5 + (6, 7)
MODES: Final = ("ON_DEMAND",) * 7 + ("OFF_WITH_REDISTRIBUTION",) * 2 + ("STRICT",)
GROUP: Final = {"group-address": "231.7.7.7", "group-port": 9876}


def node_id(number: int) -> str:
    """As a node has it for its life."""
    return f"{number:08d}-0000-4000-8000-{number:012d}"


def shape_of(rng: Random, count: int) -> str:
    """How so many nodes hang together."""
    dice = rng.random()
    if count > 2 and dice < 0.2:
        return CHAIN
    if count > 3 and dice < 0.4:
        return RING
    return DISCOVERED if dice > 0.8 else MESH


def links_of(rng: Random, shape: str, number: int, count: int) -> tuple[list[int], dict[str, Any]]:
    """Which others a node dials first, and options of its cluster connection."""
    direct = {"max-hops": count, "allow-direct-connections-only": True}
    if shape == CHAIN:
        return [each for each in (number - 1, number + 1) if 0 <= each < count], direct
    if shape == RING:
        return sorted({(number - 1) % count, (number + 1) % count}), direct
    if shape == DISCOVERED:
        return [], {"discovery-group-ref": "g"}
    others = [each for each in range(count) if each != number]
    return (others[:1] if rng.random() < 0.3 else others), {}  # the topology tells of the rest


def clustered(options: BrokerOptions, number: int, dialled: list[int], changes: Mapping[str, Any]) -> BrokerOptions:
    """A node whose cluster connection begins with these others; with none, with those whom it hears."""
    connectors = tuple(
        ConnectorOptions(f"to-node{each}" if each != number else "own", f"node{each}", PORT, tls_enabled=False)
        for each in sorted({*dialled, number})
    )
    values: dict[str, Any] = {
        "name": "c", "connector-ref": "own",
        "check-period": 3000, "connection-ttl": 6000, "retry-interval": 50, "max-retry-interval": 400,
        "call-timeout": 2000, "notification-interval": 100, **changes,
    }  # fmt: skip
    groups = BrokerFile()
    if dialled:
        values["static-connectors"] = [f"to-node{each}" for each in dialled]
    else:
        own = {"name": "own", "host": f"node{number}", "port": PORT}
        sends = {"name": "g", **GROUP, "connector-ref": "own", "broadcast-period": 500}
        hears = {"name": "g", **GROUP, "refresh-timeout": 2000}
        tables = {"connectors": [own], "broadcast-groups": [sends], "discovery-groups": [hears]}
        groups = BrokerFile.model_validate(tables)
    found = to_slices(groups)
    settings = options.address_settings
    built_in = replace(settings.built_in, redistribution_delay=0, max_delivery_attempts=-1)
    listener = replace(
        default_listener(), name="cluster", kind="cluster", port=PORT, sasl_mechanisms=("SCRAM-SHA-256",),
        idle_timeout_ms=6000,
    )  # fmt: skip
    return replace(
        options,
        listeners=(*options.listeners, listener),
        connectors=connectors,
        cluster_connections=(cluster_connection(ClusterConnectionTable.model_validate(values)),),
        address_settings=replace(settings, built_in=built_in),
        broadcast_groups=found.broadcast_groups,
        discovery_groups=found.discovery_groups,
    )
