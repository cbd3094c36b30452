"""Hosts serve again what they still have: a drain or a scale-down is taken back, that of several hosts as one.

Invariant: it is an operation of its own name, that goes on in the place of what it takes back. So who finds the cluster
held by it is led to its end, and not into draining once more. Source: docs/adr/0028-one-operation-at-a-time.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqctl import confirm, node_state
from mqctl.admin import AdminClient
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.nodes import Node
from mqctl.operation import OperationScope, holding, is_held_by, numbers
from mqctl.scaledown import archive
from mqctl.scaledown.beginning import answering, require_answers, targets_of
from mqctl.scaledown.drain import ENDED, DrainFollower, each
from mqctl.scaledown.leaver import Leaver
from mqctl.scaledown.looks import CORDONED, RESTS, NodeLook, look_at
from mqctl.world import World

LOOK_S = 15


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
    have left stay away, and the others are taken back together. A cordon is taken back by `undrain` alone, which also
    has those serve again that answer where others do not: nothing is held for them."""
    first = leavers[0]
    scope = OperationScope(seen=numbers(world, first.cluster), instead_of=(first.command,))
    found = {leaver.host.name: look_at(world, leaver.nodes) for leaver in leavers}
    if first.verb == "drain":
        heard = answering(world, found[first.host.name], first.back)
        _serve_again(world, leavers, how, heard, scope)
        return Exit.DONE if len(heard) == len(found[first.host.name]) else Exit.DEGRADED
    gone = [one for one in leavers if any(look.fault for look in found[one.host.name]) and _is_gone(world, one)]
    rest = [one for one in leavers if one not in gone]
    if not rest:
        names = ", ".join(one.host.name for one in gone)
        raise CommandError(f"{names}: drained and stopped already, so nothing is left to be taken back", first.again)
    here = [look for one in rest for look in found[one.host.name]]
    require_answers(here)
    _serve_again(world, leavers, how, here, scope)
    for one in gone:
        name = one.host.name
        world.note(
            f"{name} was drained and stopped before, and is not taken back: mqctl scale-down {name} --resume does what "
            "is left of that, and takes it out of the inventory with --write"
        )
    return Exit.DEGRADED if gone else Exit.DONE


def _is_gone(world: World, leaver: Leaver) -> bool:
    """Whether its brokers are stopped and drained to their end, whether they are removed by now or not."""
    states = {node_state.look(world, node, LOOK_S)["state"] for node in leaver.nodes}
    return states <= {"absent", "stopped"} and archive.kept_receipt(world, leaver.host) is not None


def _serve_again(
    world: World, leavers: Sequence[Leaver], how: TakeBack, found: Sequence[NodeLook], scope: OperationScope
) -> None:
    """`found`: of the nodes that are still there; what is held is the cluster as it was before the first one left."""
    first, names = leavers[0], list(dict.fromkeys(one.node.host for one in found))
    hosts = " and ".join(names)
    cordoned = {one.name for one in found if one.state == CORDONED} if first.verb == "drain" else set()
    nodes = [one.node for one in found if one.state not in RESTS or one.name in cordoned]
    moving = {one.host for one in nodes if one.name not in cordoned}
    if not nodes:
        world.note(f"{hosts} {'does' if len(names) == 1 else 'do'} not drain: nothing is to be taken back")
        # By a run that was killed before it had asked a broker, or when all was taken back.
        if any(is_held_by(world, first.cluster, what) for what in (first.command, first.back)):
            with holding(world, first.cluster, first.back, is_resumed=True, scope=scope):
                pass
        return

    def ask(session: AdminClient, node: Node) -> None:
        if node.name in cordoned:
            session.call("uncordon")
        else:
            session.call("scale-down-cancel", force=how.is_forced)

    targets = ", ".join(targets_of(found)) or "its target"
    _require_agreed(world, f"Have {hosts} serve again what is still there?", targets if moving else "", first, how)
    with holding(world, first.cluster, first.back, is_resumed=True, scope=scope) as operation:
        # Of a drain nothing is held either while the brokers are at it.
        operation.stays = first.verb != "drain"
        for leaver in leavers:
            if leaver.host.name in moving:
                archive.void_receipts(world, leaver.host)
        each(world, nodes, ask)
        if how.is_waited_for:
            _follow(world, first, nodes, how)
        operation.stays = False
    told = f"; what has moved is at {targets}" if moving else ""
    world.note(f"{hosts} {'serves' if len(names) == 1 else 'serve'} again{told}")


def _require_agreed(world: World, question: str, targets: str, leaver: Leaver, how: TakeBack) -> None:
    """`targets`: the nodes that something moves to; empty where nothing does."""
    if how.is_forced and targets:
        twice = f"What {targets} may have without an answer comes twice."
        confirm.name(world, f"{question} {twice}", leaver.cluster.name, is_sure=how.is_sure)
    else:
        confirm.yes(world, question, is_sure=how.is_sure)


def _follow(world: World, leaver: Leaver, nodes: Sequence[Node], how: TakeBack) -> None:
    again = f"{leaver.back} --wait" if leaver.verb == "drain" else leaver.back
    try:
        DrainFollower(world, nodes, how.is_json, again=again).until(ENDED, how.timeout_s)
    except KeyboardInterrupt:
        world.note(f"interrupted: the brokers go on to take it back; {again} follows it")
        raise
