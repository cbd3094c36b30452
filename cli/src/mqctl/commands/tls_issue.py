"""`mqctl tls issue`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from mqbroker.base.errors import ConfigFault
from mqbroker.config.inventory import host_variables
from mqbroker.config.variables import HostVariables

from mqctl.certificates.authority import Span
from mqctl.certificates.folder import Folder
from mqctl.certificates.issuing import (
    NODE_DAYS,
    Missing,
    folder_of,
    make,
    missing_of,
    needs_certificate,
    row_of,
)
from mqctl.certificates.names import InstanceNames, nodes_of
from mqctl.commands.tls_init import COLUMNS, SCHEMA, Days
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.desired import address_of
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.observe import observe
from mqctl.output import Rows, counted, write
from mqctl.plan import Seen
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class HostsOptions(ReaderOptions, InventoryOptions):
    """Whose certificates."""

    limit: Annotated[str, typer.Option(help="Only these hosts; names or wildcards, separated by commas.")] = ""
    days: Days = NODE_DAYS


@dataclass(frozen=True, kw_only=True)
class Options(HostsOptions):
    """Which ones."""

    renew: Annotated[bool, typer.Option("--renew", help="Those too that are good for long enough.")] = False


def run(world: World, options: Options) -> int:
    """Make a certificate for each node that has none, or one that ends soon or lacks a name, and keep all others.

    A host whose network card is named in the inventory is asked for the address of that card. Exit code 3 if one was
    not reached.
    """
    cluster = checked(world, options)
    return issue_for(world, cluster, options, is_all=options.renew)


def issue_for(world: World, cluster: InventoryCluster, options: HostsOptions, *, is_all: bool) -> Exit:
    """Make and show them."""
    folder = folder_of(world, cluster)
    nodes, blind = reach_nodes(world, cluster.limited(options.limit))
    missing = missing_of(folder, nodes, world.now())
    if is_all:
        known = {one.node: one for one in missing}
        missing = [known.get(one, Missing(one, "as asked for")) for one in nodes]
    make(folder, missing, Span(world.now(), options.days), world.note)
    say(world, missing, len(nodes))
    write(Rows(SCHEMA, COLUMNS, rows_of(world, folder, missing)), options.shape, world.data)
    for host, why in blind.items():
        world.note(f"{host}: {why}")
    if missing:
        world.note("next: mqctl rollout")
    return Exit.DEGRADED if blind else Exit.DONE


def say(world: World, missing: Sequence[Missing], count: int) -> None:
    """What was made and why, and what stayed."""
    for one in missing:
        world.note(f"{one.node.common_name}: made, {one.why}")
    if count > len(missing):
        world.note(f"{counted(count - len(missing), 'certificate')} kept")


def rows_of(world: World, folder: Folder, missing: Sequence[Missing]) -> list[dict[str, Any]]:
    """A row for each that was made."""
    found = ((one.node, folder.node(one.node.host, one.node.instance)) for one in missing)
    return [node_row(node.host, node.instance, row_of(made, world.now())) for node, made in found if made]


def node_row(host: str, instance: str, row: dict[str, Any]) -> dict[str, Any]:
    """A node among the rows."""
    return {"kind": "node", "host": host, "instance": instance, **row}


def variables_of(host: Host) -> HostVariables:
    """The typed variables of a host."""
    try:
        return host_variables(host.variables)
    except ConfigFault as fault:
        raise CommandError(f"{host.name}: {fault}", "mqctl inventory check") from None


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
    for host, found in on_each(asked, lambda one: observe(world, one)):
        if isinstance(found, CommandError):
            blind[host.name] = found.what.removeprefix(f"{host.name}: ")
        else:
            seen[host.name] = found
    nodes = [
        node
        for host, variables in wanted
        if host.name not in blind
        for node in nodes_of(host, variables, address_of(host, variables, seen.get(host.name, Seen())))
    ]
    return nodes, blind
