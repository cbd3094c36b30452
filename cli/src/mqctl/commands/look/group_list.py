"""`mqctl group list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("handler", wide_only=True),
    Column("queue"),
    Column("group"),
    Column("node"),
    Column("node_id", wide_only=True),
    Column("decides"),
    Column("idle_ms", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and which groups."""

    queue: Annotated[str, typer.Option(help="Only groups of this queue.")] = ""
    all: Annotated[bool, typer.Option("--all", help="Also what nodes remember that do not decide.")] = False


def run(world: World, options: Options) -> int:
    """List groups of messages that are kept together, each with the node that owns it. Exit code 3 if a node is silent.

    The node that decides (type LOCAL) knows all of them, others those that they have asked for.
    """
    listing = ListOperation(
        "mqctl.groups/1", "groups", "groups", COLUMNS,
        arguments={"queue": options.queue} if options.queue else {},
        keep=lambda row: options.all or row["decides"],
    )  # fmt: skip
    return show(world, options, listing)
