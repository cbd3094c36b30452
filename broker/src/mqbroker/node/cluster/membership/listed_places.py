"""Listed places that no link stands for, and nodes that are heard and have none: they are tried every 30 s without end.

A place is listed by a static connector, or by DNS while it names it in a discovery group. A static connector is a name,
and where it leads may change: to this node itself first and to another later, to a node that says another connector of
itself and comes back elsewhere, to one that took the place of another. What bridges dial is what nodes say of
themselves, so without this nobody would dial the listed name again. Nor would anybody dial a node that is told of no
more, though it lives (heard_places.py). Owns which node answered at each listed place last. Invariant: a place is tried
from here only while nothing else dials it, the node that answered there is not linked, and attempts that are bounded
were not made in vain. Source: docs/CLUSTERS.md, "Cluster connections".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.cluster.discovery.candidates import CandidateTable
from mqbroker.node.cluster.membership.bridge import SLOW_SCAN_MS, Bridge
from mqbroker.node.cluster.membership.heard_places import heard_in, linked_by
from mqbroker.node.values.bridge_states import BridgeState

if TYPE_CHECKING:
    from mqbroker.cluster.discovery.group import DiscoveryGroup
    from mqbroker.node.cluster.membership.cluster_connection import ClusterConnection

ListedPlace = tuple[str, str, int]
TOLD_MAX: Final = 1000
OVER: Final = (BridgeState.GONE, BridgeState.ENDED)


class ListedPlaces:
    """See the module's docstring. Of one cluster connection."""

    def __init__(self, of: ClusterConnection, listed: list[Connector]) -> None:
        self._of = of
        self._connectors = {each.place: each for each in listed if each.place != of.own.place}
        self._answered: dict[ListedPlace, str] = {}  # node ids
        self._told: set[ListedPlace] = set()  # looks there failed, and that was said
        self.due_ns = 0
        self.scheduled_ns = 0

    def start(self) -> None:
        """All of them are dialled, each by a bridge that goes on until somebody answers."""
        for connector in self._connectors.values():
            self._of.probe(Bridge(self._of, connector, is_listed=True))
        self._plan()

    def has(self, connector: Connector) -> bool:
        """Whether this place is listed."""
        return connector.place in self._connectors

    def add(self, connector: Connector) -> None:
        """A name leads there from now on: it is dialled as those that were listed from the start."""
        of = self._of
        is_known = connector.place in (*self._connectors, of.own.place)
        if is_known or of.broker.node_id_conflict.has_yielded:
            return
        LOOK.has_touched = True
        self._connectors[connector.place] = connector
        attempts = [
            each
            for each in (*of.bridges.values(), *of.probes)
            if each.connector.place == connector.place and each.state not in OVER and not each.is_tried_once
        ]
        for bridge in attempts:
            if bridge.is_doubtful:
                bridge.told(connector, "")  # it rests for long, and is worth an attempt now
            bridge.is_listed, bridge.is_doubtful = True, not bridge.node_id
            if bridge.state is BridgeState.UP:
                self._answered[connector.place] = bridge.node_id
        if attempts:
            return
        if of.is_crowded:
            of.tell_full(connector.uri)  # there is a look as soon as there is room
            return
        bridge = Bridge(of, connector, is_listed=True)
        bridge.is_doubtful = True
        of.probe(bridge)

    def remove(self, connector: Connector) -> None:
        """No name leads there any more. A link that stands goes on; who is only looked for there is not any more."""
        LOOK.has_touched = True
        self._told.discard(connector.place)
        if self._connectors.pop(connector.place, None) is None:
            return
        answered = self._answered.pop(connector.place, "")
        for bridge in [*self._of.probes, *self._of.bridges.values()]:
            is_there = bridge.connector.place == connector.place or (answered and bridge.node_id == answered)
            if is_there and not bridge.is_question and bridge.node_id not in self._answered.values():
                bridge.unlist("no name leads there any more")

    def answered(self, connector: Connector, node_id: str) -> None:
        """This node answered there, which may be ourselves."""
        LOOK.has_touched = True
        self._told.discard(connector.place)
        if connector.place in self._connectors:
            self._answered[connector.place] = node_id

    def look_failed(self, connector: Connector, why: str) -> None:
        """Nobody was found there, which is told of once until somebody answers."""
        LOOK.has_touched = True
        if connector.place in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told.add(connector.place)
        self._of.broker.notice(
            Level.WARNING, "bridge-failed", connection=self._of.options.name, connector=connector.uri, why=why[:200],
            retry_ms=SLOW_SCAN_MS,
        )  # fmt: skip

    def places_of(self, node_id: str) -> list[ListedPlace]:
        """Where this node answered last."""
        return [place for place, answered in self._answered.items() if answered == node_id]

    def on_time(self, _: int) -> None:
        """Try those that nothing else leads to."""
        broker = self._of.broker
        if not broker.is_running or broker.node_id_conflict.has_yielded:
            LOOK.has_touched = True
            self.due_ns = 0
            return
        for connector in self._unlinked() if self._of.options.topology_scanner_attempts else ():
            self._look(connector, is_listed=True)
        for connector in self._heard():
            self._look(connector, is_listed=False)
        self._plan()

    def _look(self, connector: Connector, *, is_listed: bool) -> None:
        """Dial a place once, unless that is under way or there is no room; whoever answers is linked."""
        of = self._of
        if of.is_crowded or any(each.connector.place == connector.place for each in of.probes):
            return
        look = Bridge(of, connector, is_listed=is_listed)
        LOOK.has_touched = True
        look.is_look = True
        of.probe(look)

    def _plan(self) -> None:
        LOOK.has_touched = True
        self.due_ns = self._of.broker.at.monotonic_ns + SLOW_SCAN_MS * NS_PER_MS
        self._of.broker.timers.add(self)

    def _unlinked(self) -> list[Connector]:
        """Places that nobody else goes on with, and whose node is not linked otherwise."""
        of = self._of
        attempts = [each for each in [*of.bridges.values(), *of.probes] if not each.is_look]
        dialled = {each.connector.place for each in attempts if each.state not in OVER or each.is_missed}
        linked = {each.node_id for each in of.bridges.values() if each.state is BridgeState.UP}
        return [
            connector
            for place, connector in self._connectors.items()
            if place not in dialled and self._answered.get(place) not in linked
        ]

    @property
    def unanswered(self) -> list[str]:
        """Names that are asked for, and of which nobody has said yet where they lead."""
        return [] if self._group is None else self._group.unanswered

    @property
    def _group(self) -> DiscoveryGroup | None:
        return self._of.broker.discovery.groups.get(self._of.options.discovery_group_ref)

    @property
    def sought(self) -> list[Bridge]:
        """Attempts to find the node of a place, where one is missing until it answers."""
        accounted = self.accounted()
        return [
            each for each in self._of.probes if not each.is_tried_once and each.connector.place[1:] not in accounted
        ]

    def accounted(self) -> set[tuple[str, int]]:
        """Places of names of which so many nodes are linked as they stand for: what does not answer there besides is
        one more address of such a node, and nobody is missing."""
        group = self._group
        if group is None or not isinstance(group.table, CandidateTable):
            return set()
        table, own = group.table, self._of.broker.node_id
        linked = {own, *(each.node_id for each in self._of.bridges.values() if each.state is BridgeState.UP)}
        at: dict[tuple[str, int], str] = {place[1:]: node_id for place, node_id in self._answered.items()}
        short = {
            name
            for name, places in table.named.items()
            if len(linked & {own if table.is_own(each) else at.get(each, "") for each in places})
            < table.nodes_count(name)
        }
        lacking = {place for name in short for place in table.named[name]}
        return {place for places in table.named.values() for place in places} - lacking

    def _heard(self) -> list[Connector]:
        """Places of nodes that live, while no bridge leads to them, or one that is over without having been lost."""
        of = self._of
        group = of.broker.discovery.groups.get(of.options.discovery_group_ref)
        there = [
            *(() if group is None else heard_in(group.table)),
            *linked_by(of.broker.peers.values(), of.options.name),
        ]
        kept = [each for each in (*of.bridges.values(), *of.probes) if each.state not in OVER or each.is_missed]
        known, dialled = {each.node_id for each in kept}, {each.connector.place for each in kept}
        known.add(of.broker.node_id)
        return [
            connector
            for node_id, connector in there
            if node_id not in known and connector.place not in dialled and of.may_dial((connector,))
        ]

    def missing(self) -> list[Connector]:
        """Places where another node should be, and of which no bridge says that it is not."""
        told = {each.node_id for each in self._of.bridges.values() if each.state not in OVER or each.is_missing}
        told.add(self._of.broker.node_id)
        accounted = self.accounted()
        return [
            each
            for each in self._unlinked()
            if self._answered.get(each.place) not in told and each.place[1:] not in accounted
        ]
