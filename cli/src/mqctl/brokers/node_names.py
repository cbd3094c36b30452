"""Names and ids of nodes, as brokers tell them: which node a person means. Pure.

A node's name is that of its host, or `host-instance`, unless its options give it another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mqctl.errors import UsageError

NODE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def names_of(topologies: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Id of each node that brokers know of: its name."""
    return {
        str(row["node_id"]): str(row["node"])
        for topology in topologies
        for row in (*topology["members"], *topology["links"])
        if row["node_id"] and row["node"]
    }


def node_id_of(wanted: str, names: Mapping[str, str]) -> str:
    """The id of the node that is meant by an id or a name. Raises UsageError."""
    if NODE_ID.fullmatch(wanted.lower()):
        return wanted.lower()
    node_ids = [node_id for node_id, name in names.items() if name in (wanted, called(wanted))]
    if len(node_ids) > 1:
        raise UsageError(f"several nodes are called {wanted}", f"mqctl cluster forget {node_ids[0]}")
    if not node_ids:
        there = ", ".join(sorted(set(names.values()))) or "none"
        raise UsageError(f"no broker knows of a node {wanted} (nodes: {there})", "mqctl topology -o json")
    return node_ids[0]


def called(node: str) -> str:
    """What `host` or `host/instance` of the inventory calls itself, where the instance has no name of its own."""
    return node.replace("/", "-")
