"""`mqctl cluster canary`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.brokers import canary
from mqctl.brokers.requests import PLACE, AskOptions, nodes_meant
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.output import Column, Rows, write
from mqctl.world import World

COLUMNS = (
    *PLACE,
    Column("connection"),
    Column("node"),
    Column("connector"),
    Column("state"),
    Column("round_trip_ms", is_number=True),
    Column("why"),
    Column("node_id", wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and for how long."""

    timeout: Annotated[
        float, typer.Option(help="Seconds that a message may take over a link and back.", min=0.001, max=60)
    ] = 5.0


def run(world: World, options: Options) -> int:
    """Send a message over each link between brokers, and show how long it took until the other node had it on disk.

    No client sees it, and nothing of it stays. Exit code 3 if one did not arrive or a broker does not answer.
    """
    rows: list[dict[str, Any]] = []
    is_whole = True
    for node, crossings in canary.send(world, nodes_meant(world, options), options.timeout):
        if isinstance(crossings, CommandError):
            is_whole = False
            world.note(f"mqctl: {crossings.what}")
            continue
        is_whole = is_whole and not any(map(canary.trouble, crossings))
        rows += [{"host": node.host, "instance": node.instance, **row} for row in crossings]
    write(Rows("mqctl.cluster-canary/1", COLUMNS, rows, {"is_whole": is_whole}), options.shape, world.data)
    return Exit.DONE if is_whole else Exit.DEGRADED
