"""`mqctl address pause`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (Column("name"), Column("paused"), Column("changed"))


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which address, and for how long."""

    address: Annotated[str, typer.Argument(help="Name of the address.")]
    persist: Annotated[bool, typer.Option(help="Also over restarts of the broker.")] = True


def run(world: World, options: Options) -> int:
    """Hand out no messages of any queue of an address until it is resumed, also of queues that are made later."""
    node = the_node(world, options)
    answer = act(world, node, "address-pause", name=options.address, persist=options.persist)
    return report(world, options, node, Rows("mqctl.address-pause/1", COLUMNS, [answer]))
