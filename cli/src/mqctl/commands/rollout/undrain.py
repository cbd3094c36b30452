"""`mqctl undrain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.declare import InventoryOptions
from mqctl.inventory_faults import checked
from mqctl.scaledown.cancellation import TakeBack, take_back
from mqctl.scaledown.leaving_host import Leaver
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(InventoryOptions):
    """Which host, and whether that is waited for."""

    host: Annotated[str, typer.Argument(help="The host that was drained, with all its instances.")]
    wait: Annotated[bool, typer.Option("--wait", help="Until each of its queues is served there again.")] = False
    timeout: Annotated[float, typer.Option(help="Seconds that --wait waits.", min=1)] = 3600.0
    force: Annotated[
        bool,
        typer.Option("--force", help="At once; what the other node may have without an answer comes twice."),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Have a host serve again that was drained: clients are let in, and what is still there stays.

    What `mqctl drain --move` has moved stays where it is. Where some of its brokers do not answer the others serve.
    Said again it goes on, also in the place of a run of it, or of `mqctl drain` of this host, that holds the cluster.

    Exit code 3 if some did not answer or a host could not be given back, 4 if the time of --wait was up first.
    """
    cluster = checked(world, options)
    leaver = Leaver(cluster, cluster.host(options.host), verb="drain")
    how = TakeBack(options.timeout, options.wait, is_forced=options.force, is_sure=options.yes)
    return take_back(world, [leaver], how)
