# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Links of a node to the others of its cluster: which stand, and which of those that stood do not do their work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# The second: its node runs an earlier release, as in the middle of an upgrade.
GOOD = ("confirmed", "unsupported")
OUT, IN = "out", "in"
EVERY_S = 0.5
# A canary that is not back by then is asked for once more while there is time.
CANARY_S = 10
Asked = Callable[..., Any]


def standing(topology: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The links that stand, of an answer to the operation `topology`: outwards by connection, inwards by node."""
    if topology is None:
        return []
    names = {row["node_id"]: row["node"] for row in topology.get("members", [])}
    rows = [
        {"direction": OUT, "connection": row["connection"], "node_id": row["node_id"], "node": row["node"]}
        for row in topology.get("links", [])
        if row["state"] == "up"
    ]
    rows += [
        {"direction": IN, "connection": "", "node_id": node_id, "node": names.get(node_id)}
        for node_id in topology.get("inbound", [])
    ]
    return rows


def faults(wanted: list[dict[str, Any]], topology: dict[str, Any] | None, canary: dict[str, Any] | None) -> list[str]:
    """A sentence for each link that stood and does not stand, or that no canary has crossed; none: all is whole."""
    crossed = {(row["connection"], row["node_id"]): row for row in (canary or {}).get("links", [])}
    inbound = set((topology or {}).get("inbound", []))
    found = []
    for one in wanted:
        name = f"{one['node']} ({one['node_id']})" if one["node"] else one["node_id"]
        if one["direction"] == IN:
            if one["node_id"] not in inbound:
                found.append(f"{name} has no link to this node any more")
            continue
        row = crossed.get((one["connection"], one["node_id"]))
        if row is None:
            found.append(f"there is no link to {name} any more")
        elif row["state"] not in GOOD:
            found.append(
                f"link to {name} at {row['connector']}: {row['state']}: {row['why'] or 'its node has stopped'}"
            )
    return found


def wait(ask: Asked, wanted: list[dict[str, Any]], wait_s: float) -> tuple[list[str], dict[str, Any] | None]:
    """Until all these links stand and canaries have crossed them, or the time is over: the faults, the last answer.

    `ask(operation, **arguments)` gives the result of an operation, None where there is none.
    """
    deadline_s = time.monotonic() + wait_s
    while True:
        left_s = deadline_s - time.monotonic()
        canary = ask("cluster-canary", timeout_ms=int(1000 * max(1, min(CANARY_S, left_s))))
        found = faults(wanted, ask("topology"), canary)
        if not found or time.monotonic() + EVERY_S > deadline_s:
            return found, canary
        time.sleep(EVERY_S)
