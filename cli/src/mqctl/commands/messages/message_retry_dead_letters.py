"""`mqctl message retry-dead-letters`."""

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
    Column("retried", is_number=True),
    Column("left", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which dead letters."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]
    selector: Annotated[str, typer.Option(help="Only messages that this selector matches: \"color = 'red'\".")] = ""
    count: Annotated[int, typer.Option(help="At most so many; -1: all.", min=-1)] = -1
    to_address: Annotated[
        bool,
        typer.Option(
            "--to-address",
            help="Where the queue that it was in is gone: to the address, whose other queues have had it.",
        ),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Send dead letters and expired messages of a queue back to where they came from, as they were.

    What is no dead letter, or comes from an address that is full or takes no messages any more, is left. So is what
    comes from a subscription that is gone, unless --to-address is said.
    """
    node = the_node(world, options)
    confirmation.yes(world, f"Send the dead letters of queue {options.queue} of {node.name} back?", is_sure=options.yes)
    answer = act(
        world,
        node,
        "dead-letters-retry",
        queue=options.queue,
        selector=options.selector or None,
        count_max=options.count,
        to_address=options.to_address or None,
    )
    row = {"queue": options.queue, **answer}
    return report(world, options, node, Rows("mqctl.message-retry/1", COLUMNS, [row]))
