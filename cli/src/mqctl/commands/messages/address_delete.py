"""`mqctl address delete`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import confirmation
from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (Column("name"), Column("queues"), Column("messages", is_number=True))


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which address, and how."""

    address: Annotated[str, typer.Argument(help="Name of the address.")]
    force: Annotated[
        bool,
        typer.Option("--force", help="Delete its queues, detach its clients; without it they are a refusal."),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Delete an address of a node, with --force all its queues and their messages too."""
    node = the_node(world, options)
    if not options.yes:
        address = act(world, node, "address-show", name=options.address)
        what = f"{len(address['queues'])} queues and {address['message_count']} messages"
        confirmation.yes(world, f"Delete address {options.address} of {node.name} with {what}?", is_sure=False)
    answer = act(world, node, "address-delete", name=options.address, force=options.force)
    return report(world, options, node, Rows("mqctl.address-delete/1", COLUMNS, [answer]))
