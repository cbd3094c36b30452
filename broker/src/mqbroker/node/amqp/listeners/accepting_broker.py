"""The node as those see it who come to its listeners: who logs in, opens a connection and asks for links."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
from mqbroker.node.amqp.listeners.containers import Containers
from mqbroker.node.amqp.listeners.failover_list import FailoverList
from mqbroker.node.amqp.listeners.logins import Logins
from mqbroker.node.amqp.listeners.rated_peer import RatedPeer
from mqbroker.node.amqp.peers.amqp_broker import AmqpBroker
from mqbroker.node.values.effects import CloseConnection
from mqbroker.node.values.repeated_notices import Seldom

if TYPE_CHECKING:
    from mqbroker.amqp.events import Attaching
    from mqbroker.base.time import At
    from mqbroker.cluster.announcer import Announcer
    from mqbroker.cluster.notices import Member
    from mqbroker.cluster.routing.router import RoutingVerdict
    from mqbroker.config.slices import BrokerOptions
    from mqbroker.journal.recovered import Recovered
    from mqbroker.node.amqp.listeners.open_answer import Greeting
    from mqbroker.node.values.inputs import ConnectionAccepted


class AcceptingBroker(AmqpBroker):
    """See the module's docstring."""

    def __init__(self, options: BrokerOptions, recovered: Recovered, ids: tuple[str, str, bytes], at: At) -> None:
        super().__init__(options, recovered, ids, at)
        self.listeners = {listener.name: listener for listener in options.listeners}
        self.logins, self.containers = Logins(self), Containers()
        self.failures = Seldom(self, "connection-failed", "peer", Level.INFO)  # of nodes that dial us
        self.failover_list = FailoverList(self.other_members, is_in_cluster=bool(options.cluster_connections))

    def admit(self, accepted: ConnectionAccepted) -> None:
        """A connection came to a listener: it is a peer from now on, or is closed again."""
        self.containment.admit(self._admit, accepted)

    def _admit(self, accepted: ConnectionAccepted) -> None:
        listener = self.listeners.get(accepted.listener)
        peer = None
        if listener is not None and self.is_running:
            kind = RatedPeer if listener.frames_per_second_max else AcceptedPeer
            peer = kind(self, accepted, listener)
        LOOK.has_touched = True
        if peer is None:
            self.effects.append(CloseConnection(accepted.conn, 0))
        else:
            self.counters.connections += 1
            self.peers[accepted.conn] = peer

    @abstractmethod
    def route(self, peer: AcceptedPeer, *, is_late: bool = False) -> RoutingVerdict | None:
        """Where it belongs; None: it has to wait, and comes back as `opening.resume`. `is_late`: it has waited."""

    @abstractmethod
    def greet(self, peer: AcceptedPeer) -> Greeting:
        """What we say of ourselves where a node of the cluster opens the connection, and why it may not."""

    @abstractmethod
    def attach(self, peer: AcceptedPeer, event: Attaching) -> None:
        """It asks for a link: accept or refuse that."""

    @abstractmethod
    def other_members(self) -> list[Member]:
        """Members of the cluster, without this node."""

    @abstractmethod
    def announcer_for(self, connection: str) -> Announcer | None:
        """What the nodes of a cluster connection are told; None: there is no connection of that name."""
