"""`mqctl inventory check`."""

from __future__ import annotations

from dataclasses import dataclass

from mqctl import inventory
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.errors import UsageError
from mqctl.exits import Exit
from mqctl.inventory_faults import doubts_in, faults_of, tell
from mqctl.output import Column, Rows, counted, write
from mqctl.world import World

FAULT_COLUMNS = (Column("path"), Column("why"))
HOST_COLUMNS = (Column("cluster"), Column("host"), Column("address"), Column("instances"))


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """Which inventory."""


def run(world: World, options: Options) -> int:
    """Check the inventory without touching any host: every fault at once, each with the variable that it is in.

    What is allowed and hardly meant is told as a warning (`doubts` in JSON), which changes no exit code.
    """
    clusters = inventory.load_all(world, options)
    if options.cluster:
        clusters = [inventory.choose(clusters, options.cluster)]
    faults = faults_of(clusters)
    if faults:
        write(Rows("mqctl.inventory_faults/1", FAULT_COLUMNS, faults), options.shape, world.data)
        raise UsageError(
            f"the inventory has {counted(len(faults), 'fault')}",
            "correct them, then: mqctl inventory check",
        )
    rows = [
        {
            "cluster": one.name,
            "host": host.name,
            "address": str(host.variables.get("ansible_host", host.name)),
            "instances": host.instances,
        }
        for one in clusters
        for host in one.hosts
    ]
    doubts = [one for each in clusters for one in doubts_in(each)]
    write(Rows("mqctl.inventory/1", HOST_COLUMNS, rows, {"doubts": doubts}), options.shape, world.data)
    tell(world, doubts)
    return Exit.DONE
