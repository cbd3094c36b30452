"""One cluster connection: which nodes it knows, and its bridge to each of them.

Nodes come from static connectors (known by their place alone until they answer), from a discovery group, from what
nodes say of themselves when they dial us, and from what they tell of others. One bridge leads to each, never one to
ourselves. Source: Artemis's manual, "Clusters"; docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level, Notice
from mqbroker.cluster.address_match import AddressPrefixes
from mqbroker.cluster.announcer import Announcer
from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.cluster.discovery.entries import EntryChange, EntryChangeKind
from mqbroker.cluster.journal_formats import read_by_all
from mqbroker.cluster.lost_nodes import LostNodes
from mqbroker.cluster.notices import BindingRemoved, GroupClusterNotice, Member, Reset, ResetComplete, Version
from mqbroker.cluster.notices import ClusterNotice as Told
from mqbroker.cluster.remote_table import BINDING_NOTICES, Around, RemoteTable
from mqbroker.cluster.self_telling import SelfTelling
from mqbroker.cluster.topology import Topology, TopologyChange, TopologyChangeKind, logged
from mqbroker.config.slices import ClusterConnectionOptions
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.queue.queue import Queue
from mqbroker.journal.format import READ_VERSIONS
from mqbroker.node.cluster.forwarding.abandoned_messages import Abandoned
from mqbroker.node.cluster.membership.bridge import Bridge
from mqbroker.node.cluster.membership.listed_places import ListedPlaces
from mqbroker.node.values.bridge_states import BridgeState
from mqbroker.node.values.handshake import Hello

if TYPE_CHECKING:
    from mqbroker.node.cluster.membership.cluster import Cluster
    from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker

BRIDGES_MAX: Final = 1000  # nodes that one connection leads to; others are passed over with a notice
LEARNED: Final = (TopologyChangeKind.ADDED, TopologyChangeKind.RESTARTED, TopologyChangeKind.CHANGED)
TOLD_BY: Final = (EntryChangeKind.FOUND, EntryChangeKind.CHANGED, EntryChangeKind.RESTARTED)


class ClusterConnection:
    """See the module's docstring."""

    def __init__(self, cluster: Cluster, options: ClusterConnectionOptions) -> None:
        self.cluster = cluster
        self.broker: ClusterBroker = cluster.broker
        self.options = options
        connectors = self.broker.discovery.connectors
        self.own: Connector = connectors[options.connector_ref]
        started_ms = self.broker.node_id_conflict.own.started_ms
        self.hello = Hello(
            self.broker.node_id,
            self.broker.boot_id,
            options.name,
            self.own,
            options.connection_ttl,
            started_ms,
            term=self.broker.term,
        )
        self.listed = [connectors[name] for name in options.static_connectors]
        self.listed_places = ListedPlaces(self, self.listed)
        self.bridges: dict[str, Bridge] = {}
        self.probes: list[Bridge] = []  # to places whose nodes are not known yet
        self._is_full_told = False
        self.remotes = self.broker.store.remotes.connection(options.name, options.message_load_balancing)
        for_clients = connectors.get(options.client_connector_ref)
        own = Member(
            self.broker.node_id, self.broker.boot_id, self.broker.options.node.name, (self.own,),
            Version(self.broker.epoch, 0, self.broker.term), self.broker.options.grouping_handler.type,
            () if for_clients is None else (for_clients,),
            scale_down_group=self.broker.options.scale_down.group_name,
            journal_formats=READ_VERSIONS,
        )  # fmt: skip
        self.topology = Topology(own)
        self.announcer = Announcer(self.broker.node_id, lambda: self.topology.told_first, self._log)
        address = AddressPrefixes(options.address)
        self._around = Around(
            self.broker.node_id, options.max_hops, address, self, self._log,
            lambda: self.broker.at.monotonic_ns, cluster.known,
        )  # fmt: skip
        self.tables: dict[str, RemoteTable] = {}  # of bindings, by the node that told of them
        self._telling = SelfTelling(options, self.broker.at.monotonic_ns)
        self._lost = LostNodes(options)
        self._abandoned = Abandoned(self.broker.store, options.name, self.broker.timers.add)
        self.due_ns = 0
        self.scheduled_ns = 0

    def _log(self, told: Notice) -> None:
        self.broker.notice(told.level, told.event, connection=self.options.name, **told.fields)

    def on_time(self, now_ns: int) -> None:
        """Tell of this node again, and give up nodes that are lost for too long: what is due now."""
        if self._telling.due(now_ns):
            self.announcer.member_changed(self.topology.again())
        for node_id in self._lost.due(now_ns):
            action, count = self._lost.action, self._give_up(node_id, self._lost.action)
            self.broker.notice(Level.WARNING, "node-abandoned", connection=self.options.name, node_id=node_id,
                               action=action, messages=count)  # fmt: skip
        self._set_due()

    def _set_due(self) -> None:
        LOOK.has_touched = True
        self.due_ns = min(filter(None, (self._telling.next_due_ns, self._lost.next_due_ns)), default=0)
        self.broker.timers.add(self)

    def _node_lost(self, node_id: str) -> None:
        self._lost.lost(node_id, self.broker.at.monotonic_ns)
        self._set_due()

    def start(self) -> None:
        """Dial whoever is known by now."""
        group = self.broker.discovery.groups.get(self.options.discovery_group_ref)
        LOOK.has_touched = True
        if group is not None:
            group.table.listeners.append(self._discovered)
        queues = self._forwarded
        for queue in (*queues, *self._drained):
            self._node_lost(queue.kind.forwards_to)  # until its link stands
        self._abandoned.start(queues)
        self._set_due()
        self.listed_places.start()

    def stop(self) -> None:
        """This node stops: nobody is dialled any more. What stands is closed with all other connections."""
        self.announcer.member_changed(self.topology.leave())
        for bridge in [*self.probes, *self.bridges.values()]:
            if bridge.state is not BridgeState.UP:
                bridge.end("this node stops")

    def withdraw(self, why: str) -> None:
        """This node is none of the cluster any more: no bridges, and nobody is known. What waits for others stays."""
        LOOK.has_touched = True
        for table in self.tables.values():
            table.clear()
        self.tables.clear()
        for bridge in [*self.probes, *self.bridges.values()]:
            bridge.end(why)
        for member in self.topology.others:
            self.topology.remove(member.node_id)
        self.broker.failover_list.changed()
        self._lost = LostNodes(self.options)
        self._set_due()

    # -- who is there --------------------------------------------------------------------------------------------------

    def _discovered(self, change: EntryChange) -> None:
        said = change.announcement
        if not said.node_id:  # of DNS, which names places
            told = self.listed_places.remove if change.kind is EntryChangeKind.LOST else self.listed_places.add
            told(said.connectors[0])
        elif change.kind in TOLD_BY:
            self.learn(said.node_id, said.boot_id, said.connectors[0], said.term)
        elif change.kind is EntryChangeKind.ECHO and not said.has_yielded:
            self._ask(said.connectors[0])

    def _ask(self, connector: Connector) -> None:
        """Our own node id was heard from there: a process with it there answers
        (node/cluster/discovery/node_id_conflict.py)."""
        is_under_way = any(each.connector.place == connector.place for each in self.probes)
        if is_under_way or not self.broker.is_running or self.broker.node_id_conflict.has_yielded:
            return
        self.probe(Bridge(self, connector, is_question=True))

    def probe(self, bridge: Bridge) -> None:
        """Dial a place whose node is not known."""
        LOOK.has_touched = True
        self.probes.append(bridge)
        bridge.dial()

    def learn(self, node_id: str, boot_id: str, connector: Connector | None, term: int) -> None:
        """Somebody told of a node, or it did itself. What is said of a process that was deposed leads nowhere."""
        self.cluster.hear_term(node_id, term)
        if self.cluster.is_deposed(node_id, term):
            return
        if connector is None or node_id == self.broker.node_id or not self.broker.is_running:
            return
        if self.broker.node_id_conflict.has_yielded:
            return
        if not self.may_dial((connector,)):
            return
        is_listed = self.listed_places.has(connector)
        known = self.bridges.get(node_id)
        if known is not None:
            known.told(connector, boot_id)
            return
        probe = next((each for each in self.probes if each.connector.place == connector.place), None)
        if probe is not None and probe.state in (BridgeState.DIALLING, BridgeState.OPENING) and not probe.is_look:
            return  # it will answer for itself, sooner or later
        if probe is not None:
            probe.end("its node is known by now")
        if self.is_full:
            self.tell_full(node_id)
            return
        LOOK.has_touched = True
        bridge = self.bridges[node_id] = Bridge(self, connector, node_id, is_listed=is_listed)
        bridge.dial()

    @property
    def is_full(self) -> bool:
        """Whether further nodes are passed over."""
        return len(self.bridges) >= BRIDGES_MAX

    @property
    def is_crowded(self) -> bool:
        """Whether there are so many nodes, and places that one may be at, that further places are passed over."""
        return len(self.bridges) + len(self.probes) >= BRIDGES_MAX

    def may_dial(self, connectors: tuple[Connector, ...]) -> bool:
        """Whether a node that is reached so is one to have a link with."""
        places = {each.place for each in self.listed}
        return not self.options.allow_direct_connections_only or any(each.place in places for each in connectors)

    @property
    def _forwarded(self) -> list[Queue]:
        """What waits for nodes, of messages that came for them."""
        queues = self.broker.store.remotes.queues.values()
        return [each for each in queues if each.kind.connection == self.options.name]

    @property
    def _drained(self) -> list[Queue]:
        """Queues of clients that go to nodes, and what nodes may have of those that go elsewhere by now."""
        remotes = self.broker.store.remotes
        queues = (*remotes.drains.queues.values(), *(each.queue for each in remotes.scale_down.held))
        return [each for each in queues if each.kind.connection == self.options.name]

    @property
    def owed(self) -> list[str]:
        """Ids of nodes that messages wait for; one that a queue drains to has to answer also where that is empty."""
        queues = [*(each for each in self._forwarded if each.message_count), *self._drained]
        return list(dict.fromkeys(each.kind.forwards_to for each in queues))

    @property
    def journal_formats(self) -> tuple[int, ...]:
        """Formats of journal files that every node reads that this one has to do with (cluster/journal_formats.py)."""
        places = self.listed_places
        is_sought = bool(places.sought or places.unanswered or places.missing())
        is_untold = any(self.topology.get(node_id) is None for node_id in (*self.bridges, *self.owed))
        return read_by_all(self.topology.members, is_anybody_unknown=is_sought or is_untold)

    def deposed(self, node_id: str, term: int) -> None:
        """Another process of a node took over in this term: links with the one before end."""
        for bridge in [*self.probes, *self.bridges.values()]:
            if bridge.node_id == node_id:
                bridge.deposed(term)

    def tell_full(self, node: str) -> None:
        """A node, or a place where one may be, is passed over."""
        LOOK.has_touched = True
        if not self._is_full_told:
            self._is_full_told = True
            self.broker.notice(
                Level.ERROR, "bridges-full", connection=self.options.name, node_id=node, bridges=BRIDGES_MAX
            )

    def adopt(self, bridge: Bridge, hello: Hello) -> bool:
        """A node has answered; whether this bridge is the one that leads to it from now on."""
        if bridge.node_id:
            return True
        before = self.bridges.get(hello.node_id)
        LOOK.has_touched = True
        if before is not None and before.state is BridgeState.UP:
            if bridge.is_listed:  # also where no name led there for a while
                before.is_listed, before.is_doubtful = True, False
            return False
        if before is None and self.is_full:
            self.tell_full(hello.node_id)
            return False
        if before is not None:
            before.end("another link leads to the same node")
        self.probes.remove(bridge)
        bridge.node_id, bridge.is_look, bridge.is_doubtful = hello.node_id, False, False
        self.bridges[hello.node_id] = bridge
        return True

    # -- what bridges tell ---------------------------------------------------------------------------------------------

    def link_opened(self, bridge: Bridge) -> None:
        """The link to a node is open; what the node has is told next."""
        LOOK.has_touched = True
        if bridge.node_id not in self.tables:
            self.tables[bridge.node_id] = RemoteTable(self._around, bridge.node_id)
        self._lost.back(bridge.node_id)
        self._abandoned.end(bridge.node_id)
        self.broker.store.remotes.given_up.pop(bridge.node_id, None)
        self.cluster.changed()

    def link_lost(self, bridge: Bridge) -> None:
        """The link to a node was lost, and the node is dialled again."""
        table = self.tables.get(bridge.node_id)
        if table is not None:
            table.lost()
        self._node_lost(bridge.node_id)
        self.cluster.changed()

    def is_still_down(self, bridge: Bridge) -> None:
        """A node that was lost was dialled again, in vain."""
        table = self.tables.get(bridge.node_id)
        if table is not None:
            table.still_lost()

    def link_given_up(self, bridge: Bridge) -> None:
        """The node is not dialled until somebody tells of it: it takes no messages, and is no member any more."""
        LOOK.has_touched = True
        table = self.tables.get(bridge.node_id)
        if table is not None:
            table.stopped()
        self._spread(self.topology.remove(bridge.node_id))
        if bridge.node_id:
            self._node_lost(bridge.node_id)
            self._left(bridge.node_id)

    def _left(self, node_id: str) -> None:
        """A node owns no groups any more."""
        if self.broker.grouping is not None:
            self.broker.grouping.left(node_id)
        self.cluster.changed()

    def forget(self, node_id: str, action: str) -> int | None:
        """A person gives a node up: `action` says what becomes of messages for it. How many; None: it is unknown here.

        Raises Refused while it is connected.
        """
        bridge, grouping = self.bridges.get(node_id), self.broker.grouping
        owns_groups = grouping is not None and grouping.is_owner(node_id)
        is_owed = node_id in self.tables or self.queues_for(node_id)
        beyond = self.broker.store.remotes.owed_beyond(node_id, self.options.name)
        if bridge is None and not owns_groups and not is_owed and not beyond:
            return None
        if bridge is None:
            self._left(node_id)  # after a restart only the journal may tell of it
        elif bridge.state is BridgeState.UP:
            raise Refused("amqp:precondition-failed", f"node {node_id} is connected: stop it before it is forgotten")
        else:
            self.link_given_up(bridge)
            bridge.end("it was forgotten")
        count = self._give_up(node_id, action) + self.broker.store.remotes.give_up_beyond(beyond)
        self._lost.back(node_id)  # nothing is to be done of it by itself any more
        self._set_due()
        return count

    def _give_up(self, node_id: str, action: str) -> int:
        """Nothing is owed to a node any more; how many messages waited for it."""
        LOOK.has_touched = True
        table = self.tables.pop(node_id, None)
        if table is not None:
            table.clear()
        count = 0
        for queue in self.broker.store.remotes.handed_on(self.options.name, target=node_id):
            self.turn_back(queue, is_there=False)
        for queue in self.broker.store.remotes.drains.queues_to(node_id, self.options.name):
            count += queue.message_count
            self.broker.store.remotes.drains.end(queue)  # and is served here again
        count += self.broker.store.remotes.scale_down.give_up(node_id)
        return count + self._abandoned.begin(node_id, action)

    def queues_for(self, node_id: str) -> list[Queue]:
        """All whose messages go to that node over this connection."""
        remotes = self.broker.store.remotes
        return remotes.queues_of(node_id, self.options.name) + remotes.drained_to(node_id, self.options.name)

    def ended(self, bridge: Bridge) -> None:
        """A bridge is over and not dialled again; it leaves the probes, and its node has none."""
        LOOK.has_touched = True
        if bridge in self.probes:
            self.probes.remove(bridge)
        if self.bridges.get(bridge.node_id) is bridge:
            del self.bridges[bridge.node_id]

    # -- notices -------------------------------------------------------------------------------------------------------

    def heard(self, bridge: Bridge, notice: Told) -> None:
        """A node told something. Raises PeerFault of the link."""
        grouping = self.broker.grouping
        if isinstance(notice, GroupClusterNotice):
            if grouping is not None:
                grouping.heard(self.announcer, bridge.node_id, notice)
        elif isinstance(notice, BINDING_NOTICES):
            table, peer = self.tables[bridge.node_id], bridge.peer
            table.hear(notice)
            if isinstance(notice, Reset) and grouping is not None:
                grouping.missed()
            if isinstance(notice, ResetComplete) and peer is not None:
                peer.forwards.begin()
            if isinstance(notice, ResetComplete | BindingRemoved) and peer is not None:
                peer.forwards.tidy_all()
        else:
            self._spread(self.topology.hear(notice))

    def _spread(self, change: TopologyChange | None) -> None:
        """Log it, tell the others, and dial whoever is new."""
        if change is None:
            return
        told, member = logged(change), change.member
        if change.kind is TopologyChangeKind.GONE:
            self.remotes.leaves_to(member.node_id, "")
            self._left(member.node_id)
        self.cluster.changed()
        if told is not None:
            self._log(told)
        if change.spread is not None:
            self.announcer.member_changed(change.spread)
        if change.kind in LEARNED:
            self.remotes.leaves_to(member.node_id, member.heir)
            connector = member.connectors[0] if member.connectors else None
            self.learn(member.node_id, member.boot_id, connector, member.version.term)

    # -- Remotes of the tables: routing is told, and neighbours further on ---------------------------------------------

    def add(self, binding: RemoteBinding) -> None:
        """Another node has a queue."""
        bridge = self.bridges.get(binding.target)
        if bridge is not None and bridge.peer is not None:
            bridge.peer.forwards.told(binding.cluster_name)
        LOOK.has_touched = True
        member = self.topology.get(binding.node_id)
        binding.heir = "" if member is None else member.heir
        self.remotes.add(binding)
        self.announcer.remote_added(binding)

    def remove(self, binding: RemoteBinding) -> None:
        """Another node has a queue no longer."""
        LOOK.has_touched = True
        self.remotes.remove(binding)
        self.announcer.remote_removed(binding)

    def replace(self, before: RemoteBinding, binding: RemoteBinding) -> None:
        """The same queue of another node on other terms. Nobody is told that it is gone."""
        LOOK.has_touched = True
        self.remotes.remove(before)
        self.add(binding)

    def changed(self, binding: RemoteBinding) -> None:
        """It has other consumers, or is reached or not. One that was given up, or refused, is there again."""
        LOOK.has_touched = True
        if binding.cluster_name in self.broker.store.remotes.by_name:
            self.remotes.changed(binding)
            self.announcer.remote_changed(binding)
        elif binding.is_connected:
            self.add(binding)

    def leaves_to(self, heir: str) -> None:
        """This node leaves everything to that one, empty: it stays, itself: it is cordoned. All others are told."""
        self.announcer.member_changed(self.topology.leaves_to(heir))

    # -- GroupingConnection --------------------------------------------------------------------------------------------

    def is_linked(self, node_id: str) -> bool | None:
        """Whether the link to a node stands; None: there is none, and it is reached over others."""
        bridge = self.bridges.get(node_id)
        return None if bridge is None else bridge.state is BridgeState.UP

    # -- messages ------------------------------------------------------------------------------------------------------

    def serve(self, queue: Queue) -> None:
        """A queue of this connection goes to another node from now on."""
        bridge = self.bridges.get(queue.kind.forwards_to)
        if bridge is not None and bridge.peer is not None:
            bridge.peer.forwards.attach(queue)

    def look_at_drain(self, queue: Queue) -> None:
        """What nobody has told of may have emptied a queue that drains over this connection."""
        bridge = self.bridges.get(queue.kind.forwards_to)
        forwards = None if bridge is None or bridge.peer is None else bridge.peer.forwards
        if forwards is not None and queue in forwards.consumers:
            forwards.tidy(forwards.consumers[queue])

    def let_go(self, queue: Queue, *, is_closed: bool) -> None:
        """A queue has no link over this connection from now on; `is_closed`: the other node forgets what came of it."""
        bridge = self.bridges.get(queue.kind.forwards_to)
        forwards = None if bridge is None or bridge.peer is None else bridge.peer.forwards
        if forwards is not None and queue in forwards.consumers:
            forwards.let_go(forwards.consumers[queue], is_closed=is_closed)

    def is_without_credit(self, queue: Queue) -> bool:
        """Whether a queue has a link over this connection whose node takes nothing more for now."""
        bridge = self.bridges.get(queue.kind.forwards_to)
        consumers = {} if bridge is None or bridge.peer is None else bridge.peer.forwards.consumers
        consumer = consumers.get(queue)
        return consumer is not None and not consumer.is_arriving and not consumer.link.credit

    def turn_back(self, queue: Queue, *, is_there: bool) -> None:
        """A queue that was handed on goes to its owner again; `is_there`: what the node that it went to may have waits
        for its answer, while this one leaves."""
        remotes = self.broker.store.remotes
        before = queue.kind.forwards_to
        self.let_go(queue, is_closed=False)
        held = remotes.turn_back(queue, is_there=is_there and remotes.scale_down.is_on)
        self.broker.notice(Level.INFO, "scale-down-takes-back", queue=queue.kind.name, node_id=before,
                           apart=0 if held is None else held.message_count)  # fmt: skip

    def call_off(self, queue: Queue, *, is_forced: bool) -> None:
        """A drain over this connection is to end."""
        bridge = self.bridges.get(queue.kind.forwards_to)
        self.broker.store.remotes.drains.call_off(queue, is_forced=is_forced)
        if bridge is not None and bridge.peer is not None:
            bridge.peer.forwards.called_off(queue, is_forced=is_forced)
