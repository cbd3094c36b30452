"""Whether a node may leave, where its messages go, and what is to be known before. Pure.

A refusal says which node or queue is in the way and how to get on. What `--force` may overrule says so; that there is
nobody who could take the messages it cannot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqctl.errors import CommandError
from mqctl.gate.facts import is_read
from mqctl.output import Column
from mqctl.scaledown.cluster_look import CORDONED, LEAVES, SERVES, NodeLook

COLUMNS: Final = (
    Column("host"),
    Column("instance"),
    Column("queue"),
    Column("address"),
    Column("messages", is_number=True),
    Column("bytes", is_number=True, wide_only=True),
    Column("delivering", is_number=True, wide_only=True),
    Column("scheduled", is_number=True, wide_only=True),
    Column("paged", is_number=True, wide_only=True),
    Column("large", is_number=True, wide_only=True),
    Column("consumers", is_number=True),
    Column("to"),
)
# What a broker says of each queue before anything moves: its word, and ours. The first says what others are among.
KINDS: Final = {"unanswered": "delivering", "scheduled": "scheduled", "paged": "paged", "large": "large"}
# Nothing is measured before it begins. So moves a node ten queues of 1 KiB a message to one on the same machine
# (docs/PERFORMANCE.md, `scale-down`); what is paged is faster there, and a network or a disk of others slower.
MESSAGES_PER_S: Final = 40_000
BYTES_PER_S: Final = 40_000_000
UNKNOWN_BYTES: Final = 1 << 60  # free on a disk that nobody can look at
RowsByNode = Mapping[str, Iterable[Mapping[str, Any]]]  # node -> what it says of each queue that moves


@dataclass(slots=True)
class PromisedRoom:
    """What has been promised to others: memory of a node, and of the disk that all nodes of a host share. Most of a
    journal is in no memory."""

    held_bytes: Counter[str] = field(default_factory=Counter)  # by the name of the node
    stored_bytes: Counter[str] = field(default_factory=Counter)  # by the host

    def promise(self, leaving: NodeLook, target: NodeLook) -> None:
        self.held_bytes[target.name] += leaving.held_bytes
        self.stored_bytes[target.node.host] += leaving.stored_bytes

    def left_for(self, leaving: NodeLook, target: NodeLook) -> tuple[bool, int]:
        """Whether the disk takes what that node stores, as what is too much for memory pages there; and the room."""
        on_disk = UNKNOWN_BYTES if target.free_disk_bytes is None else target.free_disk_bytes
        on_disk -= self.stored_bytes[target.node.host]
        return leaving.stored_bytes <= on_disk, min(target.free_memory_bytes - self.held_bytes[target.name], on_disk)


@dataclass(slots=True)
class DrainPlan:
    """What is to be done. `refusals` end it, `overruled` are those that --force is for, `warnings` are only told."""

    leaving: list[NodeLook]
    survivors: list[NodeLook]
    targets: dict[str, NodeLook] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    overruled: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    moving: RowsByNode = field(default_factory=dict)  # as brokers said it of what would move, where they were asked
    is_turned: bool = False  # they drain already, and go on to other nodes from now on
    passed_over: list[str] = field(default_factory=list)  # ids of nodes that leave later
    is_partly_heard: bool = False  # there are more of these, which do not answer
    before: DrainPlan | None = None  # of the host that leaves before it by the same command, where it has not begun

    @property
    def together(self) -> DrainPlan:
        """What moves by this one and those before it."""
        if self.before is None:
            return self
        more = self.before.together
        targets, moving = {**more.targets, **self.targets}, {**more.moving, **self.moving}
        return DrainPlan([*more.leaving, *self.leaving], self.survivors, targets, moving=moving)

    def going_to(self, target: str) -> RowsByNode:
        """What moves to one of the nodes that take messages."""
        return {leaving: queues for leaving, queues in self.moving.items() if self.targets[leaving].name == target}

    def there_before(self, target: str) -> RowsByNode:
        """What those bring there that leave before it, the first of them first."""
        return {} if self.before is None else self.before.together.going_to(target)


def plan_of(
    leaving: Sequence[NodeLook],
    survivors: Sequence[NodeLook],
    to: str = "",
    turns_from: Collection[str] = (),
    before: DrainPlan | None = None,
) -> DrainPlan:
    """The plan for nodes that leave together. `to`: the node that is to take the messages; empty: the best one.
    `turns_from`: ids and names of nodes that are to take them no more: whether these answer and are linked hinders
    nothing. `before`: what is to have moved by then, which needs its room as well.

    Raises CommandError where nobody can take them.
    """
    plan = DrainPlan(list(leaving), list(survivors), before=before)
    promised = PromisedRoom()
    if before is not None:
        earlier = before.together
        for one in earlier.leaving:
            promised.promise(one, earlier.targets[one.name])
    for one in leaving:
        if one.fault:
            raise CommandError(f"{one.fault}; nothing was changed", "mqctl status")
        if not one.drain:
            raise CommandError(
                f"{one.name} has a release that cannot be scaled down; nothing was changed", "mqctl rollout"
            )
        sources = [each for each in survivors if each.state in LEAVES and each.drain.get("node_id") == one.node_id]
        if sources:
            raise CommandError(
                f"{', '.join(each.name for each in sources)} leaves, and its messages go to {one.name}; nothing was "
                "changed",
                f"mqctl scale-down {_leaves_as(sources[0], [*survivors, *leaving])} --resume first, or --cancel",
            )
        plan.targets[one.name] = target_of(one, survivors, to, promised)
        promised.promise(one, plan.targets[one.name])
    linked = [one for one in survivors if not {one.node_id, one.name} & {*turns_from}]
    plan.overruled += [*_links(leaving, linked), *_room(plan), *_formats(plan)]
    plan.warnings += [*_memory(plan), *_releases(plan)]
    plan.warnings += [text for one in leaving for text in _unread(one, plan)]
    return plan


def target_of(
    leaving: NodeLook, survivors: Sequence[NodeLook], to: str = "", promised: PromisedRoom | None = None
) -> NodeLook:
    """The node that is meant, or the best: of the same group, of no earlier release, with the most links that stand, a
    disk that takes it, and then the most room, without what was `promised` to others there. Raises CommandError."""
    given = PromisedRoom() if promised is None else promised
    if not survivors:
        raise CommandError(
            f"{leaving.name} is the last node of the cluster: nobody could take its messages; nothing was changed",
            "mqctl scale-up with another host first, or mqctl uninstall, which leaves the messages on the host",
        )
    meant = [one for one in survivors if to in ("", one.name, f"{one.node.host}/{one.node.instance}")]
    if not meant:
        raise CommandError(f"--to {to}: that is no other node of the cluster", f"--to {survivors[0].name}")
    reasons = {one.name: unfit(leaving, one, [*survivors, leaving]) for one in meant}
    able = [one for one in meant if not reasons[one.name]]
    if not able:
        told = "; ".join(reasons.values())
        raise CommandError(f"nobody can take the messages of {leaving.name}: {told}", "mqctl topology")

    def worth(one: NodeLook) -> tuple[int, ...]:
        reads_it, is_as_late = one.journal_format >= leaving.journal_format, one.release >= leaving.release
        return _is_of_its_group(leaving, one), reads_it, is_as_late, _links_up(one), *given.left_for(leaving, one)

    return max(able, key=worth)


def _leaves_as(one: NodeLook, nodes: Iterable[NodeLook]) -> str:
    """What drains with this node, for the command line: its host, or it alone where others of that host do not."""
    is_alone = any(each.node.host == one.node.host and each.state not in LEAVES for each in nodes)
    return f"{one.node.host}/{one.node.instance}" if is_alone else one.node.host


def unfit(leaving: NodeLook, target: NodeLook, nodes: Iterable[NodeLook] = ()) -> str:
    """Why a node cannot take the messages of another one; empty if it can."""
    if target.fault:
        return target.fault
    if not target.drain:
        return f"{target.name} has a release that takes no messages of nodes that leave (mqctl rollout)"
    if target.state in LEAVES:
        return f"{target.name} is leaving itself (mqctl scale-down {_leaves_as(target, nodes)} --cancel)"
    if target.state == CORDONED:
        return f"{target.name} is cordoned (mqctl undrain {target.node.host})"
    if target.state != SERVES:
        return f"{target.name} is just taking back a scale-down of its own"
    state = leaving.link_state(target.node_id)
    if state != "up":
        return f"the link {leaving.name} -> {target.name} does not stand ({state or 'there is none'})"
    return ""


def _is_of_its_group(leaving: NodeLook, target: NodeLook) -> bool:
    """Whether both say the same group of scale-down; that of one that says none is anybody. A broker refuses another
    one, unless by force."""
    said = {row["node_id"]: row.get("scale_down_group", "") for row in leaving.topology.get("members", ())}
    own = said.get(leaving.node_id, "")
    return not own or said.get(target.node_id, "") == own


def _links_up(look: NodeLook) -> int:
    return sum(row["state"] == "up" for row in look.topology.get("links", ()))


def _links(leaving: Sequence[NodeLook], survivors: Sequence[NodeLook]) -> list[str]:
    """Links between nodes of the cluster that do not stand, and nodes that do not answer."""
    known = {one.node_id: one.name for one in (*leaving, *survivors) if one.node_id}
    said = [one.fault for one in survivors if one.fault]
    for one in (*leaving, *survivors):
        down = [row for row in one.topology.get("links", ()) if row["node_id"] in known and row["state"] != "up"]
        said += [f"the link {one.name} -> {known[row['node_id']]} does not stand ({row['state']})" for row in down]
    return said


def _room(plan: DrainPlan) -> list[str]:
    """Whether all that is stored fits on the disks of the targets, which page what is too much for their memory. Nodes
    of one host that drain to the same target need their room there together, and so do targets that share a host, and
    hosts that leave one after the other."""
    said = []
    for host, taken in _by_host(plan.together).items():
        room = [target.free_disk_bytes for target, _ in taken if target.free_disk_bytes is not None]
        coming = [one for _, sources in taken for one in sources]
        needed = sum(one.stored_bytes for one in coming)
        if room and needed > min(room) and _has_any(plan, coming):
            names = ", ".join(one.name for one in coming)
            verb = "stores" if len(coming) == 1 else "store together"
            where = taken[0][0].name if len(taken) == 1 else host
            shares = ", ".join(f"{one.name} {one.stored_bytes}" for one in coming)
            way = f" ({shares}): make room there, or have each leave by a command of its own, with --to"
            more = way if plan.before is not None and len(coming) > 1 else ""
            said.append(f"{where} has {min(room)} bytes free on its disk, and {names} {verb} up to {needed}{more}")
    return said


def _has_any(plan: DrainPlan, coming: Iterable[NodeLook]) -> bool:
    """Whether one of these leaves by this plan: what others need together was said of theirs."""
    return any(one.name in plan.targets for one in coming)


def _formats(plan: DrainPlan) -> list[str]:
    """Targets of a release so early that they read no journal as those do that leave: what that knows of queues and
    the target does not is refused queue by queue, when clients have gone."""
    said = []
    for one in plan.leaving:
        target = plan.targets[one.name]
        if one.journal_format > target.journal_format:
            said.append(
                f"{target.name} reads journal files of format {target.journal_format}, and {one.name} of "
                f"{one.journal_format}: it may refuse queues of a kind that it does not know (mqctl rollout)"
            )
    return said


def _releases(plan: DrainPlan) -> list[str]:
    """Targets of an earlier release than those that leave."""
    both = [(one, plan.targets[one.name]) for one in plan.leaving]
    return [
        f"{target.name} has release {target.version}, and {one.name} {one.version}: what the earlier one does not know "
        "is named when it is to move"
        for one, target in both
        if target.version and target.release < one.release  # who says none is no earlier one for that
    ]


def _by_host(plan: DrainPlan) -> dict[str, list[tuple[NodeLook, list[NodeLook]]]]:
    """Host -> its nodes that take messages, each with those whose messages it takes."""
    by_host: dict[str, list[tuple[NodeLook, list[NodeLook]]]] = {}
    for target in {one.name: one for one in plan.targets.values()}.values():
        sources = [one for one in plan.leaving if plan.targets[one.name].name == target.name]
        by_host.setdefault(target.node.host, []).append((target, sources))
    return by_host


def _memory(plan: DrainPlan) -> list[str]:
    """Targets that have less memory left than what comes takes: addresses that page put it on the disk, others take no
    more for a time."""
    said = []
    for taken in _by_host(plan.together).values():
        for target, sources in taken:
            needed = sum(one.held_bytes for one in sources)
            if needed > target.free_memory_bytes and _has_any(plan, sources):
                whose = f" from {' and '.join(one.name for one in sources)}" if len(sources) > 1 else ""
                said.append(
                    f"{target.name} has {target.free_memory_bytes} bytes of memory left for messages, and {needed} "
                    f"come{whose}: addresses page there, or the drain waits for consumers"
                )
    return said


def _unread(leaving: NodeLook, plan: DrainPlan) -> list[str]:
    """Queues that are consumed from here or elsewhere, and not where their messages go."""
    target = plan.targets[leaving.name]
    here = {row["name"] for row in target.queues if row["consumer_count"]}
    elsewhere = {row["name"] for one in plan.survivors for row in one.queues if row["consumer_count"]} - here
    said = [
        f"{row['name']}: has consumers, and none at {target.name}: they get what moves there only by redistribution "
        "(redistribution-delay)"
        for row in leaving.queues
        if row["message_count"] and row["name"] in elsewhere
    ]
    return said + [
        f"{row['name']}: its only consumers are at {leaving.name}: what moves waits at {target.name} until one is there"
        for row in leaving.queues
        if is_read(row) and row["name"] not in here | elsewhere
    ]


def rows_of(plan: DrainPlan) -> list[dict[str, Any]]:
    """A row for each queue that has something to move, the largest first; all of a node where none has."""
    return [
        {
            "host": one.node.host,
            "instance": one.node.instance,
            "queue": row["name"],
            "address": row["address"],
            "messages": row["message_count"],
            "bytes": moving.get(row["name"], {}).get("bytes"),
            **{kind: moving.get(row["name"], {}).get(word) for word, kind in KINDS.items()},
            "consumers": row["consumer_count"],
            "to": plan.targets[one.name].name,
        }
        for one in plan.leaving
        for moving in [{row["queue"]: row for row in plan.moving.get(one.name, ())}]
        for row in sorted(one.queues, key=lambda row: (-row["message_count"], row["name"]))
        if row["message_count"] or row["consumer_count"]
    ]


def extent_of(plan: DrainPlan, one: NodeLook) -> str:
    """What moves of a node by size and kind, and about how long that takes; empty where nothing is there, or where its
    release does not say."""
    rows = list(plan.moving.get(one.name, ()))
    seconds = seconds_of(rows)
    if not seconds or not all("bytes" in row for row in rows):
        return ""
    kinds = {kind: sum(int(row.get(word) or 0) for row in rows) for word, kind in KINDS.items()}
    among = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    files = " without what large ones have in files" if kinds["large"] else ""
    return (
        f"{sum(int(row['bytes']) for row in rows)} bytes move{files}{f', among them {among}' if among else ''}; an "
        f"estimate by another machine: {seconds} s, at {MESSAGES_PER_S} messages or {BYTES_PER_S // 1_000_000} MB a "
        "second"
    )


def seconds_of(rows: Iterable[Mapping[str, Any]]) -> int:
    """How long these would take as measured elsewhere, in whole seconds; 0 where nothing is to move."""
    rows = list(rows)
    messages = sum(int(row["left"]) for row in rows)
    return math.ceil(max(messages / MESSAGES_PER_S, sum(int(row.get("bytes", 0)) for row in rows) / BYTES_PER_S))


def told(hindrances: Iterable[dict[str, Any]]) -> list[str]:
    """What a broker says is in the way, a line each."""
    return [f"{one.get('kind', '')} {one.get('name', '')}: {one.get('why', '')}".strip() for one in hindrances]
