"""What is wrong in an inventory, what is hardly meant, and the cluster that a command may work on.

Each command that touches hosts begins with `checked`, so that none of them goes on with an inventory that is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mqbroker.config.inventory.hosts import second_names
from mqbroker.config.inventory.inventory import check_inventory
from mqbroker.config.inventory.inventory_doubts import doubts_of

from mqctl import inventory
from mqctl.declare import InventoryOptions
from mqctl.errors import CommandError, UsageError
from mqctl.inventory import InventoryCluster
from mqctl.output import counted
from mqctl.world import World


def doubts_in(cluster: InventoryCluster) -> list[dict[str, Any]]:
    """What the inventory of a cluster says and hardly means, where nothing in it is wrong."""
    doubts = doubts_of({host.name: host.variables for host in cluster.hosts})
    return [{"path": one.path, "why": one.why} for one in doubts]


def tell(world: World, doubts: Sequence[Mapping[str, Any]]) -> None:
    """Say each doubt on a line of its own."""
    for one in doubts:
        world.note(f"warning: {one['path']} {one['why']}")


def faults_of(clusters: Sequence[InventoryCluster]) -> list[dict[str, Any]]:
    """What is wrong with the variables, and with the ways to the hosts."""
    hosts = {host.name: host.variables for one in clusters for host in one.hosts}
    faults = [{"path": fault.path, "why": fault.why} for fault in check_inventory(hosts)]
    for one in clusters:
        for host in one.hosts:
            try:
                _ = host.access
            except CommandError as error:
                faults.append({"path": host.name, "why": error.what.removeprefix(f"{host.name}: ")})
    return faults


def checked(world: World, options: InventoryOptions) -> InventoryCluster:
    """The cluster that the options name, refused if anything in it is wrong."""
    clusters = inventory.load_all(world, options)
    cluster = inventory.choose(clusters, options.cluster)
    faults = faults_of([cluster])
    # Of the other clusters only this matters here: that no host has a name there as well.
    own = {host.name: host.variables for host in cluster.hosts}
    everywhere = {host.name: host.variables for one in clusters for host in one.hosts}
    told = {one.host for one in second_names(own)}
    faults += [{"path": one.host, "why": one.why} for one in second_names(everywhere) if one.host not in told]
    for fault in faults:
        world.note(f"{fault['path']}: {fault['why']}")
    if faults:
        raise UsageError(f"the inventory has {counted(len(faults), 'fault')}", "mqctl inventory check")
    return cluster
