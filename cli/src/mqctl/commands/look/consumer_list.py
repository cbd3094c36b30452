"""`mqctl consumer list`."""

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
    Column("queue"),
    Column("address", wide_only=True),
    Column("credit", is_number=True),
    Column("unsettled", is_number=True),
    Column("delivered", is_number=True),
    Column("lag", is_number=True),
    Column("idle_ms", is_number=True),
    Column("browser", wide_only=True),
    Column("selector", wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and of whom."""

    connection: Annotated[int | None, typer.Option(help="Only of the connection with this id.")] = None
    user: Annotated[str, typer.Option(help="Only of this user.")] = ""
    container_id: Annotated[str, typer.Option(help="Only of clients with this container id.")] = ""
    queue: Annotated[str, typer.Option(help="Only those of this queue.")] = ""


def run(world: World, options: Options) -> int:
    """List the consumers of all nodes; lag are the messages that wait in the queue. Exit code 3 if a node is silent."""
    arguments = {"connection": options.connection, "user": options.user or None}
    arguments |= {"container_id": options.container_id or None, "queue": options.queue or None}
    said = {name: value for name, value in arguments.items() if value is not None}
    return show(world, options, ListOperation("mqctl.consumers/1", "consumers", "consumers", COLUMNS, arguments=said))
