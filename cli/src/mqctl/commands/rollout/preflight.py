"""`mqctl preflight`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.brokers.multicast import Heard, draw, probe
from mqctl.bundle.choice import BundleOptions, bundle_of
from mqctl.certificates.issuing import folder_of
from mqctl.declare import ReaderOptions
from mqctl.errors import Unreachable
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.output import Column, Format, Rows, write
from mqctl.playbook.events import HostProgress, PlayProgress
from mqctl.playbook.run import Play, run_play, verdict
from mqctl.world import World

COLUMNS = (Column("host"), Column("level"), Column("check"), Column("message"))


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, BundleOptions):
    """Which hosts, and what of them."""

    multicast: Annotated[
        bool, typer.Option("--multicast", help="Only who hears whom in the multicast groups; needs no bundle.")
    ] = False


def run(world: World, options: Options) -> int:
    """Look at every host without changing anything, and show all findings of all hosts at once.

    Between all hosts, the multicast groups of the inventory are probed on the network cards that they are pinned to,
    and drawn as a matrix: rows send, columns hear.
    Exit code 1 if something would stop a rollout, 3 if hosts were only not reached.
    """
    cluster = checked(world, options)
    hosts = cluster.limited(options.limit)
    state = PlayProgress()
    if options.multicast:
        state.hosts = {one.name: HostProgress(one.name) for one in hosts}
    else:
        state = _play(world, options, cluster, hosts)
    heard = probe(world, cluster, hosts, {one.name for one in state.unreachable})
    rows = rows_of(state, heard)
    extra = {"multicast": [one.as_row() for one in heard.groups]}
    write(Rows("mqctl.preflight/1", COLUMNS, rows, extra), options.shape, world.data)
    if options.shape.format is Format.TABLE:
        draw(heard, world.out)
    return verdict_of(state, rows)


def _play(world: World, options: Options, cluster: InventoryCluster, hosts: Sequence[Host]) -> PlayProgress:
    """The playbook without its own matrix: it would take as long as the one here, many times over for many hosts."""
    variables: dict[str, Any] = {"mq_bundle": bundle_of(world, options, cluster), "preflight_multicast": False}
    variables["mq_tls_directory"] = str(folder_of(world, cluster).path)
    return run_play(world, cluster, Play("preflight", variables, ",".join(one.name for one in hosts)))


def rows_of(state: PlayProgress, heard: Heard) -> list[dict[str, Any]]:
    """The rows of all hosts: what the playbook found, then what the probes did."""
    rows = []
    for run in state.hosts.values():
        run.findings += [one for one in heard.findings if one["host"] == run.name]
        fault = heard.unreached.get(run.name)
        if fault is not None and run.state == "ok":
            run.state = "unreachable" if isinstance(fault, Unreachable) else "failed"
            run.note = fault.what.removeprefix(f"{run.name}: ")
        rows += findings(run)
    return rows


def verdict_of(state: PlayProgress, rows: list[dict[str, Any]]) -> Exit:
    """A finding of level error counts like a failed task."""
    levels = {row["level"] for row in rows}
    if levels & {"error", "failed"}:
        return Exit.FAILED
    return Exit.DEGRADED if "unreachable" in levels else verdict(state)


def findings(host: HostProgress) -> list[dict[str, Any]]:
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
