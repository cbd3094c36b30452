"""`mqctl cluster forget`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl import confirm
from mqctl.asking import PLACE, AskOptions, act, nodes_meant
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.output import Column, Rows, write
from mqctl.world import World

COLUMNS = (*PLACE, Column("node_id"), Column("action"), Column("messages", is_number=True))


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which node, and what becomes of messages for it."""

    node_id: Annotated[str, typer.Argument(help="Id of the node that does not come back (mqctl topology).")]
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Messages for it become dead letters, and are not routed anew.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Have all brokers give up a node that does not come back, and route messages for it anew.

    Copies for subscriptions of that node end with it. Exit code 3 if a broker does not answer or knows nothing of it.
    """
    action = "dead-letter" if options.dead_letter else "reroute"
    nodes = nodes_meant(world, options)
    confirm.yes(world, f"Have {len(nodes)} brokers forget node {options.node_id}?", is_sure=options.yes)
    rows: list[dict[str, Any]] = []
    for node, answer in on_each(nodes, lambda one: act(world, one, "cluster-forget", node_id=options.node_id,
                                                       action=action)):  # fmt: skip
        if isinstance(answer, CommandError):
            world.note(f"mqctl: {answer.what}")
        else:
            rows.append({"host": node.host, "instance": node.instance, **answer})
    write(Rows("mqctl.cluster-forget/1", COLUMNS, rows), options.shape, world.data)
    return Exit.DONE if len(rows) == len(nodes) else Exit.DEGRADED
