"""`mqctl upgrade`."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from mqctl import confirmation, operation
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.inventory import InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.nodes import nodes_in
from mqctl.output import Rows, counted, write
from mqctl.remote.operation import GIVEN_UP, PAUSE
from mqctl.rollout import journal_formats, releases
from mqctl.rollout.journal_formats import FormatsRead
from mqctl.rollout.releases import HostReleases
from mqctl.rollout.rollout_run import Rolling, RollingOptions, roll_out
from mqctl.world import World

UPGRADE = Rolling("mqctl upgrade", is_canary_first=True)
STOP = GIVEN_UP[1]
OF_RUNS = ("limit", "bundle", "plan", "check", "batch", "full", "resume", "force", "diff")  # options of run and resume


class UpgradeStep(enum.StrEnum):
    """What is to be done with an upgrade: begin or go on, show, pause, resume, or stop it."""

    RUN = "run"
    STATUS = "status"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class Options(RollingOptions):
    """Which step, of which hosts, to which bundle."""

    step: Annotated[
        UpgradeStep,
        typer.Argument(
            help="run: begin it. status: how far it is. pause: begin no further batch. resume: go on. "
            "stop: end it here, and leave the cluster with both releases."
        ),
    ] = UpgradeStep.RUN


def run(world: World, options: Options) -> int:
    """Bring the hosts to the release of a bundle: one host first, then the others in batches.

    It is a rollout in which the first host that is restarted is alone, whatever --batch says. The release is put on
    all hosts and tried there, with their options and the formats of their journals, before any broker is restarted;
    what one host cannot run with ends it there. After each batch the links that stood have to stand again, and a
    message has to cross each. Where they do not, the same command waits for them again, and restarts no other host
    before; --force gives them up.

    How far it is stands on the hosts. After Ctrl-C, a control node that was lost, or a pause, `mqctl upgrade resume`
    goes on, from any machine; `mqctl rollback` takes it back. A pause holds from the next batch on, and keeps the
    hosts from other commands. A stop lets go of them: both releases work together, for as long as that takes.

    Exit code as `mqctl rollout`; of status 3 where not all hosts run one release, or one is not reached.
    """
    if options.step is UpgradeStep.RUN:
        return roll_out(world, options, UPGRADE)
    if options.step is not UpgradeStep.RESUME:
        require_nothing_of_runs(options)
    cluster = checked(world, options)
    if options.step is UpgradeStep.RESUME:
        return resume(world, options, cluster)
    if options.step is UpgradeStep.PAUSE:
        return pause(world, options, cluster)
    if options.step is UpgradeStep.STOP:
        return stop(world, options, cluster)
    return show(world, options, cluster)


def require_nothing_of_runs(options: Options) -> None:
    """A step that is of all hosts, and of what is noted there, is given no option that it would not heed. Raises
    UsageError."""
    given = [f"--{name}" for name in OF_RUNS if getattr(options, name)]
    if given:
        command = f"{UPGRADE.command} {options.step}"
        raise UsageError(f"{command} is of all hosts that the upgrade holds: it takes no {', '.join(given)}", command)


def resume(world: World, options: Options, cluster: InventoryCluster) -> int:
    """Go on to the release that is noted, on the hosts that it was for. Raises CommandError where no upgrade is."""
    notes = noted(world, cluster)
    if not operation.goal_of(notes, UPGRADE.command):
        raise CommandError("no upgrade is noted on any host; nothing was changed", "mqctl upgrade")
    begun_for = operation.limit_of(notes)
    limit = options.limit or begun_for
    if known := "" if options.limit else cluster.known(begun_for):
        world.note(f"it was begun for {known}, and goes on for these hosts; mqctl upgrade is for all")
    return roll_out(world, replace(options, limit=limit, resume=True), UPGRADE)


def pause(world: World, options: Options, cluster: InventoryCluster) -> int:
    """Note it on every host that the upgrade holds."""
    held = require_held(noted(world, cluster))
    names, faults = operation.wish(world, cluster.hosts, held, PAUSE)
    for fault in faults.values():
        world.note(f"mqctl: {fault}")
    world.note(f"paused on {counted(len(names), 'host')}: a batch that is under way comes to its end, no other begins; "
               "mqctl upgrade resume goes on")  # fmt: skip
    return max(show(world, options, cluster), Exit.DEGRADED) if faults else show(world, options, cluster)


def stop(world: World, options: Options, cluster: InventoryCluster) -> int:
    """Let go of the hosts, as they are."""
    held = require_held(noted(world, cluster))
    for name, note in held.items():
        world.note(f"{name}: {operation.told(note)}")
    confirmation.yes(world, f"Stop the upgrade of cluster {cluster.name} where it is?", is_sure=options.yes)
    _, faults = operation.give_up(world, cluster.hosts, held, STOP)
    for fault in faults.values():
        world.note(f"mqctl: {fault}")
    world.note("stopped: a restart that is under way comes to its end, and no other begins; the hosts are free")
    return max(show(world, options, cluster), Exit.DEGRADED) if faults else show(world, options, cluster)


def show(world: World, options: Options, cluster: InventoryCluster) -> Exit:
    """Write a row for each host: what it runs, and what the upgrade wants; the exit code."""
    notes = noted(world, cluster)
    goal = operation.goal_of(notes, UPGRADE.command)
    per_host, faults = releases.look(world, cluster.hosts)
    for fault in faults.values():
        world.note(f"mqctl: {fault}")
    rows = [
        {"host": one.host, "release": one.current, "running": ", ".join(one.running),
         "state": one.state(goal) if goal else "", "goal": goal, "operation": state_of(notes.get(one.host))}
        for one in per_host
    ]  # fmt: skip
    formats = journal_formats.ask(world, nodes_in(cluster))
    extra = {"journal_formats": journal_formats.read_by_all(formats)}
    write(Rows("mqctl.upgrade/1", releases.COLUMNS, rows, extra), options.shape, world.data)
    for text in said(per_host, formats):
        world.note(text)
    return Exit.DEGRADED if releases.mixture(per_host) or faults else Exit.DONE


def said(per_host: Sequence[HostReleases], formats: Mapping[str, FormatsRead | None]) -> list[str]:
    """In words: which releases there are, and then what that means for a way back."""
    mixed = releases.mixture(per_host)
    together = f"two releases work together: {mixed}; mqctl upgrade goes on, mqctl rollback goes back" if mixed else ""
    return [text for text in (together, journal_formats.told(formats)) if text]


def noted(world: World, cluster: InventoryCluster) -> dict[str, dict[str, Any] | None]:
    """Host -> what is noted there, of those that can be reached."""
    return operation.look(world, cluster.hosts)[0]


def require_held(notes: Mapping[str, dict[str, Any] | None]) -> dict[str, dict[str, Any]]:
    """The notes of hosts that an upgrade holds. Raises CommandError where there is none."""
    held = {name: one for name, one in notes.items() if one and operation.held_by({name: one}, [UPGRADE.command])}
    if not held:
        raise CommandError("no upgrade holds a host that could be asked; nothing was changed", "mqctl upgrade status")
    return held


def state_of(note: Mapping[str, Any] | None) -> str:
    """Of the operation that is noted on a host."""
    if note is None or not note["is_held"]:
        return "free"
    return f"{'paused' if note.get('wish') == PAUSE else 'held'} ({note['what']})"
