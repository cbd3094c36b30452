"""`mqctl producer list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("connection", is_number=True),
    Column("peer", wide_only=True),
    Column("user"),
    Column("container_id"),
    Column("channel", is_number=True, wide_only=True),
    Column("link"),
    Column("address"),
    Column("credit", is_number=True),
    Column("sent", is_number=True),
    Column("starved"),
    Column("idle_ms", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and of whom."""

    connection: Annotated[int | None, typer.Option(help="Only of the connection with this id.")] = None
    user: Annotated[str, typer.Option(help="Only of this user.")] = ""
    container_id: Annotated[str, typer.Option(help="Only of clients with this container id.")] = ""
    address: Annotated[str, typer.Option(help="Only those of this address.")] = ""


def run(world: World, options: Options) -> int:
    """List the producers of all nodes; starved ones wait for room. Exit code 3 if a node does not answer."""
    arguments = {"connection": options.connection, "user": options.user or None}
    arguments |= {"container_id": options.container_id or None, "address": options.address or None}
    said = {name: value for name, value in arguments.items() if value is not None}
    return show(world, options, ListOperation("mqctl.producers/1", "producers", "producers", COLUMNS, arguments=said))
