"""`mqctl session list`."""

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
    Column("channel", is_number=True),
    Column("consumers", is_number=True),
    Column("producers", is_number=True),
    Column("unsettled", is_number=True),
    Column("window", is_number=True, wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and of whom."""

    connection: Annotated[int | None, typer.Option(help="Only of the connection with this id.")] = None
    user: Annotated[str, typer.Option(help="Only of this user.")] = ""
    container_id: Annotated[str, typer.Option(help="Only of clients with this container id.")] = ""


def run(world: World, options: Options) -> int:
    """List the AMQP sessions of all nodes. Exit code 3 if a node does not answer."""
    arguments = {"connection": options.connection, "user": options.user or None}
    arguments |= {"container_id": options.container_id or None}
    said = {name: value for name, value in arguments.items() if value is not None}
    return show(world, options, ListOperation("mqctl.sessions/1", "sessions", "sessions", COLUMNS, arguments=said))
