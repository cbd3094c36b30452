"""The node: `step(inputs, at) -> Batch`. What one loop turn gathered makes one call.

Order within a step: inputs as given; timers; a piece of a long request; deliveries; one piece of upkeep; then the
append is sealed and what must go out is collected. What waits for the append is a decision (core/address/decisions.py)
and goes out in the step that gets `Synced`. Source: docs/ARCHITECTURE.md, "The core".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mqbroker.base.errors import Bug
from mqbroker.base.notice import Level
from mqbroker.base.time import At
from mqbroker.config.compare import in_force
from mqbroker.config.slices import BrokerOptions
from mqbroker.core.address.message_observer import MessageObserver
from mqbroker.core.paging.upkeep import upkeep
from mqbroker.core.queue.queue import Queue
from mqbroker.core.store.clock_steps import take_time
from mqbroker.core.store.commits import Commits
from mqbroker.core.store.store import Store
from mqbroker.journal.append import Append
from mqbroker.journal.recovered import Recovered
from mqbroker.node.amqp.peers.large_messages import LargeMessages
from mqbroker.node.amqp.peers.turns import RECENT_NS
from mqbroker.node.broker import eviction
from mqbroker.node.broker.chores import Chores
from mqbroker.node.broker.deployment import deploy
from mqbroker.node.broker.local import LocalSessions
from mqbroker.node.broker.loss_watch import LossWatch
from mqbroker.node.broker.quota_watch import QuotaWatch
from mqbroker.node.broker.reloads import Reloads
from mqbroker.node.broker.snapshots import Snapshots
from mqbroker.node.broker.stopping import Stopping
from mqbroker.node.broker.surroundings import NodeSurroundings
from mqbroker.node.broker.termini import Termini
from mqbroker.node.cluster.cordon.cordon import Cordoning
from mqbroker.node.cluster.cordon.departing_clients import DepartingClients
from mqbroker.node.cluster.departure.next_heir import NextHeir
from mqbroker.node.cluster.discovery.discovery import Discovery
from mqbroker.node.cluster.discovery.node_id_conflict import NodeIdConflict
from mqbroker.node.cluster.discovery.routing import ConnectionRouting
from mqbroker.node.cluster.grouping.group_gate import GroupGate
from mqbroker.node.cluster.grouping.grouping import GroupingHandler
from mqbroker.node.cluster.membership.canary import Canaries
from mqbroker.node.cluster.membership.cluster import Cluster
from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker
from mqbroker.node.cluster.membership.scale_down import ScalingDown
from mqbroker.node.values import inputs as given
from mqbroker.node.values.accounts import Accounts
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import DeleteJournalSegment, Effect
from mqbroker.node.values.jobs import Jobs
from mqbroker.node.values.node_states import CLOSED, RUNS, NodeState

if TYPE_CHECKING:
    from mqbroker.amqp.events import Attaching
    from mqbroker.amqp.links import LinkBase
    from mqbroker.cluster.routing.router import RoutingVerdict
    from mqbroker.node.amqp.links.terminus_expiry import ExpiryScope
    from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
    from mqbroker.node.amqp.peers.peer import Peer

# What one step hands out before it lets others have a turn: messages, or pieces and looks that take as long. Less where
# several queues have some, as those who wait for a message of one would wait for all of the other's.
DISPATCH_MAX: Final = 20_000
DISPATCH_BESIDE_MAX: Final = 6_000
PIECE_COST: Final = 200
LOOK_COST: Final = 100
FEW_BYTES: Final = 16 << 10  # of messages: a socket takes them in no time

Operations = Callable[["Broker", given.AdminRequest], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a node is besides its options.

    `users` maps names to verifiers (config/users.py); `operations` answers admin requests (admin/); `secret` are random
    bytes that nobody else knows, new in each process; `large_files` maps the ids of files of large messages that are
    there to their sizes in bytes; `cluster_key` is made of the cluster's secret, where there are discovery groups;
    `observers` hear of all messages, those that recovery found as well.
    """

    node_id: str
    users: dict[str, Any]
    operations: Operations
    secret: bytes = field(repr=False)
    large_files: Mapping[int, int] = field(default_factory=dict)
    cluster_key: bytes = field(default=b"", repr=False)
    boot_id: str = ""
    observers: tuple[MessageObserver, ...] = ()


class Broker(ClusterBroker):
    """One node: everything below `io/`, behind one function."""

    def __init__(self, options: BrokerOptions, recovered: Recovered, setup: Setup, at: At) -> None:
        super().__init__(options, recovered, (setup.node_id, setup.boot_id, setup.secret), at)
        self.offered = options  # as the file of options says by now
        self.cluster = Cluster(self, setup.cluster_key)
        self.accounts = Accounts(setup.users, setup.secret, self.cluster.verifier)
        self.local = LocalSessions(self)
        around = NodeSurroundings(self, self.local)
        self.store = Store(options.limits, options.address_settings, self.journal, around, at)
        for each in setup.observers:
            self.store.observe_messages(each)
        self.store.load(recovered, setup.large_files)
        self.commits = Commits(self.store)
        self.jobs, self.reloads, self.watches = Jobs(), Reloads(self), (QuotaWatch(self), LossWatch(self))
        for finding in recovered.findings:
            self.event_ring.add(finding, at.wall_ms)
        self.termini, self.stopping, self.snapshots = Termini(self), Stopping(self), Snapshots(self)
        self.departing = DepartingClients(self)
        self.cordoning = Cordoning(self, self.stopping, self.departing, self.cluster.connections.values)
        locked = partial(eviction.lock, self)
        self.scaling_down = ScalingDown(self, self.stopping, self.departing, locked, NextHeir(self))
        self.chores = Chores(self, [self.store.overdue, self.store.remains, self.reloads, self.scaling_down])
        self._several_until_ns = 0  # so long several queues count as having messages
        self.endings: tuple[given.CertificateExpiry, ...] = ()  # of certificates
        self._operations = setup.operations
        self.large = LargeMessages(self, setup.large_files)
        self.node_id_conflict, self.canaries = NodeIdConflict(self, self.cluster.withdraw), Canaries(self)
        self.discovery = Discovery(self, self.node_id_conflict, setup.cluster_key)
        self.routing = ConnectionRouting(self, self.discovery, self.cluster.others_of, recovered)
        self.grouping = None
        if self.store.grouping is not None:
            connections = self.cluster.connections.values
            self.grouping = GroupingHandler(self, self.store.grouping, recovered, connections)
            self.gate = GroupGate(self.grouping)
        self._handlers = self._handlers_of_inputs()
        list(deploy(self, options, []))  # all pieces of it
        self.cluster.start(recovered)
        self.cordoning.restored()
        self.scaling_down.restored()
        self.canaries.start()

    def _handlers_of_inputs(self) -> dict[type, Callable[[Any], None]]:
        return {
            given.Synced: self._synced,
            given.ConnectionAccepted: self.turns.accepted,
            given.Connected: self.cluster.connected,
            given.Closed: self._closed,
            given.WriteBlocked: self._write_blocked,
            given.Done: self._done,
            given.Failed: self._failed,
            given.UnsyncedBytes: self._disk,
            given.Datagram: self._heard,
            given.Slipped: self.containment.slipped,
            given.Resolved: self.discovery.resolved,
            given.Looked: self.discovery.looked,
            given.JournalSpace: self._space,
            given.CertificatesInUse: self._certificates_in_use,
            given.AdminRequest: self._admin,
            given.AdminClosed: self._admin_closed,
            given.UsersChanged: self.reloads.users_changed,
            given.ClusterKeyChanged: self._cluster_key_changed,
            given.OptionsChanged: self.reloads.options_changed,
            given.Stop: self.stopping.stop,
        }

    def step(self, inputs: list[given.Input], at: At) -> Batch:
        """Take everything in that happened since the last call, and say what is to be done. Never blocks."""
        self.at = at
        take_time(self.store, at)
        handlers = self._handlers
        for each in inputs:
            if isinstance(each, given.BytesReceived):
                self._received(each)  # nearly all are: without a look into the table
            else:
                handlers[type(each)](each)
        if self.stopping.state is NodeState.STOPPED:
            return self._batch(None, None, more=False)
        self.turns.go_on()
        more = self.timers.fire(at.monotonic_ns)
        if self.store.memory.is_tight:
            self.store.retroactive.make_room()
        if self.starved:
            self.relieve()
        more = self.chores.run() or more
        more = self.jobs.run(is_held=self.is_disk_full, is_running=self.is_running) or more
        if self.large.downloads:
            self.large.pump(self.touched)
        more = self.failover_list.tell() or more
        more = self._dispatch() or more
        if self.store.ended:
            self.termini.end_queues()
        if self.store.meters.roomy:
            self.relieve_addresses()
        self.local.finish()
        if self.store.paging.queues:
            self.store.paging.run()
        more = upkeep(self.store) or more
        if self.cluster.competing_waits.places:
            more = self.cluster.competing_waits.look(self.store.dirty) or more
        if self.store.remotes.scale_down.changed:
            self.store.remotes.scale_down.write()
        for segment in self.journal.deletable():
            if not self.snapshots.keeps_back(segment):
                self.effects.append(DeleteJournalSegment(self.completions.next_id(), segment))
        append = self._seal()
        self._collect()
        return self._batch(append, self.timers.wake_at_ns, more=more or self.turns.is_due)

    def _batch(self, append: Append | None, wake_at_ns: int | None, *, more: bool) -> Batch:
        effects, self.effects = self.effects, []
        notices, self._notices = self._notices, []
        return Batch(append, effects, wake_at_ns, notices, more)

    # -- the end of a step ---------------------------------------------------------------------------------------------

    def _dispatch(self) -> bool:
        """Deliver what can be delivered; whether more could be after others had a turn."""
        dirty, now_ns = self.store.dirty, self.at.monotonic_ns
        left = DISPATCH_BESIDE_MAX if now_ns < self._several_until_ns else DISPATCH_MAX
        busy: Queue | None = None
        while dirty and left > 0:
            queue = next(iter(dirty))
            del dirty[queue]
            went = self.store.dispatch(queue, left)
            pieces, looks = queue.dispatcher.pieces, queue.dispatcher.looks
            left -= went + pieces * PIECE_COST + looks * LOOK_COST
            self.counters.delivered += queue.dispatcher.handed_out
            if left <= 0 and queue.ready_count:
                dirty[queue] = None
            if pieces:
                if busy is not None and busy is not queue:
                    self._several_until_ns = now_ns + RECENT_NS
                busy = queue
        if self.draining:
            self.end_drains()
        for peer in list(self.touched.values()):
            peer.handle_events()  # a delivery may have ended its link: what that had goes to others
        if self.next_turn:
            dirty.update(self.next_turn)
            self.next_turn.clear()
        return bool(dirty)

    def _seal(self) -> Append | None:
        self.stopping.end_journal()
        decisions = self.store.decisions
        append = self.journal.take(decisions.is_forming)
        if append is not None:
            decisions.seal(append.position)
        elif decisions.is_forming:
            raise Bug("a decision waits for an append that does not exist")
        if self.snapshots.wanted is not None:
            self.snapshots.sealed()
        return append

    def _collect(self) -> None:
        touched, self.touched = self.touched, {}
        few: list[Effect] = []
        answers: list[Effect] = []
        many: list[Effect] = []
        for peer in touched.values():
            send = peer.collect()
            if send is not None:
                # A few messages leave before answers to those who sent them: their way is the longer one. Many leave
                # after: to put them into a socket takes as long as their sender needs for the next ones.
                sends = answers if not peer.out_bytes else few if peer.out_bytes <= FEW_BYTES else many
                sends.append(send)
            peer.out_bytes = 0
        # Most steps have one of these, and to join an empty list costs more than to find it empty.
        if few:
            self.effects += few
        if answers:
            self.effects += answers
        if many:
            self.effects += many
        if self.closing:
            self.effects.extend(self.closing.values())
            self.closing.clear()

    # -- inputs --------------------------------------------------------------------------------------------------------

    def _received(self, given_: given.BytesReceived) -> None:
        peer = self.peers.get(given_.conn)
        turns = self.turns
        if peer is None or peer.in_turns or (turns.left <= 0 and not peer.admits()):
            turns.received(given_.conn, given_.data)
            return
        turns.left -= peer.received(given_.data)

    def _synced(self, given_: given.Synced) -> None:
        self.commits.synced(given_.position)

    def _closed(self, given_: given.Closed) -> None:
        peer = self.peers.get(given_.conn)
        if peer is not None:
            peer.transport_gone(given_.why)
        elif not self.turns.gone(given_.conn, given_.why):
            self.cluster.closed(given_)

    def _write_blocked(self, given_: given.WriteBlocked) -> None:
        peer = self.peers.get(given_.conn)
        if peer is not None:
            peer.blocked(given_.is_blocked)

    def _done(self, given_: given.Done) -> None:
        self.completions.done(given_.id, given_.result)

    def _failed(self, given_: given.Failed) -> None:
        if not self.completions.failed(given_.id, given_.why):
            self.notice(Level.WARNING, "effect-failed", id=given_.id, why=given_.why)

    def _disk(self, given_: given.UnsyncedBytes) -> None:
        was_full, limit = self.is_disk_full, self.options.journal.disk_pending_bytes_max
        self.is_disk_full = given_.pending_bytes > limit
        if self.is_disk_full != was_full:
            for peer in self.peers.values():
                peer.pause_if_needed()
        self.relieve()

    def _space(self, given_: given.JournalSpace) -> None:
        self.snapshots.space(is_scarce=given_.is_scarce or given_.is_low)
        if given_.is_low == self.store.memory.is_shut:
            return
        self.store.memory.is_shut = given_.is_low
        event = "disk-nearly-full" if given_.is_low else "disk-has-room"
        self.notice(Level.ERROR if given_.is_low else Level.INFO, event, free_bytes=given_.free_bytes)
        self.relieve()

    def _heard(self, given_: given.Datagram) -> None:
        self.containment.heard(self.discovery.heard, given_)

    def _certificates_in_use(self, given_: given.CertificatesInUse) -> None:
        self.endings = given_.endings

    def _admin(self, given_: given.AdminRequest) -> None:
        self._operations(self, given_)

    def _admin_closed(self, given_: given.AdminClosed) -> None:
        self.local.closed(given_.session)
        self.snapshots.closed(given_.session)

    def take_users(self, users: Mapping[str, Any]) -> None:
        """Who may log in from now on, the nodes of the cluster as well."""
        self.accounts = Accounts(users, self.node_secret, self.cluster.verifier)

    def _cluster_key_changed(self, given_: given.ClusterKeyChanged) -> None:
        self.discovery.key_changed(given_)
        self.cluster.key_changed(given_)
        self.take_users(self.accounts.users)

    def take_options(self, options: BrokerOptions) -> None:
        """What may change while the process runs; the rest waits for a restart. What there is follows (reloads.py)."""
        self.offered = options
        self.store.settings.change(in_force(self.options.address_settings, options.address_settings))
        self.permissions.change(options.security_settings)
        self.store.quotas.change(options.limits)

    # -- what the rooms below leave to this one ------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the node begins anything new; else it is on its way to its end."""
        return self.stopping.state in RUNS

    @property
    def is_to_stop(self) -> bool:
        """Whether it was asked to stop, also while its messages go to another node first."""
        return self.stopping.state not in (NodeState.RUNNING, NodeState.CORDONED)

    def route(self, peer: AcceptedPeer, *, is_late: bool = False) -> RoutingVerdict | None:
        """As the router of its listener says, but to nobody's node where this one lets no client in."""
        if self.stopping.state in CLOSED and peer.is_client:
            who_cordons = self.cordoning if self.cordoning.record.is_on else self.scaling_down
            return who_cordons.verdict(peer)
        return super().route(peer, is_late=is_late)

    def attach(self, peer: AcceptedPeer, event: Attaching) -> None:
        """A peer asks for a link: accept or refuse that."""
        self.termini.attach(peer, event)

    def link_detached(self, peer: Peer, link: LinkBase) -> None:
        """A link is over, and its end knows it."""
        self.termini.detached(peer, link)

    def scope_ended(self, peer: Peer, scope: ExpiryScope) -> None:
        """A session or a connection is over, and all of its links."""
        self.termini.ended(peer, scope)
