"""Hosts serve again what they still have: a drain or a scale-down is taken back, that of several hosts as one.

Invariant: it is an operation of its own name, that goes on in the place of what it takes back. So who finds the cluster
held by it is led to its end, and not into draining once more. Source: docs/adr/0028-one-operation-at-a-time.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from mqctl import confirmation
from mqctl.admin import AdminClient
from mqctl.brokers import node_state
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.nodes import Node
from mqctl.operation import HeldCluster, OperationScope, code_of, give_back, holding, is_held_by, numbers
from mqctl.scaledown import archive
from mqctl.scaledown.cluster_look import CORDONED, RESTS, NodeLook, look_at
from mqctl.scaledown.drain import ENDED, DrainFollower, each
from mqctl.scaledown.drain_start import answering, pauses_of, require_answers, targets_of, tell_of_pauses
from mqctl.scaledown.leaving_host import Leaver
from mqctl.world import World

LOOK_S: Final = 15
GONE, STOPPED = "gone", "stopped"
ENDED_UNITS: Final = {"absent", "inactive", "failed"}
STOPS: Final = "deactivating"


@dataclass(frozen=True, slots=True)
class TakeBack:
    """How hosts serve again. `is_forced`: at once, and what the other node may have without an answer comes twice."""

    timeout_s: float
    is_waited_for: bool = True
    is_forced: bool = False
    is_sure: bool = False
    is_json: bool = False


def take_back(world: World, leavers: Sequence[Leaver], how: TakeBack) -> Exit:
    """Have the hosts serve again what they still have; what has moved stays where it is. Of several hosts those that
    have left stay away, and the others are taken back together: where one of these does not answer the cluster stays
    held for it. A cordon is taken back by `undrain` alone, which also has those serve again that answer where others
    do not: nothing is held for them."""
    first = leavers[0]
    scope = OperationScope(seen=numbers(world, first.cluster), instead_of=(first.command,))
    looks_by_name = {leaver.name: look_at(world, leaver.nodes) for leaver in leavers}
    if first.verb == "drain":
        heard = answering(world, looks_by_name[first.name], first.back)
        return max(
            _serve_again(world, leavers, how, heard, scope),
            Exit.DONE if len(heard) == len(looks_by_name[first.name]) else Exit.DEGRADED,
        )
    silent = [one for one in leavers if any(look.fault for look in looks_by_name[one.name])]
    states = {one.name: _state_of(world, one) for one in silent}
    gone = [one for one in silent if states[one.name] == GONE]
    rest = [look for one in leavers if one not in gone for look in looks_by_name[one.name]]
    if len(silent) == len(leavers):
        _refuse(world, gone, [one for one in rest if one.fault], {*states.values()} - {GONE}, scope)
    code = _serve_again(world, leavers, how, rest, scope)
    for one in gone:
        world.note(
            f"{one.name} was drained and stopped before, and is not taken back: mqctl scale-down {one.name} --resume "
            "does what is left of that, and takes it out of the inventory with --write"
        )
    return Exit.DEGRADED if silent else code


def _state_of(world: World, leaver: Leaver) -> str:
    """Of a host of which a node says nothing: GONE where its brokers are stopped and drained to their end, whether they
    are removed by now or not; STOPPED where they are without a receipt of that; else empty, as where it is lost."""
    try:
        units = {node_state.look(world, node, LOOK_S).get("unit") for node in leaver.nodes}
        if not units <= ENDED_UNITS:
            return ""
        return GONE if archive.kept_receipt(world, leaver.host, leaver.instance) is not None else STOPPED
    except CommandError:
        return ""


def _refuse(
    world: World, gone: Sequence[Leaver], lost: Sequence[NodeLook], states: Collection[str], scope: OperationScope
) -> None:
    """What is said where no host answers. Raises CommandError. Where all have left nothing is to be taken back, so
    nothing stays held for that. `states`: of the others."""
    if not lost:
        first = gone[0]
        if is_held_by(world, first.cluster, first.back):
            give_back(world, first.cluster, first.back, scope)
        names = ", ".join(one.name for one in gone)
        raise CommandError(f"{names}: drained and stopped already, so nothing is left to be taken back", first.again)
    if states == {STOPPED}:
        faults = "; ".join(f"{one.fault}; it is stopped, and there is no receipt of a drain of it" for one in lost)
        ways = "mqctl operation release, mqctl rollout, which starts it, and the same command again"
        raise CommandError(faults, ways)
    require_answers(lost)


def _serve_again(
    world: World, leavers: Sequence[Leaver], how: TakeBack, looks: Sequence[NodeLook], scope: OperationScope
) -> Exit:
    """`looks`: of the nodes that have not left; what is held is the cluster as it was before the first one did, and it
    stays so for hosts of which one has a fault. The exit code says whether all others were given back."""
    whose = {node.name: leaver.name for leaver in leavers for node in leaver.nodes}
    lost = list(dict.fromkeys(whose[one.name] for one in looks if one.fault))
    looks = [one for one in looks if whose[one.name] not in lost]
    first, names = leavers[0], list(dict.fromkeys(whose[one.name] for one in looks))
    hosts = " and ".join(names)
    cordoned = {one.name for one in looks if one.state == CORDONED} if first.verb == "drain" else set()
    nodes = [one.node for one in looks if one.state not in RESTS or one.name in cordoned]
    moving = {whose[one.name] for one in nodes if one.name not in cordoned}
    if not nodes:
        world.note(f"{hosts} {'does' if len(names) == 1 else 'do'} not drain: nothing is to be taken back")
        # By a run that was killed before it had asked a broker, or when all was taken back.
        if any(is_held_by(world, first.cluster, what) for what in (first.command, first.back)):
            with holding(world, first.cluster, first.back, is_resumed=True, scope=scope) as operation:
                operation.stays = _stays_for(world, first, lost)
                operation.is_done = not lost
            return code_of(operation, Exit.DONE)
        return Exit.DONE

    def ask(session: AdminClient, node: Node) -> None:
        if node.name in cordoned:
            session.call("uncordon")
        else:
            session.call("scale-down-cancel", force=how.is_forced)

    targets = ", ".join(targets_of(looks)) or "its target"
    _require_agreed(world, f"Have {hosts} serve again what is still there?", targets if moving else "", first, how)
    with holding(world, first.cluster, first.back, is_resumed=True, scope=scope) as operation:
        # Of a drain nothing is held either while the brokers are at it.
        operation.stays = first.verb != "drain"
        _require_none_stops(world, first, [one for one in nodes if whose[one.name] in moving], operation)
        for leaver in leavers:
            if leaver.name in moving:
                archive.void_receipts(world, leaver.host, leaver.instance)
        each(world, nodes, ask)
        if how.is_waited_for:
            _follow(world, first, nodes, how)
        operation.stays = _stays_for(world, first, lost)
        operation.is_done = not lost
    told = f"; what has moved is at {targets}" if moving else ""
    world.note(f"{hosts} {'serves' if len(names) == 1 else 'serve'} again{told}")
    tell_of_pauses(world, first.others, pauses_of(looks))  # what they said before: nothing is counted any more
    return code_of(operation, Exit.DONE)


def _stays_for(world: World, first: Leaver, lost: Sequence[str]) -> bool:
    """Whether the cluster stays held for hosts that do not answer; that is told."""
    verb = "does not answer and is not taken back" if len(lost) == 1 else "do not answer and are not taken back"
    if lost:
        world.note(
            f"{' and '.join(lost)} {verb}, so the cluster stays held: {first.back} once more when that is over, or "
            f"mqctl operation release now and mqctl scale-down {' '.join(lost)} --cancel then; of what never comes "
            "back, mqctl operation release and mqctl cluster forget"
        )
    return bool(lost)


def _require_none_stops(world: World, first: Leaver, nodes: Sequence[Node], operation: HeldCluster) -> None:
    """Who takes over may come while systemd stops a broker at the end of its drain, for a quarter of an hour: it
    answers then as ever, and without its receipt nobody would know later that it had left nothing. Raises
    CommandError."""
    ends = [one.name for one in nodes if node_state.unit_of(world, one, LOOK_S) in (*ENDED_UNITS, STOPS)]
    if ends:
        stays = f", and the cluster stays held by {first.back}" if operation.stays else ""
        raise CommandError(
            f"{', '.join(ends)}: is just being stopped; nothing was taken back{stays}",
            "the same command again when that is over; it says then what is left to do",
        )


def _require_agreed(world: World, question: str, targets: str, leaver: Leaver, how: TakeBack) -> None:
    """`targets`: the nodes that something moves to; empty where nothing does."""
    if how.is_forced and targets:
        twice = f"What {targets} may have without an answer comes twice."
        confirmation.name(world, f"{question} {twice}", leaver.cluster.name, is_sure=how.is_sure)
    else:
        confirmation.yes(world, question, is_sure=how.is_sure)


def _follow(world: World, leaver: Leaver, nodes: Sequence[Node], how: TakeBack) -> None:
    again = f"{leaver.back} --wait" if leaver.verb == "drain" else leaver.back
    try:
        DrainFollower(world, nodes, how.is_json, again=again).until(ENDED, how.timeout_s)
    except KeyboardInterrupt:
        world.note(f"interrupted: the brokers go on to take it back; {again} follows it")
        raise
