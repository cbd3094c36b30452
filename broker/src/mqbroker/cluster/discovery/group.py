"""A discovery group: listens or looks at one place and keeps the table of nodes that it finds there.

The table feeds first connections only: that a node is not heard any more never ends a link that works. Whoever makes
connections reads `table.entries`, listens to its changes, and gives up waiting for a first entry when `is_waiting`
ends.
"""

from __future__ import annotations

from typing import ClassVar

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS, NS_PER_S
from mqbroker.cluster.discovery.announcement import Announcement, Connector
from mqbroker.cluster.discovery.candidates import CandidateTable
from mqbroker.cluster.discovery.datagram import Drop, unseal
from mqbroker.cluster.discovery.entries import ENTRIES_MAX, EntryChange, EntryChangeKind, EntryTable
from mqbroker.cluster.discovery.places import place_of
from mqbroker.cluster.discovery.states import GROUP_STATES, GroupEvent, GroupState
from mqbroker.cluster.discovery.world import DiscoveryWorld
from mqbroker.config.slices import DiscoveryGroupOptions

RETRY_NS = 5 * NS_PER_S
TELL_AGAIN_NS = 600 * NS_PER_S  # between two notices of the same reason
# Datagrams that a sound network does not bring; the others are every day's business.
TOLD = {
    Drop.LENGTH: "its length is wrong; something else sends to this group",
    Drop.MAGIC: "it is none of ours; something else sends to this group",
    Drop.VERSION: "another release sent it, in a form that this one does not know",
    Drop.MAC: "its sender has another cluster secret; give each cluster a group of its own, or this node its secret",
    Drop.CONTENT: "its sender has our secret and says what no announcement may say",
    Drop.FULL: "the table holds as many nodes as it may",
}


NOBODY = {
    "udp": "nobody was heard; see whether others broadcast to this group over this network card",
    "file": "no file of another node has changed; see whether others write to this directory",
    "dns": "the names do not exist, or lead to no node but this one",
    "gossip": "no peer has told of a node; see whether the peers run and can be reached",
}


class DiscoveryGroup:
    """Has a deadline like everybody in node/values/timers.py."""

    judges_others: ClassVar[bool] = True

    def __init__(self, options: DiscoveryGroupOptions, world: DiscoveryWorld, key: bytes, table: EntryTable) -> None:
        self.options = options
        self.table = table
        self._world = world
        self.key = key
        self.state = GroupState.IDLE
        self.trouble = ""  # why the last join failed, where it did
        self.is_waiting = True  # for the first entry
        self.heard_total = 0
        self._led: set[str] = set()  # names that led somewhere, once at least
        self.dropped = dict.fromkeys(Drop, 0)
        self._told_ns: dict[Drop, int] = {}
        self._low_told: dict[str, int] = {}
        self._join_ns = 0
        self._wait_until_ns = 0
        self.due_ns = 0
        self.scheduled_ns = 0
        self._is_relaying = options.discovery == "gossip"
        LOOK.has_touched = True
        if self._is_relaying:
            table.listeners.append(self._forget)

    def start(self, now_ns: int) -> None:
        """Begin to listen, and to wait for the first that is heard."""
        LOOK.has_touched = True
        self._wait_until_ns = now_ns + self.options.initial_wait_timeout * NS_PER_MS
        self._join_ns = now_ns
        self._plan()

    def stop(self) -> None:
        """Forget who was heard; nothing is due any more."""
        LOOK.has_touched = True
        self._join_ns = self._wait_until_ns = 0
        self.table.clear()
        self._plan()

    def on_time(self, now_ns: int) -> None:
        """Do what is due: forget who is silent, join again, stop waiting."""
        self.table.expire(now_ns)
        LOOK.has_touched = True
        if self._wait_until_ns and now_ns >= self._wait_until_ns:
            self._wait_until_ns = 0
            self.is_waiting = False
            why = self.trouble or NOBODY[self.options.discovery]
            self._world.tell(Level.WARNING, "discovery-nobody-heard", group=self.options.name, why=why)
        if self._join_ns and now_ns >= self._join_ns:
            self._join_ns = 0
            self.state = GROUP_STATES.after(self.state, GroupEvent.TIME)
            self._world.join(self.options.name)
        self._plan()

    def joined(self, now_ns: int) -> None:
        """The place is listened at."""
        is_news = self.state is not GroupState.REJOINING
        LOOK.has_touched = True
        self.state = GROUP_STATES.after(self.state, GroupEvent.JOINED)
        self.trouble = ""
        self._expect_something(now_ns)
        if is_news:
            place, local = place_of(self.options), self.options.local_bind_address or "any"
            self._world.tell(Level.INFO, "discovery-listening", group=self.options.name, place=place, local=local)
        self._plan()

    def failed(self, why: str, now_ns: int) -> None:
        """It cannot be listened at. Told once; it is tried again."""
        LOOK.has_touched = True
        self.state = GROUP_STATES.after(self.state, GroupEvent.REFUSED)
        if not self.trouble:
            self._world.tell(Level.ERROR, "discovery-join-failed", group=self.options.name, why=why)
        self.trouble = why
        self._join_ns = now_ns + RETRY_NS
        self._plan()

    def heard(self, data: bytes, source: str, now_ns: int) -> None:
        """A datagram has come from `source`; it counts where its seal and its form are right."""
        announcement = unseal(data, self.key)
        if self.state is GroupState.LISTENING:
            self._expect_something(now_ns)
        drop = announcement if isinstance(announcement, Drop) else self.table.hear(announcement, source, now_ns)
        if drop is not None:
            self._dropped(drop, source, now_ns)
        elif isinstance(announcement, Announcement):
            self._taken(announcement)
            if self._is_relaying:
                self._world.relay(self.options.name, announcement.node_id, data)
        self._plan()

    def answered(self, places: list[tuple[str, Connector]], now_ns: int) -> None:
        """Names were resolved: the whole answer, each place with its name."""
        assert isinstance(self.table, CandidateTable)
        left_out = self.table.answer(places, now_ns)
        if left_out:
            self._dropped(Drop.FULL, places[-1][0], now_ns)
        if self.table.entries:
            self._found_one()
        LOOK.has_touched = True
        self._led.update(name for name, _ in places)
        self.heard_total += 1
        self._plan()

    @property
    def unanswered(self) -> list[str]:
        """Names that never led anywhere, so that nobody knows who should be there: without a name server hosts say of
        each name that it does not exist, and a name may be misspelt."""
        names = self.options.names if self.options.discovery == "dns" else ()
        return [name for name in dict.fromkeys(names) if name not in self._led]

    def looked(self, why: str) -> None:
        """A look at the place failed, and those before did not (or the reverse, where `why` is empty)."""
        fields = {"group": self.options.name, "place": place_of(self.options)}
        if why and not self.trouble:
            self._world.tell(Level.WARNING, "discovery-look-failed", **fields, why=why)
        elif self.trouble and not why:
            self._world.tell(Level.INFO, "discovery-look-works-again", **fields)
        LOOK.has_touched = True
        self.trouble = why

    def _forget(self, change: EntryChange) -> None:
        if change.kind is EntryChangeKind.LOST:
            self._world.relay(self.options.name, change.announcement.node_id, b"")

    def _found_one(self) -> None:
        LOOK.has_touched = True
        self.is_waiting = False
        self._wait_until_ns = 0

    def _taken(self, announcement: Announcement) -> None:
        LOOK.has_touched = True
        self.heard_total += 1
        self._found_one()
        node_id, period_ms = announcement.node_id, announcement.period_ms
        if self.options.refresh_timeout < 2 * period_ms and self._low_told.get(node_id) != period_ms:
            if len(self._low_told) >= ENTRIES_MAX:
                self._low_told.clear()
            self._low_told[node_id] = period_ms
            self._world.tell(
                Level.WARNING, "discovery-refresh-timeout-low", group=self.options.name, node=announcement.name,
                refresh_timeout_ms=self.options.refresh_timeout, broadcast_period_ms=period_ms,
                remedy="raise refresh-timeout to more than two periods, or one lost datagram ends an entry",
            )  # fmt: skip

    def _dropped(self, drop: Drop, source: str, now_ns: int) -> None:
        LOOK.has_touched = True
        self.dropped[drop] += 1
        why = TOLD.get(drop)
        told_ns = self._told_ns.get(drop)
        if why is not None and (told_ns is None or now_ns - told_ns >= TELL_AGAIN_NS):
            self._told_ns[drop] = now_ns
            fields = {"group": self.options.name, "source": source, "reason": drop.value, "why": why}
            self._world.tell(Level.WARNING, "discovery-datagram-dropped", **fields)

    def _expect_something(self, now_ns: int) -> None:
        LOOK.has_touched = True
        if self.options.discovery == "dns":
            self._join_ns = 0  # an answer is had at each look, or told of as trouble
            return
        self._join_ns = now_ns + self.options.refresh_timeout * NS_PER_MS

    def _plan(self) -> None:
        LOOK.has_touched = True
        self.due_ns = min(filter(None, (self._join_ns, self._wait_until_ns, self.table.due_ns)), default=0)
