"""`mqctl tls show`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from mqbroker.config.declarations.variables import HostVariables
from mqbroker.config.lifetimes import WARNING_DAYS

from mqctl.certificates.folder import Folder, Phase, certificate_at
from mqctl.certificates.issuing import folder_of, needs_certificate
from mqctl.certificates.rows import COLUMNS, SCHEMA, authority_row, node_row, row_of
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster, variables_of
from mqctl.inventory_faults import checked
from mqctl.output import Rows, write
from mqctl.world import World

KINDS = {"ca": "ca", "ca-next": "next ca", "ca-previous": "previous ca"}


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """From when on a certificate ends soon."""

    soon: Annotated[int, typer.Option(help="Days before its end from which on a certificate ends soon.", min=0)] = (
        WARNING_DAYS
    )


def run(world: World, options: Options) -> int:
    """Show the certificates of the cluster on this machine. Exit code 3 if one is missing, has expired or soon will."""
    cluster = checked(world, options)
    folder = folder_of(world, cluster)
    rows = list(_rows(world, cluster, folder, options.soon))
    extra = {"phase": folder.phase.value} if folder.has_authority else {}
    write(Rows(SCHEMA, COLUMNS, rows, extra), options.shape, world.data)
    if folder.phase is not Phase.STABLE:
        world.note("the CA is being changed; go on with: mqctl tls rotate --ca " + _next(folder.phase))
    if not rows:
        world.note("no listener has a certificate of its node: mq_tls is off, or all listeners name their own")
    return Exit.DONE if all(row["state"] == "ok" for row in rows) else Exit.DEGRADED


def _next(phase: Phase) -> str:
    return "switch" if phase is Phase.TRUSTED else "finish"


def _rows(world: World, cluster: InventoryCluster, folder: Folder, soon_days: int) -> Iterator[dict[str, Any]]:
    known = [(host, variables_of(host)) for host in cluster.hosts]
    some = [(host, variables) for host, variables in known if needs_certificate(variables)]
    if any(variables.mq_tls == "managed" for _, variables in some):
        if not folder.has_authority:
            yield authority_row("ca", {"state": "missing"})
        for name, one in folder.authorities().items():
            row = row_of(one, world.now(), soon_days)
            # What is on its way out may end; nothing depends on it for long.
            yield authority_row(KINDS[name], row)
    for host, variables in some:
        yield from _of_host(world, host, variables, folder, soon_days)


def _of_host(
    world: World, host: Host, variables: HostVariables, folder: Folder, soon_days: int
) -> Iterator[dict[str, Any]]:
    for instance in variables.mq_instances:
        if variables.mq_tls == "managed":
            certificate = folder.node(host.name, instance.name)
        else:
            certificate = certificate_at(Path(str(variables.mq_tls_certificate_file)).expanduser())
        row = {"state": "missing"} if certificate is None else row_of(certificate, world.now(), soon_days)
        yield node_row(host.name, instance.name, row)
