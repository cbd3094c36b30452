"""`mqctl tls init`."""

from __future__ import annotations

from dataclasses import dataclass

from mqctl import inventory
from mqctl.certificates.issuing import AUTHORITY_DAYS, folder_of, make_authority
from mqctl.certificates.options import Days, Permit
from mqctl.certificates.rows import COLUMNS, SCHEMA, authority_row, row_of
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.exits import Exit
from mqctl.output import Rows, write
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """How long the CA is good for, and what it may sign."""

    days: Days = AUTHORITY_DAYS
    permit: Permit = None


def run(world: World, options: Options) -> int:
    """Make a CA for the cluster, in tls/CLUSTER beside the inventory. One that is there stays as it is.

    Its key (ca.key, mode 0600) signs the certificates of the nodes and never leaves this machine.
    """
    cluster = inventory.load(world, options)
    folder = folder_of(world, cluster)
    make_authority(world, folder, cluster.name, options.days, options.permit or [])
    row = row_of(folder.authority(), world.now())
    write(Rows(SCHEMA, COLUMNS, [authority_row("ca", row)]), options.shape, world.data)
    world.note("next: mqctl rollout, which makes the certificates of the nodes, or mqctl tls issue")
    return Exit.DONE
