"""`mqctl queue pause`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("name"),
    Column("paused"),
    Column("changed"),
)


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which queue."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]


def run(world: World, options: Options) -> int:
    """Hand out no messages of a queue until it is resumed, also over restarts of the broker."""
    node = the_node(world, options)
    answer = act(world, node, "queue-pause", name=options.queue)
    return report(world, options, node, Rows("mqctl.queue-pause/1", COLUMNS, [answer]))
