"""`mqctl quota list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("user"),
    Column("queues", is_number=True),
    Column("queues_max", is_number=True),
    Column("addresses", is_number=True),
    Column("addresses_max", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and whose."""

    user: Annotated[str, typer.Option(help="Only that of this user.")] = ""


def run(world: World, options: Options) -> int:
    """List users that have made queues or addresses which are there, with how many and how many they may.

    `mqctl connection list --columns connection,user,queues,addresses` shows it of connections. Exit code 3 if a node is
    silent.
    """
    listing = ListOperation(
        "mqctl.quotas/1", "quotas", "quotas", COLUMNS,
        keep=lambda row: not options.user or row["user"] == options.user,
    )  # fmt: skip
    return show(world, options, listing)
