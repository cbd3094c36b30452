"""`mqctl message browse`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.admin import AdminClient
from mqctl.brokers.message_output import writer_of
from mqctl.brokers.requests import ActOptions, the_node
from mqctl.exits import Exit
from mqctl.nodes import open_admin
from mqctl.world import World

PAGE_MAX = 500


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which messages of which queue."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]
    selector: Annotated[str, typer.Option(help="Only messages that this selector matches: \"color = 'red'\".")] = ""
    count: Annotated[int, typer.Option(help="Stop after so many; 0: all.", min=0)] = 100


def run(world: World, options: Options) -> int:
    """Show messages of a queue without taking any, bodies one a line, -o json as JSON lines with everything.

    Deliverable messages come in their order, then scheduled ones by their time, then what is paged.
    """
    node = the_node(world, options)
    emit = writer_of(world, options.shape)
    shown = 0
    with open_admin(world, node) as session:
        for message in messages_of(session, options):
            emit(message)
            shown += 1
    world.out.flush()
    world.note(f"{shown} shown of queue {options.queue} on {node.name}")
    return Exit.DONE


def messages_of(session: AdminClient, options: Options) -> Iterator[dict[str, Any]]:
    """Page after page, until there are enough or all."""
    arguments: dict[str, Any] = {"queue": options.queue, "selector": options.selector}
    left = options.count or -1
    while left:
        arguments["limit"] = PAGE_MAX if left < 0 else min(PAGE_MAX, left)
        answer = session.call("browse", **arguments)
        yield from answer["messages"]
        left -= len(answer["messages"]) if left > 0 else 0
        if answer["next"] is None:
            return
        arguments["from"] = answer["next"]
