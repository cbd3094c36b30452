"""`mqctl message move`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import confirmation
from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("queue"),
    Column("address"),
    Column("moved", is_number=True),
    Column("left", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which messages, from where, to where."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]
    address: Annotated[str, typer.Argument(help="Address that they go to.")]
    selector: Annotated[str, typer.Option(help="Only messages that this selector matches: \"color = 'red'\".")] = ""
    count: Annotated[int, typer.Option(help="At most so many; -1: all.", min=-1)] = -1
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Move messages of a queue to another address of the same node. A crash loses and doubles none.

    Messages that no queue of the address would take are left, so are those that do not fit where it is full and would
    refuse or drop them, and those that consumers have.
    """
    node = the_node(world, options)
    question = f"Move messages of queue {options.queue} of {node.name} to address {options.address}?"
    confirmation.yes(world, question, is_sure=options.yes)
    answer = act(
        world, node, "messages-move", queue=options.queue, address=options.address, selector=options.selector or None,
        count_max=options.count,
    )  # fmt: skip
    return report(
        world,
        options,
        node,
        Rows("mqctl.message-move/1", COLUMNS, [{"queue": options.queue, "address": options.address, **answer}]),
    )
