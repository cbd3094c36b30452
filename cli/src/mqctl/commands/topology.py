"""`mqctl topology`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.asking import AskOptions, Listing, gather, show
from mqctl.exits import Exit
from mqctl.output import Column, printable
from mqctl.world import World

COLUMNS = (
    Column("connection"),
    Column("node"),
    Column("connector"),
    Column("state"),
    Column("since_ms", is_number=True),
    Column("bindings", is_number=True),
    Column("consumers", is_number=True),
    Column("depth", is_number=True),
    Column("unanswered", is_number=True),
    Column("lag_ms", is_number=True),
    Column("why"),
    Column("node_id", wide_only=True),
    Column("attempts", is_number=True, wide_only=True),
    Column("queues", is_number=True, wide_only=True),
)
LINKS = Listing("mqctl.topology/1", "topology", "links", COLUMNS)
MEMBERS = Listing("mqctl.topology/1", "topology", "members", ())


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and how their links are shown."""

    dot: Annotated[bool, typer.Option("--dot", help="As a graph for Graphviz; links that are not up are dashed.")] = (
        False
    )


def run(world: World, options: Options) -> int:
    """Show the links of each broker to the other nodes of its cluster, and what waits there.

    Exit code 3 if a node does not answer.
    """
    if not options.dot:
        return show(world, options, LINKS)
    members, are_all_members = gather(world, options, MEMBERS)
    links, are_all_links = gather(world, options, LINKS)
    for line in graph(members, links):
        world.data.file.write(printable(line) + "\n")
    return Exit.DONE if are_all_members and are_all_links else Exit.DEGRADED


def graph(members: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of a directed graph in the language of Graphviz."""
    own = {(row["host"], row["instance"]): row["node"] for row in members if row["is_self"]}
    yield "digraph cluster {"
    for name in sorted({row["node"] for row in members}):
        yield f"  {json.dumps(name)};"
    for row in links:
        source, target = own[row["host"], row["instance"]], row["node"] or row["connector"]
        label = row["state"] if not row["depth"] else f"{row['state']}, {row['depth']} wait"
        style = "solid" if row["state"] == "up" else "dashed"
        yield f"  {json.dumps(source)} -> {json.dumps(target)} [label={json.dumps(label)}, style={style}];"
    yield "}"
