"""`mqctl inventory check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mqbroker.config.hosts import second_names
from mqbroker.config.inventory import check_inventory
from mqbroker.config.inventory_doubts import doubts_of

from mqctl import inventory
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.inventory import InventoryCluster
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
    found = faults_of(clusters)
    if found:
        write(Rows("mqctl.inventory_faults/1", FAULT_COLUMNS, found), options.shape, world.data)
        raise UsageError(
            f"the inventory has {counted(len(found), 'fault')}",
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


def doubts_in(cluster: InventoryCluster) -> list[dict[str, Any]]:
    """What the inventory of a cluster says and hardly means, where nothing in it is wrong."""
    found = doubts_of({host.name: host.variables for host in cluster.hosts})
    return [{"path": one.path, "why": one.why} for one in found]


def tell(world: World, doubts: Sequence[Mapping[str, Any]]) -> None:
    """A line for each."""
    for one in doubts:
        world.note(f"warning: {one['path']} {one['why']}")


def faults_of(clusters: Sequence[InventoryCluster]) -> list[dict[str, Any]]:
    """What is wrong with the variables, and with the ways to the hosts."""
    hosts = {host.name: host.variables for one in clusters for host in one.hosts}
    found = [{"path": fault.path, "why": fault.why} for fault in check_inventory(hosts)]
    for one in clusters:
        for host in one.hosts:
            try:
                _ = host.access
            except CommandError as error:
                found.append({"path": host.name, "why": error.what.removeprefix(f"{host.name}: ")})
    return found


def checked(world: World, options: InventoryOptions) -> InventoryCluster:
    """The cluster that the options name, refused if anything in it is wrong."""
    clusters = inventory.load_all(world, options)
    cluster = inventory.choose(clusters, options.cluster)
    found = faults_of([cluster])
    # Of the other clusters only this matters here: that no host has a name there as well.
    own = {host.name: host.variables for host in cluster.hosts}
    everywhere = {host.name: host.variables for one in clusters for host in one.hosts}
    told = {one.host for one in second_names(own)}
    found += [{"path": one.host, "why": one.why} for one in second_names(everywhere) if one.host not in told]
    for fault in found:
        world.note(f"{fault['path']}: {fault['why']}")
    if found:
        raise UsageError(f"the inventory has {counted(len(found), 'fault')}", "mqctl inventory check")
    return cluster
