"""`mqctl queue list`."""

from __future__ import annotations

from dataclasses import dataclass

from mqctl.brokers.requests import AskOptions, ListOperation, show
from mqctl.output import Column
from mqctl.world import World

COLUMNS = (
    Column("queue"),
    Column("address", wide_only=True),
    Column("messages", is_number=True),
    Column("delivering", is_number=True),
    Column("consumers", is_number=True),
    Column("routing_type", wide_only=True),
    Column("durable", wide_only=True),
    Column("paused", wide_only=True),
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
class Options(AskOptions):
    """Which nodes."""


def run(world: World, options: Options) -> int:
    """List the queues of all nodes with their messages and consumers. Exit code 3 if a node does not answer."""
    return show(world, options, ListOperation("mqctl.queues/1", "queues", "queues", COLUMNS, NAMES))
