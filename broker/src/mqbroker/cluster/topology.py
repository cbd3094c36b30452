"""Who belongs to the cluster, as nodes tell each other.

Each node says of itself how it is reached, with a version that grows: by its term, by starts of the node, then by a
count within one. Versions decide, never clocks: what is newer wins, and what is not may only say how to reach a node
of which that is not known. A node that has left is remembered by the version that ended it, so that older news do not
bring it back, and whoever still tells them is told of the end: at once, and where he does not listen yet, first of all
when he does.

Nobody else speaks for this node. Its starts are counted in its journal, which may be wiped or be an old copy: then
what its past processes said of it is newer than what it says. So it takes the version above whatever it hears of
itself, and says itself anew. A process that lives and has its id does the same, so one that comes back again and again
is refused, and told. Nor is there a way over a higher term, which nobody takes for himself. Whoever holds the table
spreads `TopologyChange.spread` to all neighbours; what comes back is no news, so it ends. Source:
docs/adr/0014-message-identity.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level, Notice
from mqbroker.cluster.node_id_conflict import NEW_ID
from mqbroker.cluster.notices import VERSION_MAX, Member, MemberGone, Version

MEMBERS_MAX: Final = 1000
TOMBSTONES_MAX: Final = 4000
CLAIMS_MAX: Final = 8
JUMPS_MAX: Final = 3  # over what one process said; one that says more is alive
JUMPED_MAX: Final = 100  # processes of which that is counted


class TopologyChangeKind(enum.Enum):
    """What has changed of a member, or of who is one."""

    ADDED = "added"
    RESTARTED = "restarted"  # the same node, another process
    CHANGED = "changed"  # it is reached or called otherwise
    REFRESHED = "refreshed"  # it said the same again
    GONE = "gone"
    OURS = "ours"  # somebody said that we have left, or what was newer than what we say
    BEHIND = "behind"  # somebody knows later starts of this node than our journal does
    PAST = "past"  # somebody does not know that it has left
    SPLIT_BRAIN = "split-brain"  # another process has our node id
    FULL = "full"


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """`spread` is what neighbours have to know of, if anything; `member` whom it is about."""

    kind: TopologyChangeKind
    member: Member
    spread: Member | MemberGone | None


# Notices: level, event, and what to do where somebody should.
_LOGGED: Final = {
    TopologyChangeKind.ADDED: (Level.INFO, "cluster-member-added", ""),
    TopologyChangeKind.RESTARTED: (Level.INFO, "cluster-member-restarted", ""),
    TopologyChangeKind.CHANGED: (Level.INFO, "cluster-member-changed", ""),
    TopologyChangeKind.GONE: (Level.INFO, "cluster-member-gone", ""),
    TopologyChangeKind.BEHIND: (
        Level.WARNING, "cluster-journal-is-behind",
        "other nodes know later starts of this one than its journal does, which is an old copy or was wiped: what it "
        "had accepted since is not there; what is accepted from now on is told apart by itself",
    ),
    TopologyChangeKind.SPLIT_BRAIN: (
        Level.ERROR, "cluster-split-brain",
        f"another broker runs with the node id of this one: stop the one whose data was copied, run {NEW_ID} there and "
        "start it",
    ),
    TopologyChangeKind.FULL: (Level.ERROR, "cluster-members-full", f"more than {MEMBERS_MAX} nodes; it is passed over"),
}  # fmt: skip


def logged(change: TopologyChange) -> Notice | None:
    """What the log says of it, if anything."""
    row = _LOGGED.get(change.kind)
    if row is None:
        return None
    level, event, remedy = row
    member = change.member
    fields: dict[str, str | int] = {"node_id": member.node_id, "node": member.name, "boot_id": member.boot_id}
    if member.connectors:
        fields["connector"] = member.connectors[0].uri
    if remedy:
        fields["remedy"] = remedy
    return Notice(level, event, fields)


class Topology:
    """See the module's docstring. `own` is this node."""

    def __init__(self, own: Member) -> None:
        self.own = own
        self._others: dict[str, Member] = {}
        self._tombstones: dict[str, Version] = {}  # the oldest first
        self._disputed: dict[str, None] = {}  # those of them of which somebody said later that they are there
        self.claims: dict[str, Member] = {}  # by boot id: other processes that claim our node id
        self._jumps: dict[str, int] = {}  # by boot id: how often we jumped over what it said; the oldest first
        self._is_full_told = False

    @property
    def members(self) -> list[Member]:
        """All, this node first, then by node id."""
        return [self.own, *self.others]

    @property
    def others(self) -> list[Member]:
        """All but this node, by node id."""
        return [self._others[node_id] for node_id in sorted(self._others)]

    @property
    def told_first(self) -> list[Member | MemberGone]:
        """What a neighbour hears before all else: who is there, and who has left though somebody does not know it."""
        return [*self.members, *(MemberGone(node_id, self._tombstones[node_id]) for node_id in self._disputed)]

    def get(self, node_id: str) -> Member | None:
        """The member of this id, this node among them; None: there is none."""
        return self.own if node_id == self.own.node_id else self._others.get(node_id)

    def hear(self, notice: Member | MemberGone) -> TopologyChange | None:
        """What somebody says; None where that is no news."""
        if notice.node_id == self.own.node_id:
            return self._of_ours(notice)
        return self._told(notice) if isinstance(notice, Member) else self._left(notice)

    def remove(self, node_id: str) -> TopologyChange | None:
        """This node knows by itself that another has left, or gives it up. News that are newer bring it back."""
        known = self._others.get(node_id)
        return None if known is None else self._left(MemberGone(node_id, known.version))

    def again(self) -> Member:
        """This node says again what it says of itself, as news."""
        version = self.own.version
        LOOK.has_touched = True
        self.own = replace(self.own, version=replace(version, counter=version.counter + 1))
        return self.own

    def leaves_to(self, heir: str) -> Member:
        """This node is about to leave, and that one gets all that it has; empty: it stays; itself: it is cordoned."""
        LOOK.has_touched = True
        self.own = replace(self.own, heir=heir)
        return self.again()

    def leave(self) -> MemberGone:
        """This node leaves: what its neighbours are told of that."""
        return MemberGone(self.own.node_id, self.again().version)

    def _of_ours(self, notice: Member | MemberGone) -> TopologyChange | None:
        own, version = self.own, notice.version
        if version < own.version or (isinstance(notice, Member) and notice.boot_id == own.boot_id):
            return None  # what we said ourselves, or an earlier process of ours did
        is_above = version.term > own.version.term or version.epoch >= VERSION_MAX
        if is_above or (isinstance(notice, Member) and not self._count_jump(notice.boot_id)):
            return self._claimed(notice if isinstance(notice, Member) else own)
        is_said_of_us = isinstance(notice, MemberGone) and version.epoch == own.version.epoch
        is_said_of_us = is_said_of_us and version.counter < VERSION_MAX  # else no neighbour would take what we say next
        before = version if is_said_of_us else replace(version, epoch=version.epoch + 1, counter=-1)
        LOOK.has_touched = True
        self.own = replace(own, version=before)
        kind = TopologyChangeKind.BEHIND if version.epoch > own.version.epoch else TopologyChangeKind.OURS
        return TopologyChange(kind, self.own, self.again())

    def _count_jump(self, boot_id: str) -> bool:
        """What this process said is taken as past once more; False: too often."""
        LOOK.has_touched = True
        count = self._jumps.pop(boot_id, 0) + 1
        self._jumps[boot_id] = count
        if len(self._jumps) > JUMPED_MAX:
            del self._jumps[next(iter(self._jumps))]
        return count <= JUMPS_MAX

    def _claimed(self, member: Member) -> TopologyChange | None:
        """Told once for each process."""
        if member.boot_id in self.claims or len(self.claims) >= CLAIMS_MAX:
            return None
        LOOK.has_touched = True
        self.claims[member.boot_id] = member
        return TopologyChange(TopologyChangeKind.SPLIT_BRAIN, member, None)

    def _told(self, notice: Member) -> TopologyChange | None:
        node_id = notice.node_id
        known, tombstone = self._others.get(node_id), self._tombstones.get(node_id)
        LOOK.has_touched = True
        if known is None:
            if tombstone is not None and notice.version <= tombstone:
                self._disputed[node_id] = None
                return TopologyChange(TopologyChangeKind.PAST, notice, MemberGone(node_id, tombstone))
            if len(self._others) >= MEMBERS_MAX:
                is_news, self._is_full_told = not self._is_full_told, True
                return TopologyChange(TopologyChangeKind.FULL, notice, None) if is_news else None
            self._tombstones.pop(node_id, None)
            self._disputed.pop(node_id, None)
            self._others[node_id] = notice
            return TopologyChange(TopologyChangeKind.ADDED, notice, notice)
        merged = _merged(known, notice)
        if merged == known:
            return None
        self._others[node_id] = merged
        return TopologyChange(_difference(known, merged), merged, merged)

    def _left(self, notice: MemberGone) -> TopologyChange | None:
        node_id, known = notice.node_id, self._others.get(notice.node_id)
        if known is not None and notice.version < known.version:
            return None
        LOOK.has_touched = True
        tombstone = self._tombstones.pop(node_id, notice.version)
        self._tombstones[node_id] = max(tombstone, notice.version)
        if len(self._tombstones) > TOMBSTONES_MAX:
            forgotten = next(iter(self._tombstones))
            del self._tombstones[forgotten]
            self._disputed.pop(forgotten, None)
        if known is None:
            return None
        del self._others[node_id]
        self._is_full_told = False
        return TopologyChange(TopologyChangeKind.GONE, known, notice)


def _merged(known: Member, told: Member) -> Member:
    """What is known from now on. Of one process, whoever left out how it is reached takes nothing away."""
    newer, older = (told, known) if told.version > known.version else (known, told)
    if newer.boot_id != older.boot_id:
        return newer
    # An older release tells on what others said, without what it does not know: an heir, formats.
    heir = newer.heir or (older.heir if newer.version == older.version else "")
    return replace(
        newer, connectors=newer.connectors or older.connectors, clients=newer.clients or older.clients, heir=heir,
        journal_formats=newer.journal_formats or older.journal_formats,
    )  # fmt: skip


def _difference(known: Member, now: Member) -> TopologyChangeKind:
    if known.boot_id != now.boot_id:
        return TopologyChangeKind.RESTARTED
    is_same = _said(known) == _said(now)
    return TopologyChangeKind.REFRESHED if is_same else TopologyChangeKind.CHANGED


def _said(member: Member) -> tuple[object, ...]:
    return member.connectors, member.clients, member.name, member.heir, member.journal_formats
