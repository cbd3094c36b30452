"""`mqctl discovery groups`."""

from __future__ import annotations

from dataclasses import dataclass

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("group"),
    Column("kind"),
    Column("discovery"),
    Column("place"),
    Column("local"),
    Column("state"),
    Column("sent", is_number=True),
    Column("failed", is_number=True),
    Column("heard", is_number=True),
    Column("dropped", is_number=True),
    Column("trouble"),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes."""


def run(world: World, options: Options) -> int:
    """List the broadcast and discovery groups of all nodes. Exit code 3 if a node does not answer."""
    listing = ListOperation("mqctl.discovery-groups/1", "discovery", "groups", COLUMNS)
    return show(world, options, listing)
