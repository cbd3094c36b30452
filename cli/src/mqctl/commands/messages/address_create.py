"""`mqctl address create`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (Column("name"), Column("routing_types"))


class AddressRouting(enum.StrEnum):
    """Of what type its queues may be."""

    ANYCAST = "anycast"
    MULTICAST = "multicast"
    BOTH = "both"


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which address, and for what."""

    address: Annotated[str, typer.Argument(help="Name of the address.")]
    routing: Annotated[
        AddressRouting, typer.Option(help="anycast: queues share the messages; multicast: each gets all.")
    ] = AddressRouting.ANYCAST


def run(world: World, options: Options) -> int:
    """Make an address on a node, without a queue. It stays until it is deleted."""
    node = the_node(world, options)
    routing = ["anycast", "multicast"] if options.routing is AddressRouting.BOTH else [options.routing.value]
    answer = act(world, node, "address-create", name=options.address, routing_types=routing)
    return report(world, options, node, Rows("mqctl.address-create/1", COLUMNS, [answer]))
