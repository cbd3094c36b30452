"""The node as a member of its cluster: what leads to the others, and what they decide of connections that come here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.node.amqp.listeners.accepting_broker import AcceptingBroker

if TYPE_CHECKING:
    from mqbroker.cluster.announcer import Announcer
    from mqbroker.cluster.notices import Member
    from mqbroker.cluster.routing.router import RoutingVerdict
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.listeners.open_answer import Greeting
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.cluster.cordon.cordon import Cordoning
    from mqbroker.node.cluster.cordon.departing_clients import DepartingClients
    from mqbroker.node.cluster.discovery.discovery import Discovery
    from mqbroker.node.cluster.discovery.node_id_conflict import NodeIdConflict
    from mqbroker.node.cluster.discovery.routing import ConnectionRouting
    from mqbroker.node.cluster.grouping.grouping import GroupingHandler
    from mqbroker.node.cluster.membership.canary import Canaries
    from mqbroker.node.cluster.membership.cluster import Cluster
    from mqbroker.node.cluster.membership.scale_down import ScalingDown


class ClusterBroker(AcceptingBroker):
    """See the module's docstring."""

    cluster: Cluster
    discovery: Discovery
    node_id_conflict: NodeIdConflict
    routing: ConnectionRouting
    canaries: Canaries
    grouping: GroupingHandler | None
    scaling_down: ScalingDown
    cordoning: Cordoning
    departing: DepartingClients

    @property
    def has_rival(self) -> bool:
        """Whether another process with our node id is heard, or was met a short time ago."""
        return self.node_id in self.discovery.conflicts or self.node_id_conflict.was_just_met

    def holds_back(self, peer: Peer) -> bool:
        """Whether it waits for a router."""
        return self.routing.is_waiting(peer)

    def route(self, peer: AcceptedPeer, *, is_late: bool = False) -> RoutingVerdict | None:
        """As the router of its listener says."""
        return self.routing.route(peer, is_late=is_late)

    def greet(self, peer: AcceptedPeer) -> Greeting:
        """What we say of ourselves where a node of the cluster opens the connection, and why it may not."""
        return self.cluster.greet(peer)

    def other_members(self) -> list[Member]:
        """Of all cluster connections."""
        return [member for each in self.cluster.connections.values() for member in each.topology.others]

    def announcer_for(self, connection: str) -> Announcer | None:
        """What the nodes of a cluster connection are told; None: there is no connection of that name."""
        known = self.cluster.connections.get(connection)
        return None if known is None else known.announcer
