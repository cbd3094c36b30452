"""`mqctl discovery list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("group"),
    Column("discovery"),
    Column("node"),
    Column("connector"),
    Column("node_id"),
    Column("source"),
    Column("age_ms", is_number=True),
    Column("conflict"),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and what they hear in which group."""

    group: Annotated[str, typer.Option(help="Only what is heard in this discovery group.")] = ""


def run(world: World, options: Options) -> int:
    """List the nodes that each broker hears. Exit code 3 if a node does not answer."""
    listing = ListOperation(
        "mqctl.discovery/1", "discovery", "nodes", COLUMNS,
        keep=lambda row: not options.group or row["group"] == options.group,
    )  # fmt: skip
    return show(world, options, listing)
