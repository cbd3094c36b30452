"""A discovery group: listens at one place and keeps the table of nodes that announce themselves there.

The table feeds first connections only: that a node is not heard any more never ends a link that works. Whoever makes
connections reads `table.entries`, listens to its changes, and gives up waiting for a first entry when `is_waiting`
ends.
"""

from __future__ import annotations

from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS, NS_PER_S
from mqbroker.cluster.discovery.announcement import Announcement
from mqbroker.cluster.discovery.datagram import Drop, unseal
from mqbroker.cluster.discovery.entries import ENTRIES_MAX, EntryTable
from mqbroker.cluster.discovery.states import Event, State, after
from mqbroker.cluster.discovery.world import World
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


class DiscoveryGroup:
    """Has a deadline like everybody in node/timers.py."""

    def __init__(self, options: DiscoveryGroupOptions, world: World, key: bytes, table: EntryTable) -> None:
        self.options = options
        self.table = table
        self._world = world
        self.key = key
        self.state = State.IDLE
        self.trouble = ""  # why the last join failed, where it did
        self.is_waiting = True  # for the first entry
        self.heard_total = 0
        self.dropped = dict.fromkeys(Drop, 0)
        self._told_ns: dict[Drop, int] = {}
        self._low_told: dict[str, int] = {}
        self._join_ns = 0
        self._wait_until_ns = 0
        self.due_ns = 0
        self.scheduled_ns = 0

    def start(self, now_ns: int) -> None:
        """Begin to listen."""
        self._wait_until_ns = now_ns + self.options.initial_wait_timeout * NS_PER_MS
        self._join_ns = now_ns
        self._plan()

    def stop(self) -> None:
        """Nothing is due any more."""
        self._join_ns = self._wait_until_ns = 0
        self.table.clear()
        self._plan()

    def on_time(self, now_ns: int) -> None:
        """Do what is due."""
        self.table.expire(now_ns)
        if self._wait_until_ns and now_ns >= self._wait_until_ns:
            self._wait_until_ns = 0
            self.is_waiting = False
            why = self.trouble or "nobody was heard; see whether others broadcast to this group over this network card"
            self._world.tell(Level.WARNING, "discovery-nobody-heard", group=self.options.name, why=why)
        if self._join_ns and now_ns >= self._join_ns:
            self._join_ns = 0
            self.state = after(self.state, Event.TIME)
            self._world.join(self.options.name)
        self._plan()

    def joined(self, now_ns: int) -> None:
        """The place is listened at."""
        is_news = self.state is not State.REJOINING
        self.state = after(self.state, Event.JOINED)
        self.trouble = ""
        self._expect_something(now_ns)
        if is_news:
            place = f"{self.options.group_address}:{self.options.group_port}"
            local = self.options.local_bind_address or "any"
            self._world.tell(Level.INFO, "discovery-listening", group=self.options.name, place=place, local=local)
        self._plan()

    def failed(self, why: str, now_ns: int) -> None:
        """It cannot be listened at. Told once; it is tried again."""
        self.state = after(self.state, Event.REFUSED)
        if not self.trouble:
            self._world.tell(Level.ERROR, "discovery-join-failed", group=self.options.name, why=why)
        self.trouble = why
        self._join_ns = now_ns + RETRY_NS
        self._plan()

    def heard(self, data: bytes, source: str, now_ns: int) -> None:
        """A datagram has come."""
        if self.state is State.LISTENING:
            self._expect_something(now_ns)
        found = unseal(data, self.key)
        drop = found if isinstance(found, Drop) else self.table.hear(found, source, now_ns)
        if drop is not None:
            self._dropped(drop, source, now_ns)
        elif isinstance(found, Announcement):
            self._taken(found)
        self._plan()

    def _taken(self, announcement: Announcement) -> None:
        self.heard_total += 1
        self.is_waiting = False
        self._wait_until_ns = 0
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
        self.dropped[drop] += 1
        why = TOLD.get(drop)
        told_ns = self._told_ns.get(drop)
        if why is not None and (told_ns is None or now_ns - told_ns >= TELL_AGAIN_NS):
            self._told_ns[drop] = now_ns
            fields = {"group": self.options.name, "source": source, "reason": drop.value, "why": why}
            self._world.tell(Level.WARNING, "discovery-datagram-dropped", **fields)

    def _expect_something(self, now_ns: int) -> None:
        self._join_ns = now_ns + self.options.refresh_timeout * NS_PER_MS

    def _plan(self) -> None:
        self.due_ns = min(filter(None, (self._join_ns, self._wait_until_ns, self.table.due_ns)), default=0)
