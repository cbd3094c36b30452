"""The table of nodes that are heard, by node id.

An entry is replaced by each datagram that is newer, and ends when none came for `refresh-timeout`, by a timer and the
monotonic clock. Two things are remembered beyond that, within bounds: the last `seq` of each process that a node was
seen as, so that nothing recorded counts twice, and which process came later, so that an earlier one never takes the
place of a later one. Where the earlier one goes on speaking, two processes have one id: a conflict. Before all goes
the term: who is in a lower one than another process of the node was takes no place (docs/adr/0023-term.md). A process
that has yielded (cluster/node_id_conflict.py) gives its place up.

What comes under our own id is a conflict only where it names this process as one that it hears: all else may have been
recorded of an earlier process of this node, which counts for nothing however long it lasts. It is told as an echo, so
that somebody asks at the place that it names.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.discovery.announcement import HEARS_MAX, Announcement
from mqbroker.cluster.discovery.datagram import Drop

ENTRIES_MAX: Final = 1000
KNOWN_MAX: Final = 4 * ENTRIES_MAX  # ids that are remembered, those of ended entries included
BOOTS_MAX: Final = HEARS_MAX  # processes that are remembered of one id, and others that have our own
CONFLICT_PERIODS: Final = 2  # longer than this an earlier process speaks only where there is a conflict
CALM_PERIODS: Final = 3  # so long without a word of it, and what comes next begins to count anew


class EntryChangeKind(enum.Enum):
    """What happened to the table."""

    FOUND = "found"
    CHANGED = "changed"
    RESTARTED = "restarted"
    LOST = "lost"
    CONFLICT = "conflict"
    CONFLICT_OVER = "conflict-over"
    ECHO = "echo"


@dataclass(slots=True)
class HeardNode:
    """A node that is heard: what it said last, from where, and since when (monotonic)."""

    announcement: Announcement
    source: str
    found_ns: int
    heard_ns: int


@dataclass(frozen=True, slots=True)
class EntryChange:
    """What listeners are told. For a conflict or an echo the announcement is that of the other process."""

    kind: EntryChangeKind
    announcement: Announcement
    source: str


@dataclass(slots=True)
class Contention:
    """An earlier process of an id that speaks beside the later one, or another one that has our own."""

    change: EntryChange
    since_ns: int
    last_ns: int
    is_conflict: bool = False
    is_alive: bool = False


@dataclass(slots=True)
class Known:
    """The processes of an id, each with its last seq; the last one is the one that counts.

    `term` is the highest of them: whoever is in a lower one does not count, whenever it came.
    """

    boots: dict[str, int] = field(default_factory=dict)
    term: int = 0

    @property
    def current(self) -> str:
        """The boot id of the process that came last."""
        return next(reversed(self.boots))

    def step_back(self, boot_id: str, seq: int) -> None:
        """This process counts as the earliest from now on."""
        LOOK.has_touched = True
        self.boots.pop(boot_id, None)
        if len(self.boots) >= BOOTS_MAX:
            del self.boots[next(iter(self.boots))]
        self.boots = {boot_id: seq, **self.boots}

    def hear_past(self, boot_id: str, seq: int) -> None:
        """A process of the past goes on: it stays where it was among the others, or was before all of them."""
        if boot_id in self.boots:
            LOOK.has_touched = True
            self.boots[boot_id] = seq
        else:
            self.step_back(boot_id, seq)

    def add(self, boot_id: str, seq: int) -> None:
        """One more process, later than all before."""
        LOOK.has_touched = True
        self.boots[boot_id] = seq
        if len(self.boots) > BOOTS_MAX:
            del self.boots[next(iter(self.boots))]


class EntryTable:
    """See the module's docstring. `listeners` are called in order, within `hear` and `expire`.

    With a timeout of 0 nothing ends by time. What is heard under our own id before `own_from_ns` may be what others
    still pass on of an earlier process of this node, and is no sign of a conflict.
    """

    def __init__(self, node_id: str, boot_id: str, refresh_timeout_ms: int, own_from_ns: int = 0) -> None:
        self._node_id = node_id
        self._boot_id = boot_id
        self._own = Known()  # other processes that were heard under our own id
        self._own_from_ns = own_from_ns
        self._timeout_ns = refresh_timeout_ms * NS_PER_MS
        self._entries: dict[str, HeardNode] = {}  # in the order in which they were heard last
        self._known: dict[str, Known] = {}  # likewise
        self._contentions: dict[str, Contention] = {}  # by node id; those for our own id by boot id
        self.listeners: list[Callable[[EntryChange], None]] = []

    @property
    def entries(self) -> list[HeardNode]:
        """All nodes that are heard, in the order of their ids."""
        return [self._entries[node_id] for node_id in sorted(self._entries)]

    @property
    def conflicts(self) -> list[str]:
        """Node ids that two processes have now."""
        return sorted({one.change.announcement.node_id for one in self._contentions.values() if one.is_conflict})

    @property
    def rivals(self) -> list[str]:
        """The boot ids of other processes that are heard under our own id."""
        return [key for key, one in self._contentions.items() if one.change.announcement.node_id == self._node_id]

    @property
    def due_ns(self) -> int:
        """When `expire` has something to do; 0: never."""
        dues = [one.last_ns + self._timeout_ns for one in self._contentions.values()]
        if self._entries and self._timeout_ns:
            dues.append(next(iter(self._entries.values())).heard_ns + self._timeout_ns)
        return min(dues, default=0)

    def clear(self) -> None:
        """Forget all, and tell nobody."""
        LOOK.has_touched = True
        self._entries.clear()
        self._contentions.clear()

    def hear(self, announcement: Announcement, source: str, now_ns: int) -> Drop | None:
        """Take in what a node says of itself; None, or why it does not count."""
        node_id, boot_id, seq = announcement.node_id, announcement.boot_id, announcement.seq
        is_own = node_id == self._node_id
        if is_own and boot_id == self._boot_id:
            return Drop.OWN
        known = self._own if is_own else self._known.get(node_id)
        if known is not None and seq <= known.boots.get(boot_id, 0):
            return Drop.REPLAYED
        LOOK.has_touched = True
        if is_own:
            self._own.add(boot_id, seq)
            if now_ns >= self._own_from_ns and (boot_id in self._contentions or len(self.rivals) < BOOTS_MAX):
                self._contend(boot_id, announcement, source, now_ns)
            return Drop.OWN_ID
        if announcement.has_yielded:
            self._step_back(known, announcement, source, now_ns)
            return Drop.YIELDED
        if known is not None and self._is_past(known, announcement):
            known.hear_past(boot_id, seq)
            if node_id in self._entries:
                self._contend(node_id, announcement, source, now_ns)
            return Drop.EARLIER_BOOT
        if node_id not in self._entries and len(self._entries) >= ENTRIES_MAX:
            return Drop.FULL
        self._remember(known, announcement)
        self._replace(announcement, source, now_ns)
        return None

    def expire(self, now_ns: int) -> None:
        """End what was not heard for too long."""
        if not self._timeout_ns:
            return
        LOOK.has_touched = True
        for node_id, entry in list(self._entries.items()):
            if now_ns - entry.heard_ns < self._timeout_ns:
                break
            del self._entries[node_id]
            self._tell(EntryChange(EntryChangeKind.LOST, entry.announcement, entry.source))
        for key, one in list(self._contentions.items()):
            if now_ns - one.last_ns >= self._timeout_ns:
                del self._contentions[key]
                if one.is_conflict:
                    self._tell(EntryChange(EntryChangeKind.CONFLICT_OVER, one.change.announcement, one.change.source))

    def _is_past(self, known: Known, announcement: Announcement) -> bool:
        """Whether this is a process that another took the place of, which is heard or is in a higher term."""
        boot_id = announcement.boot_id
        if announcement.term != known.term:
            return announcement.term < known.term
        return boot_id in known.boots and boot_id != known.current and announcement.node_id in self._entries

    def _remember(self, known: Known | None, announcement: Announcement) -> None:
        node_id, boot_id = announcement.node_id, announcement.boot_id
        if known is None:
            known = Known()
            if len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
        else:
            del self._known[node_id]
        if known.boots and boot_id != known.current:
            known.boots.pop(boot_id, None)
        self._known[node_id] = known
        known.term = max(known.term, announcement.term)
        known.add(boot_id, announcement.seq)

    def _replace(self, announcement: Announcement, source: str, now_ns: int) -> None:
        node_id = announcement.node_id
        LOOK.has_touched = True
        before = self._entries.pop(node_id, None)
        found_ns = now_ns if before is None else before.found_ns
        self._entries[node_id] = HeardNode(announcement, source, found_ns, now_ns)
        kind = _difference(before, announcement)
        if kind is EntryChangeKind.RESTARTED:
            # Whoever spoke beside the process that has ended now has to be heard beside the new one first.
            self._calm(node_id)
        if kind is not None:
            self._tell(EntryChange(kind, announcement, source))

    def _step_back(self, known: Known | None, announcement: Announcement, source: str, now_ns: int) -> None:
        """Another process has the id, and is the one that counts once it is heard. Two still have it."""
        if known is not None:
            known.step_back(announcement.boot_id, announcement.seq)
        if announcement.node_id in self._entries:
            self._contend(announcement.node_id, announcement, source, now_ns)

    def _contend(self, key: str, announcement: Announcement, source: str, now_ns: int) -> None:
        period_ns = announcement.period_ms * NS_PER_MS
        change = EntryChange(EntryChangeKind.CONFLICT, announcement, source)
        one = self._contentions.get(key)
        if one is None or (not one.is_conflict and now_ns - one.last_ns > CALM_PERIODS * period_ns):
            one = self._contentions[key] = Contention(change, now_ns, now_ns)
        one.last_ns = now_ns
        one.is_alive |= announcement.node_id != self._node_id or self._boot_id in announcement.hears
        if one.is_conflict or now_ns - one.since_ns <= CONFLICT_PERIODS * period_ns:
            return
        if one.is_alive:
            one.is_conflict = True
            self._tell(change)
        else:
            one.since_ns = now_ns  # told again after as long
            self._tell(replace(change, kind=EntryChangeKind.ECHO))

    def _calm(self, node_id: str) -> None:
        one = self._contentions.get(node_id)
        LOOK.has_touched = True
        if one is not None and not one.is_conflict:
            del self._contentions[node_id]

    def _tell(self, change: EntryChange) -> None:
        for listener in self.listeners:
            listener(change)


def _difference(before: HeardNode | None, now: Announcement) -> EntryChangeKind | None:
    """What listeners have to know of, if anything: a repeated datagram is none."""
    if before is None:
        return EntryChangeKind.FOUND
    if before.announcement.boot_id != now.boot_id:
        return EntryChangeKind.RESTARTED
    return EntryChangeKind.CHANGED if before.announcement.connectors != now.connectors else None
