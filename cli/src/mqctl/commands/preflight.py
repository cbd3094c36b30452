"""`mqctl preflight`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.bundle.find import bundle_folder
from mqctl.certificates.issuing import folder_of
from mqctl.commands.inventory_check import checked
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.exits import Exit
from mqctl.inventory import Cluster
from mqctl.output import Column, Rows, write
from mqctl.playbook.events import HostRun, RunState
from mqctl.playbook.run import Play, run_play, verdict
from mqctl.world import World

COLUMNS = (Column("host"), Column("level"), Column("check"), Column("message"))


@dataclass(frozen=True, kw_only=True)
class BundleOptions(InventoryOptions):
    """A command that needs the bundle."""

    bundle: Annotated[str, typer.Option(help="Folder of the bundle. [default: mq_bundle, dist/bundle-<version>]")] = ""
    limit: Annotated[str, typer.Option(help="Only these hosts; names or wildcards, separated by commas.")] = ""


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, BundleOptions):
    """Which hosts."""


def run(world: World, options: Options) -> int:
    """Look at every host without changing anything, and show all findings of all hosts at once.

    Exit code 1 if something would stop a rollout, 3 if hosts were only not reached.
    """
    cluster = checked(world, options)
    bundle = bundle_of(world, options, cluster)
    limit = ",".join(one.name for one in cluster.limited(options.limit))
    variables = {"mq_bundle": bundle, "mq_tls_directory": str(folder_of(world, cluster).path)}
    state = run_play(world, cluster, Play("preflight", variables, limit))
    rows = [row for host in state.hosts.values() for row in findings(host)]
    write(Rows("mqctl.preflight/1", COLUMNS, rows), options.shape, world.data)
    return verdict_of(state, rows)


def verdict_of(state: RunState, rows: list[dict[str, Any]]) -> Exit:
    """A finding of level error counts like a failed task."""
    return Exit.FAILED if any(row["level"] == "error" for row in rows) else verdict(state)


def bundle_of(world: World, options: BundleOptions, cluster: Cluster) -> str:
    """--bundle, else mq_bundle of the inventory, else what `bundle build` made."""
    named = options.bundle or next((str(one.variables["mq_bundle"]) for one in cluster.hosts
                                    if one.variables.get("mq_bundle")), "")  # fmt: skip
    return str(bundle_folder(named or None, world.cwd))


def findings(host: HostRun) -> list[dict[str, Any]]:
    """Rows of one host: what was found, or that nothing was, or why nobody could look."""
    rows = [
        {
            "host": host.name,
            "level": str(one.get("level", "error")),
            "check": one.get("check"),
            "message": one.get("message"),
        }
        for one in host.findings
    ]
    if host.state == "unreachable" or (host.state == "failed" and not rows):
        rows.append({"host": host.name, "level": host.state, "check": None, "message": host.note})
    return rows or [{"host": host.name, "level": "ok", "check": None, "message": None}]
