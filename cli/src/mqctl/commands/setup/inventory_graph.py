"""`mqctl inventory graph`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from mqbroker.config.inventory.inventory import host_variables

from mqctl import graph, inventory
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.errors import UsageError
from mqctl.exits import Exit
from mqctl.inventory import InventoryCluster
from mqctl.inventory_faults import faults_of
from mqctl.output import Column, Rows, counted, write
from mqctl.world import World

COLUMNS = (
    Column("cluster"),
    Column("host"),
    Column("address", wide_only=True),
    Column("instance"),
    Column("what"),
    Column("name"),
    Column("place"),
    Column("on"),
    Column("connector"),
)


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """Which inventory, and in what form."""

    dot: Annotated[bool, typer.Option("--dot", help="For Graphviz: mqctl inventory graph --dot | dot -Tsvg.")] = False


def run(world: World, options: Options) -> int:
    """Show what the inventory implies, without touching any host: listeners, connectors, groups, cluster connections.

    `place` is a port, or where nodes meet: address and port of multicast, a directory, names, peers, first nodes; `on`
    is the network card or address that it is bound to. JSON has as `meetings` who announces itself and who listens at
    each group.
    """
    clusters = inventory.load_all(world, options)
    if options.cluster:
        clusters = [inventory.choose(clusters, options.cluster)]
    faults = faults_of(clusters)
    if faults:
        raise UsageError(f"the inventory has {counted(len(faults), 'fault')}", "mqctl inventory check")
    rows = all_rows(clusters)
    if options.dot:
        world.out.write(graph.dot(rows))
        return Exit.DONE
    extra = {"meetings": graph.meetings(rows)}
    write(Rows("mqctl.inventory-graph/1", COLUMNS, rows, extra), options.shape, world.data)
    return Exit.DONE


def all_rows(clusters: Sequence[InventoryCluster]) -> list[dict[str, Any]]:
    """The rows of all hosts, in the order of the inventory."""
    return [
        row
        for cluster in clusters
        for host in cluster.hosts
        for row in graph.rows_of(
            cluster.name,
            host.name,
            str(host.variables.get("ansible_host", host.name)),
            host_variables(host.variables),
        )
    ]
