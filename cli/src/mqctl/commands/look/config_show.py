"""`mqctl config show`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("option"),
    Column("value"),
    Column("pending"),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and which options."""

    name: Annotated[str, typer.Argument(help="Only options whose name has this in it.")] = ""


def run(world: World, options: Options) -> int:
    """Show the options that hold on all nodes; pending is what waits for a restart. Exit code 3 if a node is silent."""
    listing = ListOperation(
        "mqctl.options/1", "config-show", "options", COLUMNS, keep=lambda row: options.name in row["option"]
    )
    return show(world, options, listing)
