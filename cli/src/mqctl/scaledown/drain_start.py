"""A host begins to drain: what is looked at and told before, and what its brokers are asked to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mqctl import confirmation
from mqctl.admin import AdminClient, AdminError
from mqctl.errors import CommandError
from mqctl.gate import gate
from mqctl.nodes import Node
from mqctl.operation import HeldCluster
from mqctl.output import OutputShape, Rows, counted, write
from mqctl.scaledown.cluster_look import LEAVES, NOT_FOUND, RESTS, SERVES, NodeLook, look_at, show
from mqctl.scaledown.drain import MOVED, each
from mqctl.scaledown.leaving_host import Leaver
from mqctl.scaledown.pauses import foreseen, told_of
from mqctl.scaledown.plan import COLUMNS, DrainPlan, RowsByNode, extent_of, plan_of, rows_of, told
from mqctl.scaledown.room import lacking
from mqctl.world import World

OF_LINKS: Final = (NOT_FOUND, "amqp:precondition-failed")  # that a node is not known, and that it is not linked


def targets_of(looks: Sequence[NodeLook]) -> list[str]:
    """The nodes that these drain to."""
    return sorted({str(one.drain["node"]) for one in looks if one.drain.get("node")})


def require_answers(looks: Sequence[NodeLook]) -> None:
    """All of them have said something. Raises CommandError."""
    faults = [one.fault for one in looks if one.fault]
    if faults:
        raise CommandError("; ".join(faults), "mqctl status")


def answering(world: World, looks: Sequence[NodeLook], then: str) -> list[NodeLook]:
    """Those that have said something; the others are told of, and that they stay as they are until `then`. Raises
    CommandError where none has."""
    heard = [one for one in looks if not one.fault]
    if not heard:
        require_answers(looks)
    for one in looks:
        if one.fault:
            world.note(f"{one.name} stays as it is: {one.fault}; once it answers: {then}")
    return heard


def hindrances(world: World, leaver: Leaver, plan: DrainPlan) -> list[str]:
    """What the brokers themselves say is in the way, what has no room at the addresses it moves to, and whom nobody
    serves once the host takes no clients, its own being sent to who takes the messages. The plan is told what pauses
    there, what moves, and who leaves later."""
    said: list[str] = []
    rows: dict[str, Any] = {}

    def ask(session: AdminClient, node: Node) -> None:
        answer = session.call("scale-down", node=plan.targets[node.name].node_id, dry_run=True)
        said.extend(f"{node.name}: {text}" for text in told(answer.get("hindrances", ())))
        rows[node.name] = answer.get("queues", ())

    each(world, [one.node for one in plan.leaving], ask)
    targets = {one.name for one in plan.targets.values()}
    away = [one.name for one in (*leaver.nodes, *leaver.later_nodes)]
    plan.moving = rows
    plan.warnings += _pauses(plan, rows)
    pass_over_later(world, leaver, plan)
    return sorted(said) + lacking(world, plan) + gate.lost(world, leaver.cluster, [away], targets)


def _pauses(plan: DrainPlan, rows: RowsByNode) -> list[str]:
    targets = {one.name: one for one in plan.targets.values()}
    by_target = {
        name: [row for leaving, queues in rows.items() if plan.targets[leaving].name == name for row in queues]
        for name in targets
    }
    told_by = (foreseen(targets[name], own, plan.there_before(name)) for name, own in by_target.items())
    return [text for texts in told_by for text in texts]


def pauses_of(looks: Sequence[NodeLook]) -> RowsByNode:
    """What nodes that drain say in their receipts of each queue, by their names; as long as they drain."""
    return {one.name: (one.drain.get("receipt") or {}).get("queues", ()) for one in looks}


def tell_of_pauses(world: World, others: Sequence[Node], rows: RowsByNode) -> None:
    """Say what is paused where messages are by now, and what is handed out there and was not: the others are asked,
    where anything was."""
    if any(told_of(name, own, ()) for name, own in rows.items()):
        looks = look_at(world, others)
        for text in (text for name, own in rows.items() for text in told_of(name, own, looks)):
            world.note(text)


def show_plan(world: World, plan: DrainPlan, hindered: Sequence[str]) -> None:
    """What moves where and what hinders, for people."""
    rows = rows_of(plan)
    if rows:
        write(Rows("mqctl.scale-down-plan/1", COLUMNS, rows), OutputShape(), world.err)
    for one in plan.leaving:
        clients = int(one.drain.get("connections", 0))
        world.note(
            f"{one.name}: {counted(sum(row['message_count'] for row in one.queues), 'message')} in "
            f"{counted(len(one.queues), 'queue')} move to {plan.targets[one.name].name}; "
            f"{counted(clients, 'client')} connected"
        )
        if extent := extent_of(plan, one):
            world.note(f"{one.name}: {extent}")
    for text in plan.warnings:
        world.note(f"warning: {text}")
    for text in (*plan.overruled, *hindered):
        world.note(f"hinders: {text}")


def turned(world: World, leaver: Leaver, looks: Sequence[NodeLook], to: str) -> DrainPlan | None:
    """What goes on to another node, where `to` names one, and is shown; None where that takes the messages already.
    What the one before has stays there, and what it may have without an answer waits for it. What the brokers said is
    in the way but of that node, and whom nobody serves, was asked when it began: the host has let no client in since.
    """
    others = look_at(world, leaver.others)
    meant = {each.node_id for each in others if to in (each.name, f"{each.node.host}/{each.node.instance}")}
    if not to or all(one.drain.get("node_id") in meant for one in looks):
        return None
    before = {str(one.drain.get(name)) for one in looks for name in ("node_id", "node")}
    plan = plan_of(looks, look_at(world, leaver.heirs), to, before)
    plan.is_turned = True
    rows: dict[str, Any] = {}

    def ask(session: AdminClient, node: Node) -> None:
        answer = session.call("scale-down", node=plan.targets[node.name].node_id, dry_run=True)
        of_node = [row for row in answer.get("hindrances", ()) if row["kind"] == "node"]
        plan.overruled.extend(f"{node.name}: {text}" for text in told(of_node))
        rows[node.name] = answer.get("queues", ())

    each(world, [one.node for one in plan.leaving], ask)
    plan.moving = rows
    plan.overruled += lacking(world, plan)
    plan.warnings += _pauses(plan, rows)
    pass_over_later(world, leaver, plan)
    show_plan(world, plan, ())
    return plan


def agree_to_turn(world: World, leaver: Leaver, plan: DrainPlan, *, is_sure: bool) -> None:
    """Go on to the node of the plan after a question. Raises CommandError where something hinders, but by force."""
    if plan.overruled and not leaver.is_forced:
        raise CommandError(
            f"{counted(len(plan.overruled), 'thing')} would not move or not safely: {'; '.join(plan.overruled)}; it "
            f"goes on to {', '.join(targets_of(plan.leaving))}, and nothing was changed",
            "put that right, another --to, or --force",
        )
    before = ", ".join(targets_of(plan.leaving))
    to = ", ".join(sorted({one.name for one in plan.targets.values()}))
    question = (
        f"Move what is still at {leaver.name} to {to} from now on? What {before} may have without an answer "
        "waits for it."
    )
    confirmation.yes(world, question, is_sure=is_sure)


def pass_over_later(world: World, leaver: Leaver, plan: DrainPlan) -> None:
    """Of several hosts the later ones are to get nothing of it by the broker's own choice either."""
    looks = look_at(world, leaver.later_nodes)
    plan.passed_over = [one.node_id for one in looks if one.node_id]
    silent = [one for one in looks if not one.node_id]
    plan.is_partly_heard = bool(silent)
    plan.warnings += [
        f"{one.name} leaves later, and {leaver.name} cannot be told its id now: where the node that takes its "
        f"messages falls out, they may go there, and move once more ({one.fault})"
        for one in silent
    ]


def begin(world: World, leaver: Leaver, plan: DrainPlan | None, operation: HeldCluster) -> None:
    """Have those drain that do not, or go on elsewhere; those that drain are told anew who leaves later, and by force
    that what cannot move may stay, where their release knows that.
    Where one of them may drain by then and this fails, the cluster stays held."""
    if plan is None:
        return
    heirs = {one.name: plan.targets[one.name].node_id for one in plan.leaving if _is_asked(plan, one)}
    drains = {one.name for one in plan.leaving if one.state in LEAVES and one.name not in heirs}
    forced = {one.name for one in plan.leaving if leaver.is_forced and one.state in LEAVES and one.state != MOVED}
    untold: list[str] = []
    for one in plan.leaving:
        for text in told(one.drain.get("hindrances", ())) if one.name in forced else ():
            world.note(f"by force, where it cannot move, stays: {one.name}: {text}")

    def ask(session: AdminClient, node: Node) -> None:
        now = show(session)  # those that drain may have gone on to another node since
        if plan.passed_over and "passed_over" not in now:
            untold.append(
                f"{node.name}: its release cannot be told who leaves later: where the node that takes its messages "
                "falls out, they may go to one of these, and move once more"
            )
        if node.name in heirs:
            session.call("scale-down", 60.0, node=heirs[node.name], force=leaver.is_forced, **_not_to(plan, now))
        elif why := _tell_anew(session, plan, now, is_forced=node.name in forced):
            untold.append(why)

    _ask_each(world, leaver, [one.node for one in plan.leaving if one.name in {*heirs, *drains}], ask, operation)
    for text in sorted(untold):
        world.note(text)


def _not_to(plan: DrainPlan, now: Mapping[str, Any]) -> dict[str, str]:
    """The argument by which a broker that is so `now` passes over who leaves later; nothing where its release knows
    none. Whom it was told of before stays, where one of them is not heard of."""
    if "passed_over" not in now:
        return {}
    before = now["passed_over"] if plan.is_partly_heard else ()
    return {"not_to": ",".join(dict.fromkeys([*plan.passed_over, *before]))}


def _tell_anew(session: AdminClient, plan: DrainPlan, now: Mapping[str, Any], *, is_forced: bool) -> str:
    """Tell a broker that drains what is new; what it refuses of that. Empty where nothing is new, and where its drain
    is taken back by now, which who follows it says. One that knows force takes it of the heir that it says, linked or
    not; an earlier release looks for a link to it first."""
    heir, not_to = now.get("node_id"), _not_to(plan, now)
    if not_to.get("not_to") == ",".join(now.get("passed_over", ())):
        not_to = {}
    if not heir or now.get("state") not in LEAVES or not (is_forced or not_to):
        return ""
    try:
        session.call("scale-down", 60.0, node=heir, **({"force": True} if is_forced else {}), **not_to)
    except AdminError as error:
        if "passed_over" not in now and error.condition in OF_LINKS:
            return f"{error.what}; an earlier release takes force only where a drain begins: it goes on"
        return f"{error.what}; it did not take that"
    return ""


def as_it_goes(world: World, leaver: Leaver, looks: Sequence[NodeLook]) -> DrainPlan:
    """Nothing of these goes elsewhere than it does; but who leaves later may be others by now, and by force what cannot
    move may stay from now on."""
    plan = DrainPlan(list(looks), [])
    pass_over_later(world, leaver, plan)
    later = {*plan.passed_over, *(one.name for one in leaver.later_nodes)}  # one that is silent has its name alone
    plan.warnings += [
        f"{one.name} drains to {one.drain.get('node') or one.drain['node_id']}, which leaves later: what "
        f"moves there moves once more, unless {leaver.again} --to OTHER has it go on to a node that stays"
        for one in looks
        if one.state != MOVED and later & {one.drain.get("node_id"), one.drain.get("node")}
    ]
    for text in plan.warnings:
        world.note(f"warning: {text}")
    return plan


def _is_asked(plan: DrainPlan, one: NodeLook) -> bool:
    """Whether a node is to drain, or to go on, to the node of the plan."""
    heir = plan.targets.get(one.name)
    if heir is None:
        return False
    return one.drain.get("node_id") != heir.node_id if plan.is_turned else one.state not in ("moving", MOVED)


def cordon(world: World, leaver: Leaver, looks: Sequence[NodeLook], operation: HeldCluster) -> None:
    """Have those of these let no client in that do, as `begin`; what they have stays."""

    def ask(session: AdminClient, node: Node) -> None:
        try:
            session.call("cordon")
        except AdminError as error:
            if error.condition != NOT_FOUND:
                raise
            why = "its release cannot keep messages and let no client in; mqctl rollout first, or drain with --move"
            raise CommandError(f"{node.name}: {why}") from None

    _ask_each(world, leaver, [one.node for one in looks if one.state == SERVES], ask, operation)


def _ask_each(
    world: World,
    leaver: Leaver,
    nodes: Sequence[Node],
    ask: Callable[[AdminClient, Node], object],
    operation: HeldCluster,
) -> None:
    before, operation.stays = operation.stays, True
    try:
        each(world, nodes, ask)
    except CommandError:
        # One of several may drain by now, and so may one whose answer was lost.
        operation.stays = before or any(one.fault or one.state not in RESTS for one in look_at(world, leaver.nodes))
        raise
    except KeyboardInterrupt:
        world.note(f"interrupted: {leaver.name} may drain already; {leaver.ways}")
        raise
    operation.stays = before
