"""`mqctl connection close`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import confirmation
from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.errors import UsageError
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (Column("closed", is_number=True),)


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Whose connections."""

    connection: Annotated[
        int | None, typer.Argument(help="Id of the connection, as `mqctl connection list` has it.")
    ] = None
    user: Annotated[str, typer.Option(help="All of this user instead.")] = ""
    container_id: Annotated[str, typer.Option(help="All with this container id instead.")] = ""
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Close connections of a node: one by its id, or all of a user or of a container id."""
    node = the_node(world, options)
    who = {"connection": options.connection, "user": options.user or None, "container_id": options.container_id or None}
    said = [f"{name.replace('_', ' ')} {value}" for name, value in who.items() if value is not None]
    if len(said) != 1:
        raise UsageError("give one id, or --user, or --container-id", "mqctl connection list")
    confirmation.yes(world, f"Close the connections of {said[0]} on {node.name}?", is_sure=options.yes)
    answer = act(world, node, "connection-close", **who)
    return report(world, options, node, Rows("mqctl.connection-close/1", COLUMNS, [answer]))
