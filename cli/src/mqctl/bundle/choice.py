"""Which bundle a command works with, and on which hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import completion
from mqctl.bundle.find import bundle_folder
from mqctl.declare import InventoryOptions
from mqctl.inventory import InventoryCluster
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class BundleOptions(InventoryOptions):
    """A command that needs the bundle."""

    bundle: Annotated[
        str, typer.Option(help="Folder of the bundle. [default: mq_bundle, the one of this version in dist]")
    ] = ""
    limit: Annotated[
        str,
        typer.Option(
            help="Only these hosts; names or wildcards, separated by commas.", autocompletion=completion.hosts
        ),
    ] = ""


def bundle_of(world: World, options: BundleOptions, cluster: InventoryCluster) -> str:
    """--bundle, else mq_bundle of the inventory, else what `bundle build` made."""
    named = options.bundle or next((str(one.variables["mq_bundle"]) for one in cluster.hosts
                                    if one.variables.get("mq_bundle")), "")  # fmt: skip
    return str(bundle_folder(named or None, world.cwd))
