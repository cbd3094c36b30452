"""`mqctl status`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.node_state import COLUMNS, look, row_of
from mqctl.declare import ReaderOptions
from mqctl.errors import UsageError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import NodeCommandOptions, nodes_of
from mqctl.output import Rows, write
from mqctl.progress import counting
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, NodeCommandOptions):
    """Which nodes are asked, and how long a host may take."""

    timeout: Annotated[int, typer.Option(help="Seconds that a host may take to answer.", min=1, max=600)] = 15


def run(world: World, options: Options) -> int:
    """Show the state of every node: unit, version, node id, queues, messages, and its links to other nodes.

    Of links it says how many of all are up, how many messages wait for other nodes (`forwarding`), and how long the
    oldest of them has waited (`lag_ms`); JSON has each of them as `links`. The note says which certificates of
    listeners end soon, by the days of `mqctl check`; JSON has all of them as `certificates`. Exit code 3 if any node
    does not run.
    """
    nodes = nodes_of(world, options)
    if not nodes:
        raise UsageError("there is no node", "mqctl dev up" if options.dev else "mqctl inventory check")
    rows = []
    with counting(world, "hosts asked", len(nodes)) as advance:
        work = on_each(nodes, lambda node: look(world, node, options.timeout), lambda _: advance(1))
        for node, outcome in work:
            rows.append(row_of(node, outcome))
    write(Rows("mqctl.status/1", COLUMNS, rows), options.shape, world.data)
    return Exit.DONE if all(row["state"] == "running" for row in rows) else Exit.DEGRADED
