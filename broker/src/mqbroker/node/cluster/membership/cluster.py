"""The cluster as this node takes part in it: its cluster connections, and who may reach it over a cluster listener.

Without cluster connections there is nothing here that costs anything. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.cluster.node_id_conflict import DEPOSED, NOT_ALLOWED
from mqbroker.cluster.notices import Member
from mqbroker.cluster.remote_table import RemoteTable
from mqbroker.cluster.terms import HighestTerms
from mqbroker.config.users import UserVerifier
from mqbroker.core.queue.queue import Queue
from mqbroker.journal.format import READ_VERSIONS
from mqbroker.journal.recovered import Recovered
from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer, nodes_among
from mqbroker.node.cluster.forwarding.competing_queues import CompetingWaits
from mqbroker.node.cluster.membership.bridge import Bridge
from mqbroker.node.cluster.membership.cluster_connection import ClusterConnection
from mqbroker.node.cluster.membership.cluster_watcher import ClusterWatcher
from mqbroker.node.values.credentials import verifier_of
from mqbroker.node.values.handshake import hello_of
from mqbroker.node.values.inputs import Closed, ClusterKeyChanged, Connected

if TYPE_CHECKING:
    from mqbroker.node.amqp.listeners.open_answer import Greeting
    from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker

ANYWHERE = ("", "0.0.0.0", "::")


class Cluster:
    """See the module's docstring."""

    def __init__(self, broker: ClusterBroker, key: bytes) -> None:
        self.broker = broker
        self.key = key
        options = broker.options
        self.verifier: UserVerifier | None = None
        if options.cluster_connections:
            self.verifier = verifier_of(key, broker.node_secret)
        listeners = sorted(
            (each for each in options.listeners if each.kind == "cluster"), key=lambda each: not each.has_tls
        )
        self.listener = listeners[0] if listeners else None  # whose certificate and network card are ours outwards
        local = "" if self.listener is None else self.listener.local_bind_address
        self.local_bind_address = None if local in ANYWHERE else local
        self.connections: dict[str, ClusterConnection] = {}
        self.known: dict[str, list[RemoteTable]] = {}  # by the name of a queue in the cluster: which nodes tell of it
        self.competing_waits = CompetingWaits()
        self._dialled: dict[int, Bridge] = {}
        self._conn = 0
        self._terms = HighestTerms()

    def start(self, recovered: Recovered) -> None:
        """Make the connections, once everything else of the node is there."""
        LOOK.has_touched = True
        for options in self.broker.options.cluster_connections:
            self.connections[options.name] = ClusterConnection(self, options)
        if self.connections:
            remotes = self.broker.store.remotes
            remotes.on_queue = self._serve
            remotes.marks.begin(self.broker.store, recovered, self.broker.boot_id)
            remotes.reserve_ids()
            self._watch()
        self.broker.store.remotes.scale_down.restore_held()
        for connection in self.connections.values():
            connection.start()
        self.changed()

    def changed(self) -> None:
        """Members of the cluster, or links to them, are other ones."""
        self.broker.failover_list.changed()
        if self.broker.grouping is not None:
            self.broker.grouping.look()
        self.broker.routing.look()

    def _watch(self) -> None:
        """Tell of all queues that there are, and of changes from now on."""
        store = self.broker.store
        watcher = ClusterWatcher(
            lambda: [each.announcer for each in self.connections.values()], self.broker.node_id, self.broker.grouping
        )
        for queue in store.queues.values():
            if not queue.kind.is_internal:
                watcher.queue_added(queue)
        store.observe_queues(watcher)

    def others_of(self, connection: str) -> list[Member]:
        """The other members that a connection knows. Connections are made after most else of the node."""
        known = self.connections.get(connection)
        return [] if known is None else known.topology.others

    def withdraw(self, why: str) -> None:
        """This node is none of the cluster any more."""
        for connection in self.connections.values():
            connection.withdraw(why)

    def stop(self) -> None:
        """The node stops: all cluster connections end."""
        for connection in self.connections.values():
            connection.stop()

    # -- inputs --------------------------------------------------------------------------------------------------------

    def next_conn(self, bridge: Bridge) -> int:
        """An id for a connection that the bridge opens: below zero, so it never meets one of an accepted connection."""
        LOOK.has_touched = True
        self._conn -= 1
        self._dialled[self._conn] = bridge
        return self._conn

    def forget(self, conn: int) -> bool:
        """Whether an attempt was under way, of which nothing is wanted any more."""
        LOOK.has_touched = True
        return self._dialled.pop(conn, None) is not None

    def connected(self, given: Connected) -> None:
        """A connection that we opened stands."""
        bridge = self._dialled.pop(given.conn, None)
        if bridge is not None:
            bridge.connected(given)

    def closed(self, given: Closed) -> None:
        """A connection that we opened does not stand, and never did."""
        LOOK.has_touched = True
        bridge = self._dialled.pop(given.conn, None)
        if bridge is not None:
            bridge.failed(given.why)

    def key_changed(self, given: ClusterKeyChanged) -> None:
        """The cluster has another secret. Links that stand stay; new ones need it."""
        self.key = given.key
        if self.verifier is not None:
            self.verifier = verifier_of(given.key, self.broker.node_secret)

    def _serve(self, queue: Queue) -> None:
        connection = self.connections.get(queue.kind.connection)
        if connection is not None:
            connection.serve(queue)

    def call_off(self, queue: Queue, *, is_forced: bool) -> None:
        """A queue that drains is served here again, once the other node has answered for what it may have; `is_forced`:
        at once."""
        connection = self.connections.get(queue.kind.connection)
        if connection is not None:
            connection.call_off(queue, is_forced=is_forced)
        else:
            self.broker.store.remotes.drains.call_off(queue, is_forced=is_forced)

    def look_at_drain(self, queue: Queue) -> None:
        """What nobody has told of may have emptied a queue that drains, or answered for what was sent of it."""
        connection = self.connections.get(queue.kind.connection)
        if connection is not None:
            connection.look_at_drain(queue)
        self.broker.store.remotes.drains.look(queue)

    # -- those who dial us ---------------------------------------------------------------------------------------------

    def greet(self, peer: AcceptedPeer) -> Greeting:
        """What the open of a node that dials us is answered with; a node that may dial us is dialled by us."""
        opened = peer.connection.peer_open
        hello = hello_of(opened) if opened is not None and peer.listener.kind == "cluster" else None
        if hello is None:
            return {}, None
        connection = self.connections.get(hello.connection)
        if connection is None:
            why = f"there is no cluster connection {hello.connection!r} here: it has one name on all nodes"
            return {}, ("amqp:not-found", why)
        broker, ours = self.broker, connection.hello
        is_rival = hello.node_id == broker.node_id and hello.boot_id != broker.boot_id
        if is_rival:
            broker.node_id_conflict.met(hello, peer.far)
        if broker.node_id_conflict.has_yielded:
            return ours._replace(has_yielded=True).properties if is_rival else {}, (
                NOT_ALLOWED,
                broker.node_id_conflict.why,
            )
        if self.is_deposed(hello.node_id, hello.term):
            return {}, (NOT_ALLOWED, DEPOSED)
        peer.hello = hello
        if hello.ttl_ms:
            peer.patience = peer.patience._replace(idle_ms=hello.ttl_ms)
        connection.learn(hello.node_id, hello.boot_id, hello.connector, hello.term)
        return ours._replace(ttl_ms=0).properties, None

    # -- terms ---------------------------------------------------------------------------------------------------------

    def is_deposed(self, node_id: str, term: int) -> bool:
        """Whether this is said of, or by, a process of a node of which another is, or was, in a higher term."""
        return term < self._terms.of(node_id)

    def hear_term(self, node_id: str, term: int) -> None:
        """A process of another node is in this term: what stands with those in lower ones ends."""
        if node_id == self.broker.node_id or not self._terms.hear(node_id, term):
            return
        for peer, hello in nodes_among(self.broker.peers.values()):
            if hello.node_id == node_id and hello.term < term:
                peer.close_at_once(NOT_ALLOWED, DEPOSED)
        for connection in self.connections.values():
            connection.deposed(node_id, term)

    @property
    def journal_formats(self) -> tuple[int, ...]:
        """Formats of journal files that all nodes read with which this one makes clusters, itself among them."""
        said = [each.journal_formats for each in self.connections.values()]
        return tuple(one for one in READ_VERSIONS if all(one in each for each in said))

    @property
    def inbound(self) -> set[str]:
        """Nodes whose links to this one stand."""
        return {hello.node_id for _, hello in nodes_among(self.broker.peers.values())}
