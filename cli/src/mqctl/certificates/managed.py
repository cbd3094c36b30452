"""The managed certificates of a cluster: which nodes have one, and making them."""

from __future__ import annotations

from collections.abc import Sequence

from mqbroker.config.declarations.variables import HostVariables

from mqctl.certificates.authority import Span
from mqctl.certificates.issuing import (
    Missing,
    folder_of,
    make,
    missing_of,
    needs_certificate,
    tell_made,
)
from mqctl.certificates.names import InstanceNames, nodes_of
from mqctl.certificates.options import HostsOptions
from mqctl.certificates.rows import COLUMNS, SCHEMA, rows_of
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster, variables_of
from mqctl.output import Rows, write
from mqctl.plan.observation import observe
from mqctl.plan.plan import Seen
from mqctl.plan.wanted_host import address_of
from mqctl.world import World


def issue_for(world: World, cluster: InventoryCluster, options: HostsOptions, *, is_all: bool) -> Exit:
    """Make the certificates that are missing, or with `is_all` every one, and show their rows."""
    folder = folder_of(world, cluster)
    nodes, blind = reach_nodes(world, cluster.limited(options.limit))
    missing = missing_of(folder, nodes, world.now())
    if is_all:
        known = {one.node: one for one in missing}
        missing = [known.get(one, Missing(one, "as asked for")) for one in nodes]
    make(folder, missing, Span(world.now(), options.days), world.note)
    tell_made(world, missing, len(nodes))
    write(Rows(SCHEMA, COLUMNS, rows_of(world, folder, missing)), options.shape, world.data)
    for host, why in blind.items():
        world.note(f"{host}: {why}")
    if missing:
        world.note("next: mqctl rollout")
    return Exit.DEGRADED if blind else Exit.DONE


def managed(host: Host) -> HostVariables | None:
    """The variables of a host that gets managed certificates."""
    variables = variables_of(host)
    return variables if variables.mq_tls == "managed" and needs_certificate(variables) else None


def reach_nodes(world: World, hosts: Sequence[Host]) -> tuple[list[InstanceNames], dict[str, str]]:
    """All nodes that need certificates, and the hosts that could not be asked for an address."""
    wanted = [(host, variables) for host in hosts if (variables := managed(host)) is not None]
    asked = [host for host, variables in wanted if variables.mq_cluster_interface]
    seen: dict[str, Seen] = {}
    blind: dict[str, str] = {}
    for host, outcome in on_each(asked, lambda one: observe(world, one)):
        if isinstance(outcome, CommandError):
            blind[host.name] = outcome.what.removeprefix(f"{host.name}: ")
        else:
            seen[host.name] = outcome
    nodes = [
        node
        for host, variables in wanted
        if host.name not in blind
        for node in nodes_of(host, variables, address_of(host, variables, seen.get(host.name, Seen())))
    ]
    return nodes, blind
