"""What a node is and holds: what it says of itself, and where it does not, what systemd says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqctl.certificates.endings import soon_ending
from mqctl.errors import CommandError, Unreachable
from mqctl.nodes import Node, open_admin, shell
from mqctl.output import Column
from mqctl.ssh import shell as remote
from mqctl.world import World

COLUMNS = (
    Column("host"),
    Column("instance"),
    Column("state"),
    Column("version"),
    Column("node_id"),
    Column("queues", is_number=True),
    Column("messages", is_number=True),
    Column("links_up"),
    Column("forwarding", is_number=True),
    Column("lag_ms", is_number=True),
    Column("uptime_s", is_number=True),
    Column("connections", is_number=True, wide_only=True),
    Column("unit", wide_only=True),
    Column("note"),
)
LINK_FIELDS = (
    "connection", "node", "node_id", "connector", "state", "since_ms", "why", "depth", "unanswered", "lag_ms",
)  # fmt: skip
# ActiveState of systemd -> our word.
STATES = {"active": "running", "activating": "starting", "reloading": "running", "deactivating": "stopping"}


def look(world: World, node: Node, timeout_s: int) -> dict[str, Any]:
    """What one node says of itself; where it does not, what systemd says of it."""
    unit = unit_of(world, node, timeout_s) if node.access is not None else ""
    if unit and STATES.get(unit) not in {"running", "starting"}:
        state = "absent" if unit == "absent" else "failed" if unit == "failed" else "stopped"
        return {"state": state, "unit": unit, "note": _advice(node, state)}
    try:
        with open_admin(world, node, timeout_s) as session:
            answer = session.call("status")
    except Unreachable:
        raise
    except CommandError as error:
        return {"state": STATES.get(unit, "stopped") if unit != "active" else "failed", "unit": unit,
                "note": error.what.removeprefix(f"{node.name}: ")}  # fmt: skip
    return {"state": "running", "unit": unit, **described(answer)}


def unit_of(world: World, node: Node, timeout_s: int) -> str:
    """ActiveState of the unit, or `absent` where there is none."""
    assert node.access is not None
    command = ["systemctl", "show", f"mqbroker@{node.instance}.service", "--property=LoadState,ActiveState"]
    result = remote.run(shell(world, node.access), command, timeout_s=timeout_s)
    unit = dict(line.split("=", 1) for line in result.out.decode(errors="replace").splitlines() if "=" in line)
    if unit.get("LoadState") == "not-found":
        return "absent"
    return unit.get("ActiveState", "") or result.complaint


def _advice(node: Node, state: str) -> str:
    if state == "absent":
        return "nothing is installed; try: mqctl rollout"
    return f"look at: journalctl -u mqbroker@{node.instance} on {node.host}"


def described(answer: Any) -> dict[str, Any]:
    """The columns out of an answer to the operation `status`."""
    if not isinstance(answer, Mapping):
        return {}
    uptime_ms, links = answer.get("uptime_ms"), answer.get("links") or []
    return {
        "version": answer.get("version"),
        "node_id": answer.get("node_id"),
        "queues": answer.get("queues"),
        "messages": answer.get("messages"),
        "connections": answer.get("connections"),
        "links_up": f"{sum(one['state'] == 'up' for one in links)}/{len(links)}" if links else None,
        "forwarding": sum(one["depth"] for one in links) if links else None,
        "lag_ms": max(one["lag_ms"] for one in links) if links else None,
        "links": [{name: one[name] for name in LINK_FIELDS} for one in links],
        "certificates": list(answer.get("certificates") or []),
        "note": "; ".join(text for _, text in soon_ending(answer)),
        "uptime_s": uptime_ms // 1000 if isinstance(uptime_ms, int) else answer.get("uptime_s"),
    }


def row_of(node: Node, outcome: dict[str, Any] | CommandError) -> dict[str, Any]:
    """One row, whatever became of the host."""
    row: dict[str, Any] = {one.name: None for one in COLUMNS}
    row |= {"host": node.host, "instance": node.instance, "note": ""}
    if isinstance(outcome, CommandError):
        why = outcome.what.removeprefix(f"{node.host}: ")
        return row | {"state": "unreachable" if isinstance(outcome, Unreachable) else "failed", "note": why}
    return row | outcome
