"""`mqctl connection list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("connection", is_number=True),
    Column("peer"),
    Column("user"),
    Column("container_id"),
    Column("listener"),
    Column("sessions", is_number=True),
    Column("links", is_number=True),
    Column("unsettled", is_number=True),
    Column("queues", is_number=True, wide_only=True),
    Column("addresses", is_number=True, wide_only=True),
    Column("blocked"),
    Column("closing", wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and whose."""

    user: Annotated[str, typer.Option(help="Only those of this user.")] = ""


def run(world: World, options: Options) -> int:
    """List the connections of all nodes. Exit code 3 if a node does not answer."""
    listing = ListOperation(
        "mqctl.connections/1", "connections", "connections", COLUMNS,
        keep=lambda row: not options.user or row["user"] == options.user,
    )  # fmt: skip
    return show(world, options, listing)
