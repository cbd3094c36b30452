"""`mqctl queue show`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("attribute"),
    Column("value"),
)


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which queue."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]


def run(world: World, options: Options) -> int:
    """Show everything about a queue of a node, an attribute a row."""
    node = the_node(world, options)
    answer = act(world, node, "queue-show", name=options.queue)
    rows = [{"attribute": name, "value": value} for name, value in answer.items()]
    return report(world, options, node, Rows("mqctl.queue/1", COLUMNS, rows))
