"""`mqctl rollout`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mqctl import canary, confirm, settled
from mqctl.bundle.choice import BundleOptions, bundle_of
from mqctl.bundle.manifest import read
from mqctl.certificates.authority import Span
from mqctl.certificates.folder import Folder
from mqctl.certificates.issuing import NODE_DAYS, folder_of, make
from mqctl.commands import plan as planning
from mqctl.commands import status
from mqctl.commands.tls_issue import say
from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.nodes import Node
from mqctl.output import Column, OutputShape, Rows, counted, write
from mqctl.plan import BY_HAND, Change
from mqctl.playbook.events import RunState
from mqctl.playbook.place import COLLECTION, collections_path
from mqctl.playbook.run import Interrupted, Play, run_play, verdict
from mqctl.world import World

COLUMNS = (
    Column("host"),
    Column("state"),
    Column("ok", is_number=True),
    Column("changed", is_number=True),
    Column("changes", wide_only=True),
    Column("note"),
)
# The fact that the last task of the playbook sets on a host that has got all of it.
MARK = "mq_rollout_done"
INTERRUPTED_LOOK_S = 5


TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Take the place of another run that holds the hosts and is gone for certain."),
]


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
    full: Annotated[
        bool, typer.Option("--full", help="Run the playbook also where nothing has changed since it last ended well.")
    ] = False
    take_over: TakeOver = False
    diff: Annotated[bool, typer.Option("--diff", help="Let Ansible show differences of files; use with -v.")] = False


def run(world: World, options: Options) -> int:
    """Bring the hosts to what the inventory wants: show the plan, ask, run the playbook, look at every node.

    Where every host is as the last rollout left it, and everything that went into that is the same, the playbook is
    left out: files, modes and owners are compared by digest. `--full` runs it all the same.

    Between batches of brokers that are restarted, the links that stood have to stand again, and a message has to cross
    each (`mqctl cluster canary`); at the end of all.

    Managed certificates that are missing or end soon are made before (`mqctl tls issue`).

    Each host ends with a state: ok; refused, with all reasons, and then nothing was changed on any host; failed;
    unreachable; stopped, where the rollout ended before that host was done.

    Ctrl-C ends it and says how far each host has come; run again it goes on.

    Exit code 1 if a host failed or was refused or stopped, 3 if hosts were only not reached, 4 if a broker still reads
    its journal, 130 after Ctrl-C.
    """
    batch = batch_of(options.batch)
    with untouched(world):
        cluster = checked(world, options)
        hosts = cluster.limited(options.limit)
        bundle = bundle_of(world, options, cluster)
        plan = planning.make(world, cluster, hosts, Path(bundle))
        show_and_ask(world, options, cluster, plan)
    folder = folder_of(world, cluster)
    inputs = inputs_of(world, cluster, hosts, Path(bundle), folder)
    is_idle = not (plan.changes or plan.blind or plan.missing or options.check or options.full)
    if is_idle and settled.all_settled(world, hosts, inputs):
        return leave_alone(world, options, cluster, hosts)
    if not options.check:
        make(folder, plan.missing, Span(world.now(), NODE_DAYS), world.note)
        say(world, plan.missing, len(plan.missing))
    limit = ",".join(one.name for one in hosts)
    variables = {
        "mq_bundle": bundle, "mq_tls_directory": str(folder.path), "rollout_batch": batch,
        "mq_take_over": options.take_over,
    }  # fmt: skip
    play = Play("rollout", variables, limit, is_check=options.check, is_diff=options.diff, mark=MARK)
    code = carry_out(world, options, cluster, hosts, play)
    if code is Exit.DONE and not options.check:
        # Certificates that were made on the way went into it.
        settled.mark(world, hosts, inputs_of(world, cluster, hosts, Path(bundle), folder))
    return code


@contextlib.contextmanager
def untouched(world: World) -> Iterator[None]:
    """Ctrl-C in here ends what has changed nothing yet."""
    try:
        yield
    except KeyboardInterrupt:
        world.note("interrupted: nothing was changed on any host")
        raise


def show_and_ask(world: World, options: Options, cluster: InventoryCluster, plan: planning.Plan) -> None:
    """Go on only with the plan that is agreed to. Raises CommandError where it is another one, or a person's to do."""
    # Standard output belongs to the result; the plan is what people read before they answer.
    planning.show(world, plan, OutputShape(), world.err)
    if options.plan and options.plan != plan.hash:
        raise CommandError(f"the plan is {plan.hash} by now, not {options.plan}; nothing was changed", "mqctl plan")
    require_no_hand(plan.changes)
    if not options.check:
        question = (
            f"Apply this to cluster {cluster.name}?" if plan.changes else "Nothing to do; run the playbook anyway?"
        )
        confirm.yes(world, question, is_sure=options.yes or bool(options.plan))


def require_no_hand(changes: Iterable[Change]) -> None:
    """Refuses what roles would refuse in the middle: what a person has to see to first. Raises CommandError."""
    found = [f"{one.host}: {one.what}: {one.before}, {one.action}" for one in changes if one.action in BY_HAND]
    if found:
        raise CommandError(
            f"{'; '.join(found)}; nothing was changed on any host",
            "mqctl plan, when that is put right, or leave the host out with --limit",
        )


def inputs_of(
    world: World, cluster: InventoryCluster, hosts: Sequence[Host], bundle: Path, folder: Folder
) -> dict[str, str]:
    """Host -> digest of what a rollout of it is made from. Files of certificates are among it."""
    collection = Path(collections_path(world.environ, world.cwd).split(":", 1)[0]) / COLLECTION
    manifest, files = read(bundle), sorted(each for each in folder.path.rglob("*") if each.is_file())
    provided = [
        world.cwd / str(value)
        for name in ("mq_tls_certificate_file", "mq_tls_key_file", "mq_tls_ca_file")
        for host in hosts
        if (value := host.variables.get(name))
    ]
    common = settled.tree(collection)
    return {
        host.name: settled.inputs_of(cluster, host, settled.RolloutInputs(manifest, common, [*files, *provided]))
        for host in hosts
    }


def leave_alone(world: World, options: ReaderOptions, cluster: InventoryCluster, hosts: Sequence[Host]) -> Exit:
    """Nothing is to be done: say so, and look at every node."""
    note = "as the last rollout left it"
    rows = [{"host": one.name, "state": "ok", "ok": 1, "changed": 0, "changes": [], "note": note} for one in hosts]
    write(Rows("mqctl.run/1", COLUMNS, rows, {"changed": 0}), options.shape, world.data)
    return verify(world, cluster, hosts)


def carry_out(
    world: World, options: ReaderOptions, cluster: InventoryCluster, hosts: Sequence[Host], play: Play
) -> Exit:
    """Run the playbook on the hosts, say how each fared, and look at its nodes."""
    try:
        state = run_play(world, cluster, play)
    except Interrupted as interrupted:
        return report_interrupted(world, cluster, interrupted.state, options.shape, play)
    code = report(world, state, options.shape)
    if play.is_check or code is Exit.FAILED:
        return code
    try:
        return max(code, verify(world, cluster, [one for one in hosts if _went_well(state, one)]))
    except KeyboardInterrupt:
        world.note("interrupted: the hosts are done, and not every node was looked at; see: mqctl status")
        raise


def report_interrupted(
    world: World, cluster: InventoryCluster, state: RunState, shape: OutputShape, play: Play
) -> Exit:
    """How far each host has come, and what its brokers do now where a task was under way. Another Ctrl-C ends this."""
    report(world, state, shape)
    touched = [one for one in cluster.hosts if one.name in state.hosts and state.hosts[one.name].state == "interrupted"]
    nodes = [Node(host.name, instance, host.access) for host in touched for instance in host.instances]
    for node, found in on_each(nodes, lambda one: status.look(world, one, INTERRUPTED_LOOK_S)):
        row = status.row_of(node, found)
        note = f", {row['note']}" if row["note"] else ""
        world.note(f"{node.name}: its broker is {row['state']} now{note}")
    count = sum(one.state == "ok" for one in state.hosts.values())
    world.note(f"interrupted: {count} of {counted(len(state.hosts), 'host')} done; mqctl {play.name} again goes on")
    return Exit.INTERRUPTED


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


def report(world: World, state: RunState, shape: OutputShape) -> Exit:
    """One row per host."""
    rows = [
        {
            "host": one.name,
            "state": one.state,
            "ok": one.ok,
            "changed": one.changed,
            "changes": one.changes,
            "note": one.note,
        }
        for one in state.hosts.values()
    ]
    changed = sum(one.changed for one in state.hosts.values())
    write(Rows("mqctl.run/1", COLUMNS, rows, {"changed": changed}), shape, world.data)
    return verdict(state)


def verify(world: World, cluster: InventoryCluster, hosts: Sequence[Host]) -> Exit:
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
    found, is_ours = canary.troubles(world, nodes, ids, canary.CanaryPatience())
    for each in found:
        world.note(each)
    if is_ours:
        raise CommandError("not every link between these nodes takes messages", "mqctl topology, mqctl cluster canary")
