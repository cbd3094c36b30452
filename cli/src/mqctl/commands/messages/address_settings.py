"""`mqctl address settings`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("setting"),
    Column("value"),
    Column("match"),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which address, on which nodes."""

    address: Annotated[str, typer.Argument(help="An address; it need not exist.")]


def run(world: World, options: Options) -> int:
    """Show the settings that hold at an address, and which match says so (none: built in)."""
    arguments = {"address": options.address}
    return show(
        world,
        options,
        ListOperation("mqctl.settings/1", "address-settings-show", "settings", COLUMNS, arguments=arguments),
    )
