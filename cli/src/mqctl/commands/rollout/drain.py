"""`mqctl drain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import confirmation
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.gate import gate
from mqctl.inventory_faults import checked
from mqctl.nodes import Node
from mqctl.operation import OperationScope, Resume, code_of, give_back, holding, numbers, require_free
from mqctl.output import Column, Rows, counted, write
from mqctl.playbook.rollout import untouched
from mqctl.scaledown import archive
from mqctl.scaledown.cluster_look import FAILED, LEAVES, SERVES, NodeLook, look_at
from mqctl.scaledown.drain import CORDONED, MOVED, DrainFollower
from mqctl.scaledown.drain_start import (
    agree_to_turn,
    answering,
    as_it_goes,
    begin,
    cordon,
    hindrances,
    pauses_of,
    require_answers,
    show_plan,
    tell_of_pauses,
    turned,
)
from mqctl.scaledown.leaving_host import Leaver
from mqctl.scaledown.plan import DrainPlan, plan_of, told
from mqctl.world import World

COLUMNS = (
    Column("host"), Column("instance"), Column("state"), Column("to"), Column("moved", is_number=True),
    Column("left", is_number=True), Column("connections", is_number=True),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """Which host, whether its messages go and where, and whether that is waited for."""

    host: Annotated[str, typer.Argument(help="The host that is to serve no client, with all its instances.")]
    move: Annotated[bool, typer.Option("--move", help="Its messages go to another node; else they stay there.")] = False
    to: Annotated[
        str,
        typer.Option(
            help="With --move: the node that takes them. "
            "[default: of its group and release that with the most links up, then most room]"
        ),
    ] = ""
    wait: Annotated[bool, typer.Option("--wait", help="Until no client is left there, and with --move no message.")] = (
        False
    )
    timeout: Annotated[float, typer.Option(help="Seconds that --wait waits.", min=1)] = 3600.0
    force: Annotated[
        bool, typer.Option("--force", help="Also where not everything can move, or somebody is not served meanwhile.")
    ] = False
    resume: Resume = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Take a host out of service for maintenance: its clients are sent elsewhere, and it lets none in.

    Its messages stay, and are not served meanwhile. With --move they go to another node, and stay there. The brokers
    run on, keep their links, and stay as they are over restarts, until `mqctl undrain` has them serve again. What is
    drained with --move leaves the cluster by `mqctl scale-down --resume`. `mqctl scale-down HOST --show` says how far
    it is.

    Where some of its brokers do not answer the others drain, if nobody is served by those alone (--force).

    Exit code 1 if it was refused, 3 if some did not answer or a host could not be given back, 4 if the time of --wait
    was up first.
    """
    if options.to and not options.move:
        raise UsageError("--to says where messages go, and without --move they stay")
    with untouched(world):
        cluster = checked(world, options)
        leaver = Leaver(cluster, cluster.host(options.host), is_forced=options.force, verb="drain")
        scope = OperationScope(seen=numbers(world, cluster))
        if not options.resume:
            require_free(world, cluster)
        looks = answering(world, look_at(world, leaver.nodes), leaver.command)
        moves = options.move or all(one.state in LEAVES for one in looks)
        plan = _agreed(world, options, leaver, looks, scope) if moves else None
        kept = [] if moves else _agreed_to_keep(world, options, leaver, looks)
    with holding(world, cluster, leaver.command, is_resumed=options.resume, scope=scope) as operation:
        begin(world, leaver, plan, operation)
        cordon(world, leaver, kept, operation)
        nodes = [one.node for one in looks]
        if options.wait:
            _follow(world, options, leaver, nodes, MOVED if moves else CORDONED)
        operation.is_done = len(nodes) == len(leaver.nodes)
    _tell(world, options, leaver, nodes)
    return code_of(operation, Exit.DONE if len(nodes) == len(leaver.nodes) else Exit.DEGRADED)


def _again(options: Options, leaver: Leaver) -> str:
    """The command that comes next: in the place of a run that may hold the hosts where this one was to."""
    return leaver.again if options.resume else leaver.command


def _agreed_to_keep(world: World, options: Options, leaver: Leaver, looks: list[NodeLook]) -> list[NodeLook]:
    """The nodes that are to let no client in; none where all do so already."""
    for one in looks:
        if one.state not in (SERVES, CORDONED):
            what = "moves its messages" if one.state in LEAVES else "is just taking back a drain"
            ways = f"{_again(options, leaver)} --move, or {leaver.back}"
            raise CommandError(f"{one.name} {what}; nothing was changed", ways)
    nodes = [one for one in looks if one.state == SERVES]
    if not nodes:
        world.note(f"{leaver.host.name} is drained already, and keeps its messages")
        return []
    lost = gate.lost(world, leaver.cluster, [leaver.host.node_names], {one.name for one in leaver.others})
    for one in nodes:
        count = sum(int(row["message_count"]) for row in one.queues)
        clients = counted(int(one.drain.get("connections", 0)), "client")
        world.note(f"{one.name}: {counted(count, 'message')} stay, and are not served meanwhile; {clients} connected")
    for text in lost:
        world.note(f"hinders: {text}")
    if lost and not options.force:
        raise CommandError(
            f"{counted(len(lost), 'thing')} would not be served meanwhile: {'; '.join(lost)}; nothing was changed",
            "put that right, or --force, which gives it up for that time",
        )
    confirmation.yes(world, f"Send the clients of {leaver.host.name} elsewhere?", is_sure=options.yes)
    return nodes


def _agreed(
    world: World, options: Options, leaver: Leaver, looks: list[NodeLook], scope: OperationScope
) -> DrainPlan | None:
    """What is to move; None where all of it does already, to the node that is meant."""
    if all(one.state in LEAVES for one in looks):
        return _goes_on(world, options, leaver, looks, scope)
    archive.require_own(world, leaver.host)
    plan = plan_of(looks, look_at(world, leaver.others), options.to)
    hindered = hindrances(world, leaver, plan)
    show_plan(world, plan, hindered)
    hinders = [*plan.overruled, *hindered]
    if hinders and not options.force:
        raise CommandError(
            f"{counted(len(hinders), 'thing')} would not move or not safely: {'; '.join(hinders)}; nothing was changed",
            "put that right, or --force: what cannot move stays there",
        )
    names = ", ".join(sorted({one.name for one in plan.targets.values()}))
    confirmation.yes(world, f"Move everything of {leaver.host.name} to {names}?", is_sure=options.yes)
    return plan


def _goes_on(
    world: World, options: Options, leaver: Leaver, looks: Sequence[NodeLook], scope: OperationScope
) -> DrainPlan | None:
    """What goes on to another node, which --to names, or leaves by force what cannot move; else None. Brokers try what
    has failed again by themselves, so that is a refusal with what hinders, or is followed; who goes on in the place of
    a run that held the hosts gives them back before."""
    plan = turned(world, leaver, looks, options.to)
    if plan is not None:
        agree_to_turn(world, leaver, plan, is_sure=options.yes)
        return plan
    failed = [one for one in looks if one.state == FAILED]
    if failed and not (options.wait or options.force):
        if options.resume:
            give_back(world, leaver.cluster, leaver.command, scope)
        why = "; ".join(f"{one.name}: {text}" for one in failed for text in told(one.drain.get("hindrances", ())))
        raise CommandError(
            f"{leaver.host.name} drains already, and not all of it can move: {why or 'it does not say why'}; the "
            "brokers try it again and again",
            f"put that right, {_again(options, leaver)} --move --to OTHER, or {leaver.back}",
        )
    world.note(f"{leaver.host.name} drains already")
    return as_it_goes(world, leaver, looks)


def _follow(world: World, options: Options, leaver: Leaver, nodes: Sequence[Node], wanted: str) -> None:
    """The drain is at the brokers: where nobody looks any more it goes on, so nothing stays held for it."""
    try:
        DrainFollower(world, nodes, options.json, back=leaver.back).until(wanted, options.timeout)
    except KeyboardInterrupt:
        world.note(f"interrupted: the brokers go on; {leaver.ways}")
        raise


def _tell(world: World, options: Options, leaver: Leaver, nodes: Sequence[Node]) -> None:
    looks = look_at(world, nodes)
    require_answers(looks)
    rows = [
        {"host": one.node.host, "instance": one.node.instance, "state": one.state, "to": one.drain.get("node"),
         **{name: one.drain.get(name) for name in ("moved", "left", "connections")}}
        for one in looks
    ]  # fmt: skip
    write(Rows("mqctl.drain/1", COLUMNS, rows), options.shape, world.data)
    tell_of_pauses(world, leaver.others, pauses_of(looks))
    if all(one.state == CORDONED for one in looks):
        how_far = "lets no client in, and keeps its messages"
    elif all(one.state == MOVED for one in looks):
        how_far = "is empty"
    else:
        how_far = f"drains; mqctl scale-down {leaver.host.name} --show says how far it is"
    world.note(f"{leaver.host.name} {how_far}; mqctl undrain {leaver.host.name} has it serve again")
