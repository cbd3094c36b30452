"""Options of cluster connections for tests: those that a file without them has, and changes."""

from __future__ import annotations

from typing import Any

from mqbroker.config.declarations.cluster_connections import ClusterConnectionTable, cluster_connection
from mqbroker.config.slices import ClusterConnectionOptions

MANDATORY = {"name": "all", "connector-ref": "own"}


def connection(**changes: Any) -> ClusterConnectionOptions:
    """As a file would have it; names with underscores."""
    changes = {name.replace("_", "-"): value for name, value in changes.items()}
    return cluster_connection(ClusterConnectionTable.model_validate(MANDATORY | changes))
