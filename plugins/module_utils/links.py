# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Links of a node to the others of its cluster: which stand, and which of those that stood do not do their work."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
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
    """A sentence for each link that stood and does not stand, or that no canary has crossed; none: all is whole.

    A node that has come back with another id is known by its name. For a connection that is not there any more stands
    any that leads there: one of two that were there may be taken away. Where none is left, nothing is missing.
    """
    return [text for one in wanted if (text := _fault(one, topology or {}, (canary or {}).get("links", [])))]


def _fault(one: dict[str, Any], topology: dict[str, Any], crossings: list[dict[str, Any]]) -> str:
    """What is wrong with this link; empty where nothing is."""
    name = f"{one['node']} ({one['node_id']})" if one["node"] else one["node_id"]
    if "members" in topology and not topology["members"]:  # each connection has the node itself as a member
        return ""
    if one["direction"] == IN:
        nodes = {row["node_id"]: row["node"] for row in topology.get("members", [])}
        is_back = any(_leads_to(one, found, nodes.get(found)) for found in topology.get("inbound", []))
        return "" if is_back else f"{name} has no link to this node any more"
    is_known = one["connection"] in {row["connection"] for row in topology.get("members", [])}
    found = [
        row
        for row in crossings
        if _leads_to(one, row["node_id"], row.get("node"))
        and (row["connection"] == one["connection"] or (topology and not is_known))
    ]
    if not found:
        return f"there is no link to {name} any more"
    if any(row["state"] in GOOD for row in found):
        return ""
    row = found[0]
    return f"link to {name} at {row['connector']}: {row['state']}: {row['why'] or 'its node has stopped'}"


def missing(ask: Asked, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of these links that do not stand, or that no canary crosses, by one look; `ask` as in `wait`."""
    canary, topology = ask("cluster-canary", timeout_ms=1000 * CANARY_S), ask("topology")
    return [one for one in wanted if faults([one], topology, canary)]


def _key(one: dict[str, Any]) -> tuple[str, ...]:
    return one["direction"], one["connection"], one["node_id"]


def _leads_to(one: dict[str, Any], node_id: str | None, node: str | None) -> bool:
    return node_id == one["node_id"] or (bool(node) and node == one["node"])


def has_left(one: dict[str, Any], topology: dict[str, Any] | None, nodes: Collection[str] | None) -> bool:
    """Whether the other node of a link is none of the cluster any more: `nodes`, the names of the inventory, do not
    have it, and this node does not know it. None of them: nobody has.

    A process that was just started knows nobody, and neither does one whose links do not come about. So it counts only
    where another member, which tells of all that it knows, has a link to or from this one, and where each link that is
    tried leads to a node that is known.
    """
    if nodes is None or topology is None or not one["node"] or one["node"] in nodes:
        return False
    tried, inbound = topology.get("links", []), topology.get("inbound", [])
    if not (inbound or any(row["state"] == "up" for row in tried)) or not all(row["node_id"] for row in tried):
        return False
    rows = [*topology.get("members", []), *tried]
    return one["node_id"] not in {*(row["node_id"] for row in rows), *inbound}


def wait(
    ask: Asked,
    wanted: list[dict[str, Any]],
    wait_s: float,
    nodes: Collection[str] | None = None,
    stood: Collection[dict[str, Any]] = (),
) -> tuple[list[str], dict[str, Any] | None]:
    """Until all these links stand and canaries have crossed them, or the time is over: the faults, the last answer.
    Those to nodes that have left (`nodes`, as in `has_left`) are no faults then: what is known of the others comes with
    the links, so it is not looked at before. `stood`: links that stood a moment ago, to nobody who has left.

    `ask(operation, **arguments)` gives the result of an operation, None where there is none.
    """
    deadline_s = time.monotonic() + wait_s
    while True:
        left_s = deadline_s - time.monotonic()
        canary = ask("cluster-canary", timeout_ms=int(1000 * max(1, min(CANARY_S, left_s))))
        topology = ask("topology")
        found = faults(wanted, topology, canary)
        if found and time.monotonic() + EVERY_S > deadline_s:
            just_now = [_key(one) for one in stood]
            left = [one for one in wanted if _key(one) in just_now or not has_left(one, topology, nodes)]
            return faults(left, topology, canary), canary
        if not found:
            return found, canary
        time.sleep(EVERY_S)
