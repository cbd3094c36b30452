"""`mqctl queue list`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node, NodeOptions, choose, nodes_of, open_admin
from mqctl.output import Column, Rows, write
from mqctl.progress import counting
from mqctl.world import World

COLUMNS = (
    Column("host"),
    Column("instance"),
    Column("queue"),
    Column("address", wide_only=True),
    Column("messages", is_number=True),
    Column("delivering", is_number=True),
    Column("consumers", is_number=True),
    Column("routing_type", wide_only=True),
    Column("durable", wide_only=True),
    Column("messages_added", is_number=True, wide_only=True),
    Column("messages_acknowledged", is_number=True, wide_only=True),
)
NAMES = {
    "name": "queue",
    "message_count": "messages",
    "delivering_count": "delivering",
    "consumer_count": "consumers",
}


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, NodeOptions):
    """Which nodes."""

    host: Annotated[str, typer.Option(help="Only this node: a host, or host/instance.")] = ""


def run(world: World, options: Options) -> int:
    """List the queues of all nodes with their messages and consumers. Exit code 3 if a node does not answer."""
    nodes = nodes_of(world, options)
    if options.host:
        nodes = [choose(nodes, options.host)]
    rows: list[dict[str, Any]] = []
    is_whole = True
    with counting(world, "hosts asked", len(nodes)) as advance:
        for _, found in on_each(nodes, lambda one: ask(world, one), lambda _: advance(1)):
            if isinstance(found, CommandError):
                is_whole = False
                world.note(f"mqctl: {found.what}")
            else:
                rows += found
    write(Rows("mqctl.queues/1", COLUMNS, rows, {"is_whole": is_whole}), options.shape, world.data)
    return Exit.DONE if is_whole else Exit.DEGRADED


def ask(world: World, node: Node) -> list[dict[str, Any]]:
    """The queues of one node."""
    with open_admin(world, node) as session:
        answer = session.call("queues")
    listed = answer.get("queues", []) if isinstance(answer, Mapping) else answer
    return [row_of(node, one) for one in listed]


def row_of(node: Node, queue: Mapping[str, Any]) -> dict[str, Any]:
    """One queue as a row: counts under our names, the rest as the broker has it."""
    renamed = {NAMES.get(name, name): value for name, value in queue.items()}
    return {"host": node.host, "instance": node.instance, **renamed}
