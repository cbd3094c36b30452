"""`mqctl rollout`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mqctl import canary, confirm
from mqctl.certificates.authority import Span
from mqctl.certificates.issuing import NODE_DAYS, folder_of, make
from mqctl.commands import plan as planning
from mqctl.commands import status
from mqctl.commands.inventory_check import checked
from mqctl.commands.preflight import BundleOptions, bundle_of
from mqctl.commands.tls_issue import say
from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import Cluster, Host
from mqctl.nodes import Node
from mqctl.output import Column, Rows, Shape, counted, write
from mqctl.playbook.events import RunState
from mqctl.playbook.run import Play, run_play, verdict
from mqctl.world import World

COLUMNS = (
    Column("host"),
    Column("state"),
    Column("ok", is_number=True),
    Column("changed", is_number=True),
    Column("note"),
)


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, BundleOptions):
    """Which hosts, and on what conditions."""

    plan: Annotated[str, typer.Option(help="Refuse unless this is still the hash of the plan.")] = ""
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    check: Annotated[bool, typer.Option("--check", help="Change nothing; let Ansible say what it would change.")] = (
        False
    )
    batch: Annotated[
        str,
        typer.Option(
            help="Hosts that are changed at a time, N or P%; the first batch that fails ends the rollout. "
            "[default: 1 where brokers are restarted, else all]"
        ),
    ] = ""
    diff: Annotated[bool, typer.Option("--diff", help="Let Ansible show differences of files; use with -v.")] = False


def run(world: World, options: Options) -> int:
    """Bring the hosts to what the inventory wants: show the plan, ask, run the playbook, look at every node.

    Between batches of brokers that are restarted, the links that stood have to stand again, and a message has to cross
    each (`mqctl cluster canary`); at the end of all.

    Managed certificates that are missing or end soon are made before (`mqctl tls issue`).

    Exit code 1 if a host failed, 3 if hosts were only not reached, 4 if a broker still reads its journal.
    """
    batch = batch_of(options.batch)
    cluster = checked(world, options)
    hosts = cluster.limited(options.limit)
    bundle = bundle_of(world, options, cluster)
    plan = planning.make(world, cluster, hosts, Path(bundle))
    # Standard output belongs to the result; the plan is what people read before they answer.
    planning.show(world, plan, Shape(), world.err)
    if options.plan and options.plan != plan.hash:
        raise CommandError(f"the plan is {plan.hash} by now, not {options.plan}; nothing was changed", "mqctl plan")
    if not options.check:
        question = (
            f"Apply this to cluster {cluster.name}?" if plan.changes else "Nothing to do; run the playbook anyway?"
        )
        confirm.yes(world, question, is_sure=options.yes or bool(options.plan))
    folder = folder_of(world, cluster)
    if not options.check:
        make(folder, plan.missing, Span(world.now(), NODE_DAYS), world.note)
        say(world, plan.missing, len(plan.missing))
    limit = ",".join(one.name for one in hosts)
    variables = {"mq_bundle": bundle, "mq_tls_directory": str(folder.path), "rollout_batch": batch}
    play = Play("rollout", variables, limit, is_check=options.check, is_diff=options.diff)
    return carry_out(world, options, cluster, hosts, play)


def carry_out(world: World, options: ReaderOptions, cluster: Cluster, hosts: Sequence[Host], play: Play) -> Exit:
    """Run the playbook on the hosts, say how each fared, and look at its nodes."""
    state = run_play(world, cluster, play)
    code = report(world, state, options.shape)
    if play.is_check or code is Exit.FAILED:
        return code
    return max(code, verify(world, cluster, [one for one in hosts if _went_well(state, one)]))


def batch_of(text: str) -> str:
    """What Ansible's `serial` takes: a number of hosts or a percentage. Empty: the playbook's own."""
    number = text.removesuffix("%")
    is_right = number.isascii() and number.isdigit() and int(number) >= 1
    if text and not (is_right and (int(number) <= 100 or not text.endswith("%"))):
        raise UsageError(
            f"--batch {text}: that is neither a number of hosts nor a percentage", "--batch 2 or --batch 25%"
        )
    return text


def _went_well(state: RunState, host: Host) -> bool:
    return host.name in state.hosts and state.hosts[host.name].state == "ok"


def report(world: World, state: RunState, shape: Shape) -> Exit:
    """One row per host."""
    rows = [
        {"host": one.name, "state": one.state, "ok": one.ok, "changed": one.changed, "note": one.note}
        for one in state.hosts.values()
    ]
    changed = sum(one.changed for one in state.hosts.values())
    write(Rows("mqctl.run/1", COLUMNS, rows, {"changed": changed}), shape, world.data)
    return verdict(state)


def verify(world: World, cluster: Cluster, hosts: Sequence[Host]) -> Exit:
    """Every node of the hosts runs and has a node id of its own."""
    nodes = [Node(host.name, instance, host.access) for host in hosts for instance in host.instances]
    rows: list[dict[str, Any]] = [
        status.row_of(node, found) for node, found in on_each(nodes, lambda node: status.look(world, node, 15))
    ]
    idle = [row for row in rows if row["state"] != "running"]
    for row in idle:
        world.note(f"{row['host']}/{row['instance']}: {row['state']}: {row['note']}")
    twice = [node_id for node_id, count in Counter(row["node_id"] for row in rows).items() if node_id and count > 1]
    if twice:
        raise CommandError(
            f"nodes share the id {', '.join(twice)}: a data directory was copied", "mqbroker identity new on the copy"
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
    found, is_ours = canary.troubles(world, nodes, ids, canary.Patience())
    for each in found:
        world.note(each)
    if is_ours:
        raise CommandError("not every link between these nodes takes messages", "mqctl topology, mqctl cluster canary")
