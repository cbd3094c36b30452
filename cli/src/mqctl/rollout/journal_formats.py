"""Which formats of journal files all nodes of a cluster read, as people are told before an upgrade and during one.

A release writes a later format only where every node reads it, and a release that does not read it cannot be gone back
to with that data. Each node answers for those it knows; a release that says nothing reads the first format, and so
does, for all that is known, a node that does not answer. Source: docs/adr/0029-upgrade.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.nodes import Node, open_admin
from mqctl.world import World

UNSAID: Final = (1,)
LOOK_S: Final = 15.0
NO_WAY_BACK: Final = "where one is written that the release before does not read, there is no rollback to it any more"


@dataclass(frozen=True, slots=True)
class FormatsRead:
    """Of one node: what it reads itself, and what all nodes read that it knows of. Ascending."""

    own: Sequence[int] = UNSAID
    by_all: Sequence[int] = UNSAID


def ask(world: World, nodes: Sequence[Node]) -> dict[str, FormatsRead | None]:
    """Node -> what it reads, None where it does not answer."""
    answers = on_each(nodes, lambda one: _ask(world, one))
    return {node.name: None if isinstance(said, CommandError) else read_of(said) for node, said in answers}


def _ask(world: World, node: Node) -> Mapping[str, Any]:
    with open_admin(world, node, LOOK_S) as session:
        topology: Mapping[str, Any] = session.call("topology")
    return topology


def read_of(topology: Mapping[str, Any]) -> FormatsRead:
    """What the operation `topology` says of it. A node of no cluster speaks for itself alone."""
    by_all = topology.get("journal_formats", UNSAID)
    own = [row.get("journal_formats", UNSAID) for row in topology["members"] if row["is_self"]]
    return FormatsRead(own[0] if own else by_all, by_all)


def read_by_all(by_node: Mapping[str, FormatsRead | None]) -> list[int]:
    """Formats that all nodes read for certain, ascending."""
    said = [set(UNSAID if one is None else one.by_all) for one in by_node.values()]
    return sorted(set.intersection(*said)) if said else []


def told(by_node: Mapping[str, FormatsRead | None]) -> str:
    """In words, for people; empty where no node answers."""
    if not any(by_node.values()):
        return ""
    common = read_by_all(by_node)
    later = sorted({each for one in by_node.values() if one for each in one.own} - set(common))
    lacking = [
        f"{each} is not for certain read by {_lacking(by_node, each)}, so nobody may write it yet" for each in later
    ]
    return "; ".join((f"journal files: all nodes read format {_and(common) or '(none)'}", *lacking, NO_WAY_BACK))


def _lacking(by_node: Mapping[str, FormatsRead | None], version: int) -> str:
    names = [name for name, one in by_node.items() if one is None or version not in one.own]
    return ", ".join(names) or "a node that is not in the inventory or not linked"


def _and(numbers: Sequence[int]) -> str:
    return " and ".join(str(one) for one in numbers)
