"""`mqctl scale-down`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from mqctl import confirmation
from mqctl.brokers import node_state
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.inventory_faults import checked
from mqctl.operation import OperationScope, code_of, holding, is_held_by, numbers, require_free
from mqctl.output import Column, Format, OutputShape, Rows, counted, write
from mqctl.playbook.rollout import untouched
from mqctl.scaledown import archive, forgetting, inventory_files, receipt
from mqctl.scaledown.cancellation import TakeBack, take_back
from mqctl.scaledown.cluster_look import LEAVES, RESTS, NodeLook, look_at
from mqctl.scaledown.drain import MOVED, DrainFollower, seconds_left
from mqctl.scaledown.drain_start import (
    agree_to_turn,
    as_it_goes,
    begin,
    hindrances,
    pauses_of,
    require_answers,
    show_plan,
    tell_of_pauses,
    turned,
)
from mqctl.scaledown.leaving_host import (
    Leaver,
    have_forgotten,
    keep,
    leavers_of,
    look_at_rest,
    meant,
    out_of,
    pauses_in,
    receipt_of,
    require_balance,
    require_removable,
    stop,
    take_away,
    telling_who_has_left,
)
from mqctl.scaledown.plan import COLUMNS, DrainPlan, plan_of, rows_of, seconds_of, told
from mqctl.world import World

SHOWN = (
    Column("host"), Column("instance"), Column("state"), Column("to"), Column("moved", is_number=True),
    Column("left", is_number=True), Column("rate", is_number=True), Column("seconds_left", is_number=True),
    Column("connections", is_number=True),
    Column("since"), Column("hindrances"),
)  # fmt: skip
STOPS_MAX = 3
FOLLOWS = "packet filters, static connectors, peers of gossip and certificates of the others follow by: mqctl rollout"


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """Which host, where its messages go, and at which end of it to begin."""

    hosts: Annotated[
        list[str],
        typer.Argument(
            help="The host that leaves, with all its instances, or HOST/INSTANCE, which leaves alone; several leave "
            "one after the other."
        ),
    ]
    to: Annotated[
        str,
        typer.Option(
            help="The node that takes its messages. "
            "[default: of its group and release that with the most links up, then most room]"
        ),
    ] = ""
    check: Annotated[bool, typer.Option("--check", help="Change nothing; show what would move, and what hinders.")] = (
        False
    )
    show: Annotated[bool, typer.Option("--show", help="Change nothing; show how far it is.")] = False
    resume: Annotated[bool, typer.Option("--resume", help="Go on where another run has ended.")] = False
    cancel: Annotated[bool, typer.Option("--cancel", help="Take it back: what is still there is served again.")] = False
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also where not everything can move: that stays in the archive. With --cancel: at once; what the "
            "other node may have without an answer comes twice.",
        ),
    ] = False
    purge: Annotated[bool, typer.Option("--purge", help="Delete the data at the end; else it is archived there.")] = (
        False
    )
    receipts: Annotated[Path, typer.Option(help="Folder that the receipt is written to.")] = Path("receipts")
    write_inventory: Annotated[
        bool, typer.Option("--write", help="Take what has left out of the file of the inventory at the end.")
    ] = False
    timeout: Annotated[float, typer.Option(help="Seconds after which the drain is waited for no longer.", min=1)] = (
        3600.0
    )
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Take a host out of its cluster: its messages move to another node while clients are served, then it goes.

    Of a host with several instances one leaves alone as HOST/INSTANCE; the others stay, and may take its messages.

    Shows what moves where and what hinders, and asks. Then the brokers of the host drain: clients are sent to the node
    that takes the messages, and what they leave follows. When everything has moved, a receipt is written that accounts
    for each message, by count and by digest. Only if it balances the brokers are stopped and removed, their data is
    archived on the host (below /var/lib/mq/.archive), the other nodes forget them, and every node that stays is
    looked at.

    Of several hosts none takes messages of another one that leaves as well, so that nothing is moved twice. What keeps
    one of them, or has no room where all have come, is told before anything moves, as far as it is so by then; who goes
    on with --resume hears it of each in its turn.

    Where the node that takes the messages falls out, the next one does after a minute (`[scale-down] heir-timeout`), or
    the one that `--resume --to` names. What the first one may have without an answer waits for it, until it is back or
    forgotten (`mqctl cluster forget --force`: this holds the cluster).

    Ctrl-C, and a control node that is lost, leave the brokers at what they do: `--show` says how far it is, `--resume`
    goes on from there, `--cancel` has the host serve what it still has; of several hosts, those that have not left.

    The change of the inventory is shown at the end, and made with `--write`. Packet filters, lists of static
    connectors, peers of gossip and certificates of the others follow by the next `mqctl rollout`.

    Exit code 1 if it was refused or the receipt does not balance, 3 if it is done and a node that stays is not well, or
    taken back and one of several hosts has left or does not answer, or a host could not be given back, 4 if the time
    was up first.
    """
    _require_one_way(options)
    with untouched(world):
        cluster = checked(world, options)
        options = replace(options, hosts=meant(cluster, options.hosts))
        out = out_of(world, cluster, options.hosts) if options.cancel else []
        leavers = leavers_of(cluster, options.hosts, is_forced=options.force, out=out)
        if not (options.show or options.cancel):
            require_removable(world, leavers)
    if options.show:
        return _show(world, options, leavers)
    if options.cancel:
        how = TakeBack(options.timeout, is_forced=options.force, is_sure=options.yes, is_json=options.json)
        return take_back(world, leavers, how)
    if options.purge and options.resume:
        named = ", ".join(options.hosts)
        confirmation.name(world, f"The data of {named} is deleted at the end.", cluster.name, is_sure=options.yes)
    scope = OperationScope(seen={} if options.check else numbers(world, cluster))
    agreed: dict[str, str] = {}  # host -> the nodes that take what it has, as was agreed to
    known = _planned(world, options, leavers, agreed)
    if options.check:
        return Exit.DONE
    ended: list[tuple[Exit, dict[str, Any]]] = []
    with holding(world, cluster, leavers[0].command, is_resumed=options.resume, scope=scope) as operation:
        for number, leaver in enumerate(leavers):
            with telling_who_has_left(world, leaver, [one.name for one in leavers[: len(ended)]]):
                document, plan = _planned(world, options, [leaver], agreed) if number else known
                begin(world, leaver, plan, operation)
                operation.stays = True  # until all are out, or taken back: brokers go on where this is interrupted
                ended.append(_left(world, options, leaver, _stopped(world, options, leaver, document)))
        operation.stays, operation.is_done = False, True
    return code_of(operation, _tell(world, options, leavers, ended))


def _planned(
    world: World, options: Options, leavers: Sequence[Leaver], agreed: dict[str, str]
) -> tuple[dict[str, Any] | None, DrainPlan | None]:
    """The receipt of the first of these hosts where it is drained and stopped, else what is to begin there. The others,
    and `agreed`: as of `_agreed`."""
    document = _resumed(world, options, leavers[0]) if options.resume else None
    return document, (_agreed(world, options, *leavers, agreed=agreed) if document is None else None)


def _require_one_way(options: Options) -> None:
    ways = [name for name in ("check", "show", "resume", "cancel") if getattr(options, name)]
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(f'--{one}' for one in ways)} exclude each other")


# -- look --------------------------------------------------------------------------------------------------------------


def _show(world: World, options: Options, leavers: Sequence[Leaver]) -> int:
    rows, faults = [], 0
    looks = look_at(world, [node for leaver in leavers for node in leaver.nodes])
    for one in looks:
        if one.fault:
            faults += 1
            world.note(f"mqctl: {one.fault}")
            continue
        said = {name: one.drain.get(name) for name in ("moved", "left", "rate", "connections", "since")}
        place = {"host": one.node.host, "instance": one.node.instance}
        rows.append({**place, "state": one.state, "to": one.drain.get("node"), **said,
                     "seconds_left": seconds_left(one.drain),
                     "hindrances": "; ".join(told(one.drain.get("hindrances", ())))})  # fmt: skip
    write(Rows("mqctl.scale-down-show/1", SHOWN, rows), options.shape, world.data)
    tell_of_pauses(world, leavers[0].others, pauses_of(looks))
    return Exit.DEGRADED if faults else Exit.DONE


# -- drain ------------------------------------------------------------------------------------------------------------


def _agreed(
    world: World, options: Options, leaver: Leaver, *behind: Leaver, agreed: dict[str, str] | None = None
) -> DrainPlan | None:
    """What is to begin; None where nothing is to be done. `behind`: who leaves after it: what keeps one of them, or all
    of them together, is told before anything moves. `agreed`: where it was agreed before that what a host has goes,
    which is not asked once more."""
    with untouched(world):
        if not (options.resume or options.check or world.operation):
            require_free(world, leaver.cluster)
        looks = look_at(world, leaver.nodes)
        if options.resume and not leaver.party:  # of several the later ones may not have begun
            _require_begun(world, leaver, looks)
        archive.require_own(world, leaver.host, leaver.instance)
        if _goes_on(options, leaver, looks):
            return _turned(world, options, leaver, looks)
        plan = _shown(world, options, leaver, looks)
        plans = [plan]
        for one in () if options.resume else behind:  # who goes on may have to finish first what was begun
            archive.require_own(world, one.host, one.instance)
            later = look_at(world, one.nodes)
            _goes_on(options, one, later)
            plans.append(_shown(world, options, one, later, plans[-1]))
        world.note(FOLLOWS)
        if options.check:
            return None
        _require_agreed(world, options, [leaver, *behind], plans, {} if agreed is None else agreed)
    return plan


def _shown(
    world: World, options: Options, leaver: Leaver, looks: Sequence[NodeLook], before: DrainPlan | None = None
) -> DrainPlan:
    """What would move where, and what brokers say is in the way; people have seen both, and programs where that is
    asked for. `before`: the plan of the host that leaves before it."""
    survivors = look_at(world, leaver.heirs) if before is None else before.survivors
    plan = plan_of(looks, survivors, options.to, before=before)
    hindered = hindrances(world, leaver, plan)
    show_plan(world, plan, hindered)
    plan.overruled += hindered
    if options.check:
        _write_plan(world, options, plan)
    else:
        _require_unhindered(options, leaver, plan)
    return plan


def _drained(world: World, options: Options, leaver: Leaver) -> dict[str, Any]:
    """The receipt, once everything has moved; it balances."""
    follower = DrainFollower(world, leaver.nodes, options.json, again=leaver.again, back=leaver.back)
    try:
        follower.until(MOVED, options.timeout)
        own = look_at(world, leaver.nodes)
        require_answers(own)
        ids = [one.node_id for one in own]
        unanswered = _wait_for_answers(world, options, leaver, ids)
        # What others had on its way may have come since.
        ended = follower.until(MOVED, options.timeout)
    except KeyboardInterrupt:
        world.note(f"interrupted: the brokers go on; {leaver.again} follows, --cancel takes it back")
        raise
    document = receipt_of(world, leaver, ended, ids, is_forced=options.force) | {"unanswered": unanswered}
    keep(world, options.receipts, document)
    if document["differences"]:
        world.err.print(receipt.page(document), markup=False, highlight=False)
    require_balance(leaver, document)
    return document


def _wait_for_answers(world: World, options: Options, leaver: Leaver, ids: Sequence[str]) -> str:
    """Of all others: what one that is silent has sent it routes anew, too, once it has forgotten this host. By force
    that is only told, and who waits; else nobody does."""
    try:
        forgetting.wait_for_answers(world, leaver.others, ids)
    except CommandError as error:
        if not options.force:
            raise CommandError(
                f"{error.what}: these could come twice; {leaver.name} stays as it is",
                f"{leaver.again}, when that is over, or with --force",
            ) from None
        world.note(f"warning: {error.what}: these may come twice")
        return error.what
    return ""


def _stopped(world: World, options: Options, leaver: Leaver, document: dict[str, Any] | None) -> dict[str, Any]:
    """The receipt of a host whose brokers are stopped, and have in their journals what it says. Force, which may have
    been said for something else, gives up what somebody waits for where that was told before; else it drains on once.
    """
    late: list[str] = []
    is_told = False  # that somebody waits; messages that came say nothing of that
    for _ in range(STOPS_MAX):
        document = document or _drained(world, options, leaver)
        is_told = is_told or bool(document.get("unanswered"))
        may_come_twice = options.force and is_told
        try:
            messages, waiting = stop(world, leaver, document, may_come_twice=may_come_twice)
        except KeyboardInterrupt:
            world.note(f"interrupted: brokers of {leaver.name} may be stopped; {leaver.again} goes on")
            raise
        late = messages + ([] if may_come_twice else waiting)
        if not late:
            return _that_names(world, options, leaver, document, waiting)
        is_told = is_told or bool(waiting)
        world.note(f"messages came after the receipt was made, or may have, so it drains on: {'; '.join(late)}")
        void = document | {"void": "; ".join(late)}
        keep(world, options.receipts, void, f"the brokers of {leaver.name} run again, and drain on")
        document = None
    raise CommandError(f"messages come again and again: {'; '.join(late)}", leaver.again)


def _that_names(
    world: World, options: Options, leaver: Leaver, document: dict[str, Any], waiting: Sequence[str]
) -> dict[str, Any]:
    """The receipt with who waited when all was stopped and is given up, on the host and in its folder as well."""
    if not waiting or document.get("unanswered") == "; ".join(waiting):
        return document
    document = document | {"unanswered": "; ".join(waiting)}
    archive.put_receipt(world, leaver.host, document["archive"], document)
    _keep_of_stopped(world, options, leaver, document)
    return document


def _keep_of_stopped(world: World, options: Options, leaver: Leaver, document: dict[str, Any]) -> None:
    """The receipt in its folder at this control node, which may be another one than that which stopped them."""
    so_far = f"the brokers of {leaver.name} are stopped, and go no further"
    keep(world, options.receipts, document, so_far)


def _goes_on(options: Options, leaver: Leaver, looks: Sequence[NodeLook]) -> bool:
    """Whether all of it drains already, as it may only where that was said. What has failed is begun again."""
    require_answers(looks)
    states = {one.state for one in looks}
    begun = states & {*LEAVES, "ends"}
    if begun and not (options.resume or options.check):
        raise CommandError(
            f"{leaver.name} drains already ({', '.join(sorted(begun))})",
            f"{leaver.again}, --cancel or --show",
        )
    return options.resume and states <= set(LEAVES)


def _turned(world: World, options: Options, leaver: Leaver, looks: Sequence[NodeLook]) -> DrainPlan | None:
    plan = turned(world, leaver, looks, options.to)
    if options.check:
        return None
    if plan is None:
        return as_it_goes(world, leaver, looks)
    agree_to_turn(world, leaver, plan, is_sure=options.yes)
    return plan


def _require_begun(world: World, leaver: Leaver, looks: Sequence[NodeLook]) -> None:
    """A run that was killed before it had asked a broker has begun as well."""
    has_begun = any(one.fault or one.state not in RESTS for one in looks)
    if not has_begun and not is_held_by(world, leaver.cluster, leaver.command):
        raise CommandError(f"{leaver.name} does not drain", f"mqctl scale-down {leaver.name}")


def _write_plan(world: World, options: Options, plan: DrainPlan) -> None:
    """For programs; people have seen it."""
    if options.shape.format is Format.TABLE:
        return
    said = {
        "warnings": plan.warnings, "hindrances": plan.overruled,
        "seconds_estimated": {name: seconds_of(rows) for name, rows in plan.moving.items()},
    }  # fmt: skip
    write(Rows("mqctl.scale-down-plan/1", COLUMNS, rows_of(plan), said), options.shape, world.data)


def _require_unhindered(options: Options, leaver: Leaver, plan: DrainPlan) -> None:
    if plan.overruled and not options.force:
        of = f"{leaver.name}: " if leaver.party else ""
        said = f"{counted(len(plan.overruled), 'thing')} would not move or not safely: {'; '.join(plan.overruled)}"
        raise CommandError(
            f"{of}{said}; nothing was changed",
            "put that right, or --force: what cannot move stays in the archive on the host",
        )


def _require_agreed(
    world: World, options: Options, leavers: Sequence[Leaver], plans: Sequence[DrainPlan], agreed: dict[str, str]
) -> None:
    """One question for all whose plans are shown. Who was asked for before is so again only where what it has goes
    elsewhere by now, or something is overruled."""
    folder = world.cwd / options.receipts
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--receipts {options.receipts}: that is no folder")
    to = {
        leaver.name: ", ".join(sorted({one.name for one in plan.targets.values()}))
        for leaver, plan in zip(leavers, plans, strict=False)  # who goes on has the first one's alone
    }
    if to.items() <= agreed.items() and not any(plan.overruled for plan in plans):
        return
    moves = ", then everything of ".join(f"{name} to {names}" for name, names in to.items())
    cluster = leavers[0].cluster.name
    question = f"Move everything of {moves}, and take {' and '.join(to)} out of {cluster}?"
    if options.purge and not options.resume:  # who resumes was asked that at the beginning
        whose = "Its" if len(to) == 1 else "Their"
        confirmation.name(world, f"{question} {whose} data is deleted.", cluster, is_sure=options.yes)
    else:
        confirmation.yes(world, question, is_sure=options.yes)
    agreed |= to


def _that_answer(world: World, looks: Sequence[NodeLook], ids: Sequence[str]) -> list[NodeLook]:
    """Those that can be told to forget; the rest is named."""
    for one in looks:
        if one.fault:
            forget = "; ".join(f"mqctl cluster forget {node_id}" for node_id in ids)
            world.note(f"{one.fault}; when it is back, have it forget the host: {forget}")
    return [one for one in looks if not one.fault]


# -- leave ------------------------------------------------------------------------------------------------------------


def _resumed(world: World, options: Options, leaver: Leaver) -> dict[str, Any] | None:
    """The receipt that lies on the host, where its brokers are stopped or gone already."""
    states = [node_state.look(world, one, 15)["state"] for one in leaver.nodes]
    if any(state in ("running", "starting") for state in states):
        return None
    document = archive.kept_receipt(world, leaver.host, leaver.instance)
    if document is None:
        raise CommandError(
            f"{leaver.name}: its brokers are {', '.join(sorted(set(states)))}, and there is no receipt of a "
            "scale-down of them: nobody knows whether they have left anything",
            "mqctl operation release, where this holds the cluster; then mqctl rollout, to have them drain, or mqctl "
            "cluster forget, if they are to be given up",
        )
    require_balance(leaver, document)
    _keep_of_stopped(world, options, leaver, document)
    world.note(f"{leaver.name} was drained at {document['at']}: going on from there")
    return document


def _left(world: World, options: Options, leaver: Leaver, document: dict[str, Any]) -> tuple[Exit, dict[str, Any]]:
    """Take the host away, have the others forget it, and look at them."""
    try:
        take_away(world, leaver, document)
        others = [one.node for one in _that_answer(world, look_at(world, leaver.others), document["node_ids"])]
        have_forgotten(world, leaver, others, document["node_ids"])
        code = look_at_rest(world, leaver)
    except KeyboardInterrupt:
        world.note(f"interrupted: {leaver.name} is drained and not out yet; {leaver.again} goes on")
        raise
    is_purged = options.purge and _may_purge(world, leaver, document, code)
    if is_purged:
        archive.purge(world, leaver.host, document["archive"])
    kept = "its data is deleted" if is_purged else f"its data is in {archive.FOLDER}/{document['archive']} there"
    world.note(f"{leaver.name} has left cluster {leaver.cluster.name}; {kept}")
    tell_of_pauses(world, leaver.others, pauses_in(document))
    return code, document


def _tell(
    world: World, options: Options, leavers: Sequence[Leaver], ended: Sequence[tuple[Exit, dict[str, Any]]]
) -> Exit:
    """The receipts, and the inventory without these hosts, once all have left: who goes on finds them in there."""
    extra: dict[str, Any] = {}
    for leaver, (_, document) in zip(leavers, ended, strict=True):
        change = inventory_files.change(
            world, leaver.cluster.sources, leaver.host.name, leaver.instance, is_written=options.write_inventory
        )
        own = {name: value for name, value in document.items() if name not in ("schema", "rows")}
        extra.setdefault("hosts", []).append({**own, **change})
    rows = [row for _, document in ended for row in document["rows"]]
    said = extra["hosts"][0] if len(ended) == 1 else extra
    columns = receipt.shown(rows) if options.shape == OutputShape() else receipt.COLUMNS
    write(Rows(receipt.SCHEMA, columns, rows, said), options.shape, world.data)
    return max(code for code, _ in ended)


def _may_purge(world: World, leaver: Leaver, document: Mapping[str, Any], code: int) -> bool:
    """Whether all of it is elsewhere, as far as is known; why it is not is told."""
    left = sum(row["left"] for row in document["rows"])
    why = [f"queue {one['queue']} stays there: {one['why']}" for one in document["stays"]]
    why += [f"{counted(left, 'message')} did not move"] if left and not why else []
    why += ["not every node that stays is well"] if code != Exit.DONE else []
    if why:
        world.note(f"nothing of {leaver.name} is deleted: {'; '.join(why)}")
    return not why
