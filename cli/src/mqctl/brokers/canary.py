"""Canaries over the links of nodes: sent by the brokers themselves, told here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mqctl.admin import AdminClient, AdminError
from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.nodes import Node, open_admin
from mqctl.world import World

GOOD: Final = ("confirmed", "gone", "unsupported")
NOT_FOUND: Final = "amqp:not-found"
EVERY_S: Final = 1.0


def crossed(session: AdminClient, timeout_s: float) -> list[dict[str, Any]]:
    """What became of a canary over each link of a node, within so many seconds; a broker that knows none has none."""
    try:
        answer: dict[str, list[dict[str, Any]]] = session.call(
            "cluster-canary", timeout_s, timeout_ms=max(1, int(timeout_s * 1000))
        )
    except AdminError as error:
        if error.condition == NOT_FOUND:
            return []
        raise
    return answer["links"]


def send(
    world: World, nodes: Sequence[Node], timeout_s: float
) -> list[tuple[Node, list[dict[str, Any]] | CommandError]]:
    """Canaries of all nodes at the same time."""

    def one(node: Node) -> list[dict[str, Any]]:
        with open_admin(world, node) as session:
            return crossed(session, timeout_s)

    return list(on_each(nodes, one))


def trouble(row: Mapping[str, Any]) -> str:
    """What is wrong with a link, empty where nothing is."""
    if row["state"] in GOOD:
        return ""
    place = row["connector"] or "nodes that names lead to"
    name = f"{row['node']} ({place})" if row["node"] else place
    return f"link to {name}: {row['state']}" + (f": {row['why']}" if row["why"] else "")


def is_among(rows: Sequence[Mapping[str, Any]], ids: Collection[str]) -> bool:
    """Whether something is wrong with a link of a node to another one of these, the ids of both included. A place or
    name of which nobody knows whose it is may be that of each node that this one has no link to."""
    unlinked = set(ids) - {row["node_id"] for row in rows}
    has_unknown = len(unlinked) > 1  # itself, and another one
    return any(trouble(row) and (row["node_id"] in ids or (not row["node_id"] and has_unknown)) for row in rows)


@dataclass(frozen=True, slots=True)
class CanaryPatience:
    """Seconds that a canary may take, and that are waited for links that do not take one."""

    canary_s: float = 5.0
    wait_s: float = 60.0


def troubles(
    world: World, nodes: Sequence[Node], ids: Collection[str], patience: CanaryPatience
) -> tuple[list[str], bool]:
    """Every link of these nodes that no canary has crossed, and whether one of them is between nodes of these ids.

    Only for those it is waited: what is wrong with others has another cause.
    """
    start_s = world.monotonic_s()
    while True:
        said, is_ours = [], False
        for node, rows in send(world, nodes, patience.canary_s):
            if isinstance(rows, CommandError):
                said.append(rows.what)
                is_ours = True
                continue
            said += [f"{node.name}: {each}" for each in map(trouble, rows) if each]
            is_ours = is_ours or is_among(rows, ids)
        if not is_ours or world.monotonic_s() - start_s + EVERY_S > patience.wait_s:
            return said, is_ours
        world.sleep_s(EVERY_S)
