"""`mqctl rollback`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl import completion, confirmation, operation
from mqctl.brokers.verification import verify
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.gate.gate import Force, require_served, turns_of
from mqctl.inventory import Host, InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.operation import OperationScope, Resume, code_of, holding
from mqctl.output import Column, OutputShape, Rows, counted, write
from mqctl.playbook.outcome import carry_out
from mqctl.playbook.rollout import MARK, batch_of, untouched
from mqctl.playbook.run import Play
from mqctl.remote.operation import UNAWAITED
from mqctl.rollout import releases, way_back
from mqctl.rollout.releases import HostReleases
from mqctl.rollout.rollout_run import require_goal
from mqctl.world import World

COMMAND = "mqctl rollback"
FOLLOWED = ("mqctl upgrade", "mqctl rollout")
COLUMNS = (Column("host"), Column("release"), Column("running"), Column("returns_to"))


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """Which release is left, by which hosts."""

    leave: Annotated[
        str, typer.Option(help="The release that is left. [default: the last one that the cluster was brought to]")
    ] = ""
    limit: Annotated[
        str,
        typer.Option(
            help="Only these hosts; names or wildcards, separated by commas.", autocompletion=completion.hosts
        ),
    ] = ""
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    check: Annotated[
        bool,
        typer.Option("--check", help="Show what goes back and look who would not be served; end before the question."),
    ] = False
    batch: Annotated[
        str, typer.Option(help="Hosts that are changed at a time after the first one, N or P%. [default: 1]")
    ] = ""
    instead: Annotated[
        bool, typer.Option("--instead", help="In the place of an upgrade that holds the cluster and is gone.")
    ] = False
    resume: Resume = False
    force: Force = False


def run(world: World, options: Options) -> int:
    """Take a release back: hosts that have it return to the one before, with its unit and the options of then.

    What was before is kept on each host as a release becomes the current one. Hosts that do not have the release stay
    as they are, so an upgrade that is paused, was stopped or was cut off is taken back where it has come to. One that
    holds the cluster and is gone for certain needs --instead. Users and certificates stay as they are.

    Options and the unit go back with the release: what becomes of them is shown before the question, as in a plan.

    Once that is agreed to, and not with --check, each host is asked whether it can return: the release is whole, takes
    these options, reads the formats of journals that are there, and the files that the options name are there. If one
    cannot, nothing is changed on any.
    Messages stay; where address settings of then say config-delete FORCE, a start deletes what was declared since, with
    its messages: that is refused without --force. Then one host goes first and the others in
    batches, as in an upgrade. The inventory still wants what it wants: `mqctl plan` shows it, and a rollout or an
    upgrade brings it again.

    A host that is not reached is left out, and keeps what it has.

    Exit code as `mqctl rollout`; 3 also where a host was left out.
    """
    batch, command = batch_of(options.batch), operation.typed(COMMAND, options.limit)
    with untouched(world):
        cluster = checked(world, options)
        notes = operation.look(world, cluster.hosts)[0]
        hosts = operation.hosts_of(cluster, notes, command, options.limit, is_resumed=options.resume)
        per_host, faults = releases.look(world, hosts)
        for fault in faults.values():
            world.note(f"{fault}; it is left out, and keeps what it has")
        left = options.leave or operation.goal_of(notes) or releases.left_by(per_host)
        if options.resume:
            require_goal(command, operation.goal_of(notes, COMMAND), left)
        if options.resume and operation.goal_of(notes, COMMAND) and not releases.having(per_host, left):
            if options.check:
                return check_end(world, notes, left, command, is_whole=not faults)
            return finish(world, cluster, hosts, left, command)
        due = due_of(world, options, hosts, per_host, left)
        is_followed = options.instead or operation.is_paused(world, cluster.hosts)
        reached = [one for one in hosts if one.name not in faults]
        asked = waited_for(cluster, notes, faults)
        followed = operation.held_by(notes, FOLLOWED) if is_followed else ()
        is_known = way_back.show(world, due, left)
        operation.require_none_but(notes, {command, *followed} if options.resume or is_followed else ())
        require_idle(world, asked)
        turns = turns_of(cluster, {one.name for one in due}, batch, is_canary_first=True)
        require_served(world, cluster, turns, is_forced=options.force, is_restart=True)
        if options.check:
            return Exit.DONE if is_known and not faults else Exit.DEGRADED
        question = f"Take release {left} back on {counted(len(due), 'host')} of cluster {cluster.name}?"
        confirmation.yes(world, question, is_sure=options.yes)
    variables = {"mq_rollback_from": left, "rollout_batch": batch, "mq_rollback_force": options.force}
    play = Play("rollback", variables, ",".join(one.name for one in due), mark=MARK, command=command)
    scope = OperationScope({one.name for one in due}, operation.numbers_of(notes), left, instead_of=followed)
    with holding(world, cluster, command, is_resumed=options.resume or is_followed, scope=scope) as own:
        # What ran before is refused from here on, and may have come to its end on one more host until then.
        require_idle(world, asked)
        require_same(due, releases.having(releases.look(world, reached)[0], left))
        code = carry_out(world, options, cluster, due, play)
        own.is_done = code is Exit.DONE
    return Exit.DEGRADED if faults and code is Exit.DONE else code_of(own, code)


def require_same(due: Sequence[Host], having: Collection[str]) -> None:
    """The hosts that were agreed to are those that have the release. Raises CommandError."""
    others = {one.name for one in due} ^ set(having)
    if others:
        raise CommandError(
            f"{', '.join(sorted(others))}: has come to another release since the question; nothing was changed",
            "the same command again",
        )


def check_end(
    world: World, notes: Mapping[str, dict[str, Any] | None], left: str, command: str, *, is_whole: bool
) -> Exit:
    """What `finish` would do, and nothing of it. Raises CommandError where it would be refused."""
    operation.require_none_but(notes, {command})
    world.note(f"no host has release {left} any more: only the hosts are to be given back")
    return Exit.DONE if is_whole else Exit.DEGRADED


def finish(world: World, cluster: InventoryCluster, hosts: Sequence[Host], left: str, command: str) -> Exit:
    """One that was killed after its last host: only the hosts are to be given back."""
    with holding(world, cluster, command, is_resumed=True, scope=OperationScope((), goal=left)) as own:
        own.is_done = True
        world.note(f"no host has release {left} any more")
        code = verify(world, cluster, hosts)
    return code_of(own, code)


def due_of(
    world: World, options: Options, hosts: Sequence[Host], per_host: Sequence[HostReleases], left: str
) -> list[Host]:
    """Hosts that have the release or run it; shows what each returns to. Raises CommandError where there is none."""
    having = releases.having(per_host, left)
    rows = [
        {"host": one.host, "release": one.current, "running": ", ".join(one.running),
         "returns_to": one.before.get(left, "(nothing is kept)") if one.host in having else ""}
        for one in per_host
    ]  # fmt: skip
    write(Rows("mqctl.rollback/1", COLUMNS, rows), OutputShape(), world.err)
    if not having:
        raise CommandError(
            f"no host that was reached has release {left}, so there is nothing to take back; nothing was changed",
            "mqctl upgrade status; mqctl rollback --leave RELEASE goes back further",
        )
    unkept = [name for name, one in having.items() if left not in one.before]
    if unkept:
        raise CommandError(
            f"{', '.join(unkept)}: nothing is kept of what was before release {left}, as it is the first one there, or "
            "was put there by an earlier collection; nothing was changed on any host",
            "mqctl rollout --bundle FOLDER, with the bundle of the release before",
        )
    return [one for one in hosts if one.name in having]


def waited_for(
    cluster: InventoryCluster, notes: Mapping[str, dict[str, Any] | None], faults: Collection[str]
) -> list[Host]:
    """Hosts on which nothing of Ansible's may be under way. A batch may be on hosts that are not to go back, too."""
    if operation.is_unawaited(notes):
        return []
    return [one for one in cluster.hosts if one.name in notes and one.name not in faults]


def require_idle(world: World, hosts: Sequence[Host]) -> None:
    """No batch of what was paused, stopped or is gone is under way any more. Raises CommandError while one is."""
    busy = operation.told_busy(operation.busy(world, hosts))
    if busy:
        raise CommandError(
            f"{busy}; nothing was changed",
            "the same command again, when they have come to their end; where they are of something else, "
            f"{UNAWAITED} first",
        )
