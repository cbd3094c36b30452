"""`mqctl queue purge`."""

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
    Column("purged", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which messages of which queue."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]
    selector: Annotated[str, typer.Option(help="Only messages that this selector matches: \"color = 'red'\".")] = ""
    store_and_forward: Annotated[
        bool,
        typer.Option("--store-and-forward", help="Also a queue that holds messages for another node."),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Drop the messages of a queue, but not those that consumers have."""
    node = the_node(world, options)
    if not options.yes:
        count = act(world, node, "queue-show", name=options.queue)["message_count"]
        what = f"those of its {count} messages that match" if options.selector else f"{count} messages"
        confirmation.yes(world, f"Purge queue {options.queue} of {node.name}: drop {what}?", is_sure=False)
    answer = act(
        world, node, "queue-purge", name=options.queue, selector=options.selector or None,
        store_and_forward=options.store_and_forward or None,
    )  # fmt: skip
    return report(world, options, node, Rows("mqctl.queue-purge/1", COLUMNS, [{"queue": options.queue, **answer}]))
