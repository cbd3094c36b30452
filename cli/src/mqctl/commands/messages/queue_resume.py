"""`mqctl queue resume`."""

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
    """Hand out messages of a paused queue again."""
    node = the_node(world, options)
    answer = act(world, node, "queue-resume", name=options.queue)
    return report(world, options, node, Rows("mqctl.queue-pause/1", COLUMNS, [answer]))
