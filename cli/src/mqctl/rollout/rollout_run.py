"""A rollout as a command runs it: the plan, the question, the playbook, a look at every node.

`mqctl rollout` and `mqctl upgrade` are this. Sources: docs/adr/0028-one-operation-at-a-time.md and 0029-upgrade.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from mqctl import confirmation
from mqctl.brokers.verification import verify
from mqctl.bundle.choice import BundleOptions, bundle_of
from mqctl.bundle.manifest import read
from mqctl.certificates.folder import Folder
from mqctl.certificates.issuing import folder_of, make_missing
from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.gate.gate import require_served, restarts
from mqctl.inventory import Host, InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.nodes import nodes_in
from mqctl.operation import (
    HeldCluster,
    OperationScope,
    Resume,
    code_of,
    goal_of,
    holding,
    hosts_of,
    is_paused,
    look,
    numbers_of,
    require_none_but,
    typed,
)
from mqctl.output import OutputShape, Rows, write
from mqctl.playbook.outcome import COLUMNS, carry_out
from mqctl.playbook.place import COLLECTION, collections_path
from mqctl.playbook.rollout import batch_of, require_no_hand, rollout_play, untouched
from mqctl.rollout import journal_formats, settled_hosts
from mqctl.rollout.cluster_plan import Plan, make_plan, show_plan
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class RollingOptions(ReaderOptions, BundleOptions):
    """Which hosts, with which bundle, and what has to hold before anything is changed."""

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
    resume: Resume = False
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also where somebody is not served meanwhile, or links do not stand that did before an earlier "
            "restart; what is given up is told.",
        ),
    ] = False
    diff: Annotated[bool, typer.Option("--diff", help="Let Ansible show differences of files; use with -v.")] = False


@dataclass(frozen=True, slots=True)
class Rolling:
    """What a command makes of a rollout. `command`: as it is noted on hosts, where it is of all; `is_canary_first`: the
    first host that is restarted is alone, whatever the batch."""

    command: str
    is_canary_first: bool = False


def roll_out(world: World, options: RollingOptions, rolling: Rolling) -> Exit:
    """All of it; the exit code."""
    batch, command = batch_of(options.batch), typed(rolling.command, options.limit)
    with untouched(world):
        cluster = checked(world, options)
        notes = look(world, cluster.hosts)[0]
        hosts = hosts_of(cluster, notes, command, options.limit, is_resumed=options.resume)
        if options.resume and not options.check:
            require_none_but(notes, {command})  # before anybody reads a plan that would be refused
        bundle = bundle_of(world, options, cluster)
        goal = read(Path(bundle)).release
        if options.resume:
            require_goal(command, goal_of(notes, rolling.command), goal)
        plan = make_plan(world, cluster, hosts, Path(bundle))
        hosts = looked_at(hosts, plan)
        if not options.check:
            turns = restarts(cluster, plan.changes, batch, is_canary_first=rolling.is_canary_first)
            require_served(world, cluster, turns, is_forced=options.force, is_restart=True)
        show_and_ask(world, options, cluster, plan)
    folder = folder_of(world, cluster)
    inputs = inputs_of(world, cluster, hosts, Path(bundle), folder)
    # Who goes on in the place of another has hosts to give back, also where nothing is left to do.
    is_idle = not (plan.changes or plan.blind or plan.missing or options.check or options.full or options.resume)
    if is_idle and settled_hosts.all_settled(world, hosts, inputs):
        return leave_alone(world, options, cluster, hosts)
    play = rollout_play(folder, bundle, hosts, batch, is_canary_first=rolling.is_canary_first)
    play = replace(
        play,
        variables={**play.variables, "rollout_force": options.force},
        is_check=options.check,
        is_diff=options.diff,
        command=command,
        left_out=plan.blind,
    )
    if options.check:
        return carry_out(world, options, cluster, hosts, play)
    scope = OperationScope({one.name for one in hosts}, numbers_of(notes), goal)
    with holding(world, cluster, command, is_resumed=options.resume, scope=scope) as own:
        make_missing(world, folder, plan.missing)
        code = carry_out(world, options, cluster, hosts, play)
        if code is Exit.DONE:
            # Certificates that were made on the way went into it.
            settled_hosts.mark(world, hosts, inputs_of(world, cluster, hosts, Path(bundle), folder))
            own.is_done = True
        keep_paused(world, own, code)
    return code_of(own, code)


def looked_at(hosts: Sequence[Host], plan: Plan) -> list[Host]:
    """Those that the plan is of. Raises CommandError where there is none, or where roles would refuse another one.

    One that was not reached may answer by the time the playbook comes to it, and nobody has asked whom its broker
    serves, nor agreed to what changes there: so it is left out, by force as well.
    """
    seen = [one for one in hosts if one.name not in plan.blind]
    if plan.unplanned or not seen:
        faults = {name: why for name, why in plan.blind.items() if name in plan.unplanned or not seen}
        raise CommandError(
            f"{'; '.join(map(': '.join, faults.items()))}; nothing was changed on any host",
            "mqctl plan, when that is put right" + (", or leave the host out with --limit" if seen else ""),
            Exit.FAILED if plan.unplanned else Exit.DEGRADED,
        )
    return seen


def is_release_changed(plan: Plan) -> bool:
    """Whether a host that has a release gets another one."""
    return any(one.what == "release" and one.before for one in plan.changes)


def require_goal(command: str, noted: str, release: str) -> None:
    """Who goes on has the release of the run in whose place he comes. Raises CommandError."""
    if noted not in ("", release):
        raise CommandError(
            f"{command} was begun with release {noted}, and this is {release}; nothing was changed",
            f"{command} --resume with that release; or this one without --resume, where nothing holds the cluster any "
            "more (mqctl operation release)",
        )


def keep_paused(world: World, own: HeldCluster, code: Exit) -> None:
    """Where somebody paused it, the hosts stay held until somebody goes on or gives it up; unless nothing is left."""
    if code is not Exit.DONE and is_paused(world, own.hosts):
        own.stays = True
        world.note(f"paused; {own.note['what']} --resume goes on, and the hosts stay held until then")


def show_and_ask(world: World, options: RollingOptions, cluster: InventoryCluster, plan: Plan) -> None:
    """Go on only with the plan that is agreed to. Raises CommandError where it is another one, or a person's to do."""
    # Standard output belongs to the result; the plan is what people read before they answer.
    show_plan(world, plan, OutputShape(), world.err)
    if plan.blind:
        names = ", ".join(plan.blind)
        world.note(f"left out: {names}; the same command again, when that is put right, goes there as well")
    if is_release_changed(plan) and (text := journal_formats.told(journal_formats.ask(world, nodes_in(cluster)))):
        world.note(text)
    if options.plan and options.plan != plan.hash:
        raise CommandError(f"the plan is {plan.hash} by now, not {options.plan}; nothing was changed", "mqctl plan")
    require_no_hand(plan.changes)
    if not options.check:
        question = (
            f"Apply this to cluster {cluster.name}?" if plan.changes else "Nothing to do; run the playbook anyway?"
        )
        confirmation.yes(world, question, is_sure=options.yes or bool(options.plan))


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
    common = settled_hosts.tree(collection)
    return {
        host.name: settled_hosts.inputs_of(
            cluster, host, settled_hosts.RolloutInputs(manifest, common, [*files, *provided])
        )
        for host in hosts
    }


def leave_alone(world: World, options: ReaderOptions, cluster: InventoryCluster, hosts: Sequence[Host]) -> Exit:
    """Nothing is to be done: say so, and look at every node."""
    note = "as the last rollout left it"
    rows = [{"host": one.name, "state": "ok", "ok": 1, "changed": 0, "changes": [], "note": note} for one in hosts]
    write(Rows("mqctl.run/1", COLUMNS, rows, {"changed": 0}), options.shape, world.data)
    return verify(world, cluster, hosts)
