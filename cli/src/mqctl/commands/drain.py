"""`mqctl drain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import confirm
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory_faults import checked
from mqctl.operation import OperationScope, Resume, holding, numbers, require_free
from mqctl.output import Column, Rows, counted, write
from mqctl.playbook.rollout import untouched
from mqctl.scaledown import archive
from mqctl.scaledown.beginning import begin, hindrances, require_answers, show_plan
from mqctl.scaledown.drain import MOVED, DrainFollower
from mqctl.scaledown.leaver import Leaver
from mqctl.scaledown.looks import LEAVES, look_at
from mqctl.scaledown.plan import DrainPlan, plan_of
from mqctl.world import World

COLUMNS = (
    Column("host"), Column("instance"), Column("state"), Column("to"), Column("moved", is_number=True),
    Column("left", is_number=True), Column("connections", is_number=True),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """Which host, where its messages go, and whether that is waited for."""

    host: Annotated[str, typer.Argument(help="The host that is to be empty, with all its instances.")]
    to: Annotated[
        str,
        typer.Option(help="The node that takes its messages. [default: that with the most links up, then most room]"),
    ] = ""
    wait: Annotated[bool, typer.Option("--wait", help="Until no client and no message is left there.")] = False
    timeout: Annotated[float, typer.Option(help="Seconds that --wait waits.", min=1)] = 3600.0
    force: Annotated[
        bool, typer.Option("--force", help="Also where not everything can move, or somebody is not served meanwhile.")
    ] = False
    resume: Resume = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Empty a host for maintenance: its clients are sent elsewhere, it takes nothing new, and its messages move away.

    The brokers run on, keep their links, and stay as they are over restarts, until `mqctl undrain` has them serve
    again, or `mqctl scale-down --resume` takes the host out. What has moved stays where it is. `mqctl scale-down
    HOST --show` says how far it is.

    Exit code 1 if it was refused, 4 if the time of --wait was up first.
    """
    with untouched(world):
        cluster = checked(world, options)
        leaver = Leaver(cluster, cluster.host(options.host), is_forced=options.force, verb="drain")
        scope = OperationScope(seen=numbers(world, cluster))
        if not options.resume:
            require_free(world, cluster, leaver.command)
        plan = _agreed(world, options, leaver)
    with holding(world, cluster, leaver.command, is_resumed=options.resume, scope=scope) as operation:
        begin(world, leaver, plan, operation)
        if options.wait:
            _follow(world, options, leaver)
    return _tell(world, options, leaver)


def _agreed(world: World, options: Options, leaver: Leaver) -> DrainPlan | None:
    """What is to begin; None where all of it drains already."""
    found = look_at(world, leaver.nodes)
    require_answers(found)
    if all(one.state in LEAVES for one in found):
        world.note(f"{leaver.host.name} drains already")
        return None
    archive.require_own(world, leaver.host)
    plan = plan_of(found, look_at(world, leaver.others), options.to)
    hindered = hindrances(world, leaver, plan)
    show_plan(world, plan, hindered)
    hinders = [*plan.overruled, *hindered]
    if hinders and not options.force:
        raise CommandError(
            f"{counted(len(hinders), 'thing')} would not move or not safely: {'; '.join(hinders)}; nothing was changed",
            "put that right, or --force: what cannot move stays there",
        )
    names = ", ".join(sorted({one.name for one in plan.targets.values()}))
    confirm.yes(world, f"Move everything of {leaver.host.name} to {names}?", is_sure=options.yes)
    return plan


def _follow(world: World, options: Options, leaver: Leaver) -> None:
    """The drain is at the brokers: where nobody looks any more it goes on, so nothing stays held for it."""
    try:
        DrainFollower(world, leaver.nodes, options.json).until(MOVED, options.timeout)
    except KeyboardInterrupt:
        world.note(f"interrupted: the brokers go on; {leaver.ways}")
        raise


def _tell(world: World, options: Options, leaver: Leaver) -> int:
    found = look_at(world, leaver.nodes)
    require_answers(found)
    rows = [
        {"host": one.node.host, "instance": one.node.instance, "state": one.state, "to": one.drain.get("node"),
         **{name: one.drain.get(name) for name in ("moved", "left", "connections")}}
        for one in found
    ]  # fmt: skip
    write(Rows("mqctl.drain/1", COLUMNS, rows), options.shape, world.data)
    is_over = all(one.state == MOVED for one in found)
    how_far = "is empty" if is_over else f"drains; mqctl scale-down {leaver.host.name} --show says how far it is"
    world.note(f"{leaver.host.name} {how_far}; mqctl undrain {leaver.host.name} has it serve again")
    return Exit.DONE
