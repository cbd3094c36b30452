"""A look at every node after a run: it runs, has a node id of its own, and its links take messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from mqctl.brokers import canary
from mqctl.brokers.node_state import look, row_of
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import Node
from mqctl.output import counted
from mqctl.world import World


def verify(world: World, cluster: InventoryCluster, hosts: Sequence[Host]) -> Exit:
    """Every node of the hosts runs and has a node id of its own."""
    nodes = [Node(host.name, instance, host.access) for host in hosts for instance in host.instances]
    rows: list[dict[str, Any]] = [
        row_of(node, outcome) for node, outcome in on_each(nodes, lambda node: look(world, node, 15))
    ]
    idle = [row for row in rows if row["state"] != "running"]
    for row in idle:
        world.note(f"{row['host']}/{row['instance']}: {row['state']}: {row['note']}")
    twice = [node_id for node_id, count in Counter(row["node_id"] for row in rows).items() if node_id and count > 1]
    if twice:
        raise CommandError(
            f"nodes share the id {', '.join(twice)}: two names lead to one host, or a data directory was copied",
            "mqctl inventory check; if they are two hosts, mqbroker identity new --even-if-original on the copy",
        )
    if idle and all(row["state"] == "starting" for row in idle):
        world.note("they read their journals; look again with: mqctl status")
        return Exit.RUNNING
    if idle:
        raise CommandError(f"{len(idle)} of {len(rows)} nodes of {cluster.name} do not run", "mqctl status")
    world.note(f"{counted(len(rows), 'node')} of cluster {cluster.name} up and distinct")
    check_links(world, nodes, {row["node_id"] for row in rows})
    return Exit.DONE


def check_links(world: World, nodes: Sequence[Node], ids: Collection[str]) -> None:
    """A canary has crossed each link between these nodes; others are only told of. Raises CommandError."""
    troubles, is_ours = canary.troubles(world, nodes, ids, canary.CanaryPatience())
    for each in troubles:
        world.note(each)
    if is_ours:
        raise CommandError("not every link between these nodes takes messages", "mqctl topology, mqctl cluster canary")
