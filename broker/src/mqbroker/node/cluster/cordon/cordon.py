"""A node that is cordoned and keeps its messages: no client is let in, those that are here are sent to other nodes.

Nothing moves for it. Links between nodes stand, and others hear that it leaves with itself for an heir: so they send
what they have elsewhere where another node has the queue, as they do for one that leaves. The journal says it
(core/cluster/cordon.py), so a restart changes nothing. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.cluster.routing.policies import RoutingTarget
from mqbroker.cluster.routing.router import RoutingVerdict
from mqbroker.core.cluster.parting_times import GRACE_NS
from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
from mqbroker.node.cluster.cordon.departing_clients import LOOK_AGAIN_NS, DepartingClients, place_at

if TYPE_CHECKING:
    from mqbroker.cluster.discovery.announcement import Connector
    from mqbroker.cluster.topology import Topology
    from mqbroker.config.slices import ListenerOptions
    from mqbroker.core.cluster.cordon import Cordon
    from mqbroker.node.amqp.listeners.accepting_broker import AcceptingBroker
    from mqbroker.node.cluster.cordon.departing_clients import Doors


class CordonedConnection(Protocol):
    """A cluster connection as a node that is cordoned sees it."""

    topology: Topology

    def leaves_to(self, heir: str) -> None:
        """Tell all others which node this one leaves everything to; empty: it stays, itself: it is cordoned."""

    def is_linked(self, node_id: str) -> bool | None:
        """Whether the link to a node stands; None: there is none, and it is reached over others."""


class Cordoning:
    """See the module's docstring. It has a deadline, while clients are here."""

    def __init__(
        self,
        broker: AcceptingBroker,
        doors: Doors,
        departing: DepartingClients,
        connections: Callable[[], Iterable[CordonedConnection]],
    ) -> None:
        """`connections`: those of the cluster, which are made later."""
        self._broker: Final = broker
        self._doors: Final = doors
        self._departing: Final = departing
        self._connections: Final = connections
        self._closing_ns = 0  # clients' connections are closed from then on
        self.due_ns = 0
        self.scheduled_ns = 0

    @property
    def record(self) -> Cordon:
        """What the journal keeps of the cordon: since when it is on."""
        return self._broker.store.remotes.cordon

    def restored(self) -> None:
        """A start: it is cordoned as before. A release that knows no cordon may have begun a scale-down beside it."""
        if self.record.is_on and self._broker.store.remotes.scale_down.is_on:
            self.record.end()
        if self.record.is_on:
            self._doors.cordon()
            self._tell(self._broker.node_id)

    def begin(self) -> None:
        """This node lets no client in from now on."""
        broker = self._broker
        LOOK.has_touched = True
        self.record.begin()
        self._doors.cordon()
        self._tell(broker.node_id)
        self._departing.begin()
        broker.notice(Level.INFO, "cordoned")
        self._closing_ns = broker.at.monotonic_ns + GRACE_NS
        self._look_again(self._closing_ns)

    def end(self) -> None:
        """Clients are let in again, and those that are still here stay."""
        self._forget()
        self._tell("")
        self._doors.uncordon()
        self._broker.notice(Level.INFO, "uncordoned")

    def give_way(self) -> None:
        """A scale-down begins, and says from now on who comes in and where clients go."""
        if self.record.is_on:
            self._forget()

    def _forget(self) -> None:
        LOOK.has_touched = True
        self.record.end()
        self.due_ns = 0
        self._departing.let_go_on()

    def _tell(self, heir: str) -> None:
        for connection in self._connections():
            connection.leaves_to(heir)

    def _look_again(self, at_ns: int) -> None:
        LOOK.has_touched = True
        self.due_ns = at_ns
        self._broker.timers.add(self)

    # -- clients -------------------------------------------------------------------------------------------------------

    @property
    def _why(self) -> str:
        return f"node {self._broker.options.node.name} is cordoned: it takes no clients"

    def verdict(self, peer: AcceptedPeer) -> RoutingVerdict:
        """Where a client belongs that opens a connection."""
        chosen = self._chosen(peer)
        if chosen is None:
            return RoutingVerdict(None, f"{self._why}, and no other node says how they reach it")
        node_id, place = chosen
        return RoutingVerdict(RoutingTarget(node_id, place.host, place.port), self._why)

    def _place_of(self, peer: AcceptedPeer) -> Connector | None:
        chosen = self._chosen(peer)
        return None if chosen is None else chosen[1]

    def _chosen(self, peer: AcceptedPeer) -> tuple[str, Connector] | None:
        """Another node for this client, and how it reaches that; clients are spread over all of them."""
        places = sorted(self._places(peer.listener).items())
        return places[peer.conn % len(places)] if places else None

    def _places(self, listener: ListenerOptions) -> dict[str, Connector]:
        """By node: how clients of such a listener reach those that are there, and take clients themselves."""
        places: dict[str, Connector] = {}
        for connection in self._connections():
            for member in connection.topology.others:
                place = place_at(member, listener)
                if place is not None and not member.heir and connection.is_linked(member.node_id) is not False:
                    places[member.node_id] = place
        return places

    def on_time(self, now_ns: int) -> None:
        """Clients that are still here leave; last those of which something is not settled."""
        broker = self._broker
        LOOK.has_touched = True
        self.due_ns = 0
        if not self.record.is_on or not broker.is_running:
            return
        if not self._departing.held:
            self._departing.hold_back("this node is cordoned", now_ns - self._closing_ns)
        # What was taken in is answered first.
        broker.store.decisions.wait_for_earlier(self._close, self._departing.held)
        if any(self._departing.clients()):
            self._look_again(now_ns + LOOK_AGAIN_NS)

    def _close(self, held: dict[AcceptedPeer, None]) -> None:
        if self.record.is_on:
            self._departing.close(held, self._place_of, self._why)
