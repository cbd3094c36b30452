"""`mqctl message retry-dead-letters`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import confirm
from mqctl.asking import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("queue"),
    Column("retried", is_number=True),
    Column("left", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which dead letters."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]
    selector: Annotated[str, typer.Option(help="Only messages that this selector matches: \"color = 'red'\".")] = ""
    count: Annotated[int, typer.Option(help="At most so many; -1: all.", min=-1)] = -1
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Send dead letters and expired messages of a queue back to where they came from, as they were.

    What is no dead letter, or comes from an address that is full or takes no messages any more, is left.
    """
    node = the_node(world, options)
    confirm.yes(world, f"Send the dead letters of queue {options.queue} of {node.name} back?", is_sure=options.yes)
    answer = act(
        world,
        node,
        "dead-letters-retry",
        queue=options.queue,
        selector=options.selector or None,
        count_max=options.count,
    )
    row = {"queue": options.queue, **answer}
    return report(world, options, node, Rows("mqctl.message-retry/1", COLUMNS, [row]))
