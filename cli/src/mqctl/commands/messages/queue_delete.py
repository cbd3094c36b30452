"""`mqctl queue delete`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import confirmation
from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("name"),
    Column("messages", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which queue, and how."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]
    force: Annotated[bool, typer.Option("--force", help="Detach its consumers; without it they are a refusal.")] = False
    store_and_forward: Annotated[
        bool,
        typer.Option("--store-and-forward", help="Also a queue that holds messages for another node."),
    ] = False
    configured: Annotated[
        bool,
        typer.Option(
            "--configured",
            help="Also a queue that broker.toml declares; the next start or reload makes it again, empty.",
        ),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Delete a queue of a node with all its messages."""
    node = the_node(world, options)
    if not options.yes:
        queue = act(world, node, "queue-show", name=options.queue)
        what = f"{queue['message_count']} messages and {queue['consumer_count']} consumers"
        confirmation.yes(world, f"Delete queue {options.queue} of {node.name} with {what}?", is_sure=False)
    answer = act(
        world, node, "queue-delete", name=options.queue, force=options.force,
        store_and_forward=options.store_and_forward or None, configured=options.configured or None,
    )  # fmt: skip
    return report(world, options, node, Rows("mqctl.queue-delete/1", COLUMNS, [answer]))
