"""Discovery of a node: its broadcast and discovery groups, wired to timers, effects and notices.

Without groups there is nothing here that costs anything. All groups of a process share one boot id and one `seq`, so
whoever hears two of them takes them for one node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.discovery.announcement import HEARS_MAX, Announcement, Connector
from mqbroker.cluster.discovery.broadcaster import Broadcaster
from mqbroker.cluster.discovery.candidates import CandidateTable
from mqbroker.cluster.discovery.datagram import seal
from mqbroker.cluster.discovery.entries import EntryChange, EntryChangeKind, EntryTable
from mqbroker.cluster.discovery.group import DiscoveryGroup
from mqbroker.cluster.node_id_conflict import CONFLICT_REMEDY, ECHO_REMEDY, ProcessStart
from mqbroker.config.slices import BroadcastGroupOptions, DiscoveryGroupOptions
from mqbroker.node.values.effects import JoinGroup, RelayRecord, SendDatagram
from mqbroker.node.values.inputs import ClusterKeyChanged, Datagram, Looked, Resolved

if TYPE_CHECKING:
    from mqbroker.node.cluster.discovery.node_id_conflict import NodeIdConflict
    from mqbroker.node.values.base_broker import BaseBroker

# Notices: level, event, and what to do where somebody should.
CHANGES = {
    EntryChangeKind.FOUND: (Level.INFO, "discovery-node-found", ""),
    EntryChangeKind.CHANGED: (Level.INFO, "discovery-node-changed", ""),
    EntryChangeKind.RESTARTED: (Level.INFO, "discovery-node-restarted", ""),
    EntryChangeKind.LOST: (Level.WARNING, "discovery-node-lost", ""),
    EntryChangeKind.CONFLICT: (
        Level.ERROR, "node-id-conflict",
        CONFLICT_REMEDY,
    ),
    EntryChangeKind.CONFLICT_OVER: (Level.INFO, "node-id-conflict-over", ""),
    EntryChangeKind.ECHO: (Level.WARNING, "discovery-own-id-heard", ECHO_REMEDY),
}  # fmt: skip


class Discovery:
    """See the module's docstring. It is the World of its groups."""

    def __init__(self, broker: BaseBroker, conflict: NodeIdConflict, key: bytes) -> None:
        self._broker = broker
        self._conflict = conflict
        self._key = key
        self._seq = 0
        self._echoed: list[str] = []  # boot ids of echoes, so that each is told of once
        options, now_ns = broker.options, broker.at.monotonic_ns
        self.connectors = {
            one.name: Connector(one.name, "amqps" if one.tls_enabled else "amqp", one.host, one.port)
            for one in options.connectors
        }
        self.broadcasters = {
            each.name: Broadcaster(each, self, self._announcer(each), now_ns) for each in options.broadcast_groups
        }
        self.groups: dict[str, DiscoveryGroup] = {}
        LOOK.has_touched = True
        for listened in options.discovery_groups:
            table = self._table(listened)
            table.listeners.append(self._noticer(listened.name))
            group = self.groups[listened.name] = DiscoveryGroup(listened, self, key, table)
            group.start(now_ns)
        for broadcaster in self.broadcasters.values():
            broker.timers.add(broadcaster)
        for group in self.groups.values():
            broker.timers.add(group)

    def stop(self) -> None:
        """A node that stops announces itself no more."""
        for broadcaster in self.broadcasters.values():
            broadcaster.stop()
        for group in self.groups.values():
            group.stop()

    @property
    def entries_count(self) -> int:
        """How many nodes all groups hear, counted once for each group."""
        return sum(len(group.table.entries) for group in self.groups.values())

    @property
    def conflicts(self) -> list[str]:
        """Node ids that two brokers have now."""
        return sorted({node_id for group in self.groups.values() for node_id in group.table.conflicts})

    # -- inputs --------------------------------------------------------------------------------------------------------

    def heard(self, given: Datagram) -> None:
        """Something came to a group."""
        group = self.groups[given.group]
        if self._broker.is_running:
            group.heard(given.data, given.source, self._broker.at.monotonic_ns)
            LOOK.has_touched = True
            self._broker.timers.add(group)

    def resolved(self, given: Resolved) -> None:
        """The names of a group led to these places."""
        group = self.groups[given.group]
        if self._broker.is_running:
            scheme = "amqps" if group.options.tls_enabled else "amqp"
            places = [(name, Connector(group.options.name, scheme, host, port)) for name, host, port in given.found]
            group.answered(places, self._broker.at.monotonic_ns)
            self._broker.timers.add(group)

    def looked(self, given: Looked) -> None:
        """A place cannot be looked at, or can again."""
        if self._broker.is_running:
            self.groups[given.group].looked(given.why)

    def key_changed(self, given: ClusterKeyChanged) -> None:
        """From now on the cluster has another secret. Who does not know it yet falls silent for us."""
        self._key = given.key
        for group in self.groups.values():
            group.key = given.key

    # -- World ---------------------------------------------------------------------------------------------------------

    def join(self, group: str) -> None:
        """Have a group's endpoint opened; `joined` or why not follows (DiscoveryWorld)."""
        LOOK.has_touched = True
        effect_id = self._broker.completions.expect(lambda _, why: self._joined(group, why))
        self._broker.effects.append(JoinGroup(effect_id, group))

    def send(self, group: str, data: bytes) -> None:
        """Have a datagram sent; `sent` or `failed` follows (DiscoveryWorld)."""
        LOOK.has_touched = True
        effect_id = self._broker.completions.expect(lambda _, why: self._sent(group, why))
        self._broker.effects.append(SendDatagram(effect_id, group, data))

    def relay(self, group: str, node_id: str, data: bytes) -> None:
        """Have what another node said passed on to whoever asks here (DiscoveryWorld)."""
        LOOK.has_touched = True
        self._broker.effects.append(RelayRecord(group, node_id, data))

    def tell(self, level: Level, event: str, **fields: str | int) -> None:
        """Have an event logged, with these fields (DiscoveryWorld)."""
        self._broker.notice(level, event, **fields)

    def _joined(self, name: str, why: str) -> None:
        group, now_ns = self.groups[name], self._broker.at.monotonic_ns
        if why:
            group.failed(why, now_ns)
        else:
            group.joined(now_ns)
        if not self._broker.is_running:
            group.stop()
        LOOK.has_touched = True
        self._broker.timers.add(group)

    def _sent(self, name: str, why: str) -> None:
        broadcaster = self.broadcasters[name]
        if why:
            broadcaster.failed(why)
        else:
            broadcaster.sent()

    # -- groups --------------------------------------------------------------------------------------------------------

    def _table(self, options: DiscoveryGroupOptions) -> EntryTable:
        if options.discovery == "dns":
            return CandidateTable(frozenset((one.host, one.port) for one in self._own_connectors))
        from_ns = 0
        if options.discovery == "gossip":  # others pass on what an earlier process of this node said, for so long
            from_ns = self._broker.at.monotonic_ns + options.refresh_timeout * NS_PER_MS
        return EntryTable(self._broker.node_id, self._broker.boot_id, options.refresh_timeout, from_ns)

    @property
    def _own_connectors(self) -> list[Connector]:
        """All but those that lead to others: listed, and not what this node says of itself."""
        options = self._broker.options
        clusters, routers = options.cluster_connections, options.connection_routers
        said = {each.connector_ref for each in options.broadcast_groups} | {each.connector_ref for each in clusters}
        said |= {each.client_connector_ref for each in clusters} | {each.local_connector_ref for each in routers}
        listed = {*options.scale_down.connectors, *(name for each in clusters for name in each.static_connectors)}
        listed |= {name for each in routers for name in each.static_connectors}
        return [one for name, one in self.connectors.items() if name in said or name not in listed]

    def _announcer(self, options: BroadcastGroupOptions) -> Callable[[], bytes]:
        def announce() -> bytes:
            LOOK.has_touched = True
            self._seq += 1
            said = Announcement(
                node_id=self._broker.node_id,
                boot_id=self._broker.boot_id,
                seq=self._seq,
                name=self._broker.options.node.name,
                period_ms=options.broadcast_period,
                connectors=(self.connectors[options.connector_ref],),
                started_ms=self._conflict.own.started_ms,
                has_yielded=self._conflict.has_yielded,
                term=self._broker.term,
                hears=tuple(sorted({boot for each in self.groups.values() for boot in each.table.rivals}))[:HEARS_MAX],
            )
            return seal(said, self._key)

        return announce

    def _noticer(self, group: str) -> Callable[[EntryChange], None]:
        def tell(change: EntryChange) -> None:
            level, event, remedy = CHANGES[change.kind]
            said = change.announcement
            LOOK.has_touched = True
            if change.kind is EntryChangeKind.ECHO:
                if said.boot_id in self._echoed:
                    return
                self._echoed = [*self._echoed, said.boot_id][-HEARS_MAX:]
            fields: dict[str, str | int] = {
                "group": group, "node": said.name, "node_id": said.node_id, "boot_id": said.boot_id,
                "connector": said.connectors[0].uri, "source": change.source, "remedy": remedy,
            }  # fmt: skip
            self.tell(level, event, **{name: value for name, value in fields.items() if value})
            if (
                change.kind is EntryChangeKind.CONFLICT
                and said.node_id == self._broker.node_id
                and not said.has_yielded
            ):
                start = ProcessStart(said.started_ms, said.boot_id, said.term)
                self._conflict.compare(start, change.source)

        return tell
