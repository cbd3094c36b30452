"""`mqctl rollout`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from mqctl import confirm, settled
from mqctl.bundle.choice import BundleOptions, bundle_of
from mqctl.bundle.manifest import read
from mqctl.certificates.folder import Folder
from mqctl.certificates.issuing import folder_of, make_missing
from mqctl.cluster_plan import Plan, make_plan, show_plan
from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.gate.gate import Force, require_served, restarts
from mqctl.inventory import Host, InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.operation import OperationScope, Resume, holding, numbers
from mqctl.output import OutputShape, Rows, write
from mqctl.playbook.outcome import COLUMNS, carry_out
from mqctl.playbook.place import COLLECTION, collections_path
from mqctl.playbook.rollout import batch_of, require_no_hand, rollout_play, untouched
from mqctl.verification import verify
from mqctl.world import World

COMMAND = "mqctl rollout"


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, BundleOptions):
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
    force: Force = False
    diff: Annotated[bool, typer.Option("--diff", help="Let Ansible show differences of files; use with -v.")] = False


def run(world: World, options: Options) -> int:
    """Bring the hosts to what the inventory wants: show the plan, ask, run the playbook, look at every node.

    Where every host is as the last rollout left it, and everything that went into that is the same, the playbook is
    left out: files, modes and owners are compared by digest. `--full` runs it all the same.

    Nothing begins where clients would not be served while a batch is away; `--force` says what is given up.

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
        seen = numbers(world, cluster)
        bundle = bundle_of(world, options, cluster)
        plan = make_plan(world, cluster, hosts, Path(bundle))
        if not options.check:
            turns = restarts(cluster, plan.changes, batch)
            require_served(world, cluster, turns, is_forced=options.force, is_restart=True)
        show_and_ask(world, options, cluster, plan)
    folder = folder_of(world, cluster)
    inputs = inputs_of(world, cluster, hosts, Path(bundle), folder)
    is_idle = not (plan.changes or plan.blind or plan.missing or options.check or options.full)
    if is_idle and settled.all_settled(world, hosts, inputs):
        return leave_alone(world, options, cluster, hosts)
    play = rollout_play(folder, bundle, hosts, batch)
    play = replace(play, is_check=options.check, is_diff=options.diff)
    if options.check:
        return carry_out(world, options, cluster, hosts, play)
    names = {one.name for one in hosts}
    with holding(world, cluster, COMMAND, is_resumed=options.resume, scope=OperationScope(names, seen)):
        make_missing(world, folder, plan.missing)
        code = carry_out(world, options, cluster, hosts, play)
        if code is Exit.DONE:
            # Certificates that were made on the way went into it.
            settled.mark(world, hosts, inputs_of(world, cluster, hosts, Path(bundle), folder))
    return code


def show_and_ask(world: World, options: Options, cluster: InventoryCluster, plan: Plan) -> None:
    """Go on only with the plan that is agreed to. Raises CommandError where it is another one, or a person's to do."""
    # Standard output belongs to the result; the plan is what people read before they answer.
    show_plan(world, plan, OutputShape(), world.err)
    if options.plan and options.plan != plan.hash:
        raise CommandError(f"the plan is {plan.hash} by now, not {options.plan}; nothing was changed", "mqctl plan")
    require_no_hand(plan.changes)
    if not options.check:
        question = (
            f"Apply this to cluster {cluster.name}?" if plan.changes else "Nothing to do; run the playbook anyway?"
        )
        confirm.yes(world, question, is_sure=options.yes or bool(options.plan))


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
