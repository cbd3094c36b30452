"""`mqctl address show`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("address"),
    Column("queue"),
    Column("routing_type"),
    Column("messages", is_number=True),
    Column("ready", is_number=True),
    Column("delivering", is_number=True),
    Column("paged", is_number=True),
    Column("consumers", is_number=True),
    Column("paused"),
)


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which address."""

    address: Annotated[str, typer.Argument(help="Name of the address.")]


def run(world: World, options: Options) -> int:
    """Show an address of a node with its queues, one a row."""
    node = the_node(world, options)
    answer = act(world, node, "address-show", name=options.address)
    rows = [
        {
            "address": options.address, "queue": one["name"], "routing_type": one["routing_type"],
            "messages": one["message_count"], "ready": one["ready_count"], "delivering": one["delivering_count"],
            "paged": one["paged_count"], "consumers": one["consumer_count"], "paused": one["paused"],
        }
        for one in answer["queues"]
    ]  # fmt: skip
    return report(world, options, node, Rows("mqctl.address/1", COLUMNS, rows))
