"""`mqctl address list`."""

from __future__ import annotations

from dataclasses import dataclass

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("address"),
    Column("routing_types"),
    Column("queues"),
    Column("paused"),
    Column("messages", is_number=True),
    Column("routed", is_number=True),
    Column("unrouted", is_number=True),
)
NAMES = {"name": "address", "message_count": "messages"}


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes."""


def run(world: World, options: Options) -> int:
    """List the addresses of all nodes: what is bound to them and what went through. Exit code 3 if a node is silent."""
    return show(world, options, ListOperation("mqctl.addresses/1", "addresses", "addresses", COLUMNS, NAMES))
