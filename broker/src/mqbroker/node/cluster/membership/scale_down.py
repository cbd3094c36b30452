"""A node that leaves: no client is let in, and all queues that can drain to one other node, while this one runs.

Clients that are here get nothing more, and may go on for GRACE_NS; then their connections are closed with a redirect to
the heir, and queues begin to drain, some in a step. Who has not settled what it took stays for STAY_NS more, and so do
the queues of that (departing_clients.py). Links between nodes stand. What was begun goes on after a restart, since the
journal says it (core/cluster/scale_down.py). Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from mqbroker.amqp import frame_costs
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.routing.policies import RoutingTarget
from mqbroker.cluster.routing.router import RoutingVerdict
from mqbroker.core.cluster.drains import hindrance_of
from mqbroker.core.cluster.duplicate_cargo import DuplicateCargo
from mqbroker.core.cluster.parting_times import CARGO_NS, GRACE_NS, STAY_NS
from mqbroker.core.cluster.scale_down import ScaleDown
from mqbroker.core.queue.queue import Queue
from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
from mqbroker.node.cluster.cordon.departing_clients import (
    LOOK_AGAIN_NS,
    DepartingClients,
    Doors,
    place_at,
)

if TYPE_CHECKING:
    from mqbroker.cluster.discovery.announcement import Connector
    from mqbroker.cluster.heirs import HeirCandidate
    from mqbroker.cluster.notices import Member
    from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker

STAY_PART: Final = 4  # of the time that a stop has nobody stays longer than one such part
CARGO_LOOK_NS: Final = 20 * NS_PER_MS
CARGO_WORK: Final = 20 * frame_costs.REVOKED  # of a message with ids


class Idle(Protocol):
    """Since when nothing of each queue has gone, although something waits (idle_queues.py)."""

    def idle_ns(self, queue: Queue) -> int:
        """For how long that is so; 0 where it is not."""

    def is_late(self, queue: Queue) -> bool:
        """Whether it is for as long as another node is waited for to take the place of the heir."""

    def due_count(self, queue: Queue) -> int:
        """Messages that wait to go, or for an answer."""

    def is_without_credit(self, queue: Queue) -> bool:
        """Whether it has a link, whose node takes nothing more for now."""


class Following(Protocol):
    """Who is the next heir, and when (next_heir.py)."""

    @property
    def idle(self) -> Idle:
        """Since when nothing of each queue has gone."""

    @property
    def stands_ns(self) -> int:
        """For how long nothing has gone, to the heir or a third node."""

    def begin(self) -> None:
        """It leaves from now on, or the heir is another one."""

    def look(self, now_ns: int) -> HeirCandidate | None:
        """Who is to be the heir from now on; None: it stays the same."""


class ScalingDown:
    """See the module's docstring. It is a chore, and has a deadline."""

    def __init__(
        self,
        broker: ClusterBroker,
        doors: Doors,
        departing: DepartingClients,
        lock: Callable[[Queue, str], None],
        following: Following,
    ) -> None:
        """`lock`: nobody consumes from a queue that is to drain to a node; what they had is in it again."""
        self._broker: Final = broker
        self._doors: Final = doors
        self._departing: Final = departing
        self._lock: Final = lock
        self.due_ns = 0
        self.scheduled_ns = 0
        self._closing_ns = 0  # clients' connections are closed from then on
        self._patience_ns = 0  # so long they are held back for the heir to know what it has to
        self.is_moving = False  # queues may begin to drain
        self.cargo: Final = DuplicateCargo(broker.store, broker.store.duplicates)
        self._next: Final = following

    @property
    def record(self) -> ScaleDown:
        """What the journal keeps of the scale-down, and what is counted of it."""
        return self._broker.store.remotes.scale_down

    # -- begin, and the end --------------------------------------------------------------------------------------------

    def restored(self) -> None:
        """A start: what was begun goes on."""
        record = self.record
        LOOK.has_touched = True
        if record.is_at_stop and not record.is_ending:
            self.call_off(is_forced=False)  # the process that was to end with it has ended before
        elif record.is_on and not record.is_ending:
            self._doors.cordon()
            self._tell(record.target)
            self._begin_at(self._broker.at.monotonic_ns)
        elif record.is_on:
            self._look_again(self._broker.at.monotonic_ns + LOOK_AGAIN_NS)

    def begin(self, connection: str, target: str, *, is_forced: bool, at_stop_ns: int = 0) -> None:
        """This node leaves from now on. `at_stop_ns`: this process ends with it, which has so long, and the next one
        serves."""
        broker = self._broker
        broker.cordoning.give_way()
        self.record.begin(connection, target, is_forced=is_forced, is_at_stop=at_stop_ns > 0)
        self._doors.cordon()
        self._tell(target)
        self._departing.begin(min(STAY_NS, at_stop_ns // STAY_PART) if at_stop_ns else STAY_NS)
        broker.notice(Level.INFO, "scale-down-begun", connection=connection, node_id=target)
        self._begin_at(broker.at.monotonic_ns + GRACE_NS)

    def go_on_to(self, connection: str, target: str) -> None:
        """Another node is the heir from now on. What the one before may have waits for its answer, and what has come
        there stays there; all else goes to the new one."""
        broker, record, remotes = self._broker, self.record, self._broker.store.remotes
        before, turned = record.target, [queue for queue in self.queues() if not queue.kind.drain_ends]
        for queue in turned:
            self._let_go(queue, is_closed=False)
        held = remotes.go_on_to(turned, connection, target)
        self._drop_cargo()
        broker.notice(Level.WARNING, "scale-down-goes-on", node_id=target, before=before,
                      apart=sum(each.message_count for each in held))  # fmt: skip
        self._tell(target)
        self._begin_at(self._closing_ns)

    def _hand_on(self) -> None:
        """What waits for nodes that have no link here goes over the heir, which has its own ways to them."""
        broker, record, remotes = self._broker, self.record, self._broker.store.remotes
        if not self.is_moving or self.member is None or record.is_at_stop or not self._is_linked(record.target):
            return  # a stop waits for no other node, and its own end takes back what was handed on
        for queue in list(remotes.queues.values()):
            kind = queue.kind
            if kind.forwards_to == record.target or kind.connection != record.connection:
                continue
            if self._is_linked(kind.owner) or remotes.why_not_handed_on(queue, record.target):
                continue
            self._let_go(queue, is_closed=False)
            held = remotes.hand_on(queue, record.target)
            apart = 0 if held is None else held.message_count
            broker.notice(Level.INFO, "scale-down-hands-on", queue=kind.name, node_id=kind.forwards_to,
                          messages=queue.message_count - apart, apart=apart)  # fmt: skip

    def _is_linked(self, node_id: str) -> bool:
        connection = self._broker.cluster.connections.get(self.record.connection)
        return connection is not None and connection.is_linked(node_id) is True

    def _drop_cargo(self) -> None:
        """Ids of duplicate detection on their way to heirs before: the one of now gets all of them."""
        remotes = self._broker.store.remotes
        for connection, node_id in self.record.past:
            if (connection, node_id) == (self.record.connection, self.record.target):
                continue  # it was one before, and is it again
            for queue in remotes.queues_of(node_id, connection):
                if DuplicateCargo.is_of(queue) and queue.ready_count:
                    self._broker.store.purge(queue)

    def _tell(self, heir: str) -> None:
        """The others send what they have elsewhere, and the heir makes nobody a subscription that is still to come."""
        for connection in self._broker.cluster.connections.values():
            connection.leaves_to(heir)

    def _begin_at(self, at_ns: int) -> None:
        LOOK.has_touched = True
        self._closing_ns, self.is_moving = at_ns, False
        self._next.begin()
        self._broker.store.remotes.refused_by.clear()
        self.cargo.forget()
        self._look_again(self._broker.at.monotonic_ns)  # for what goes before anybody leaves

    def _look_again(self, at_ns: int) -> None:
        LOOK.has_touched = True
        self.due_ns = max(at_ns, 1)
        self._broker.timers.add(self)

    def call_off(self, *, is_forced: bool) -> None:
        """What is here stays. `is_forced`: also what the other node may have without an answer."""
        record = self.record
        if not record.is_ending:
            self._broker.notice(Level.INFO, "scale-down-called-off", node_id=record.target)
        self.finish(is_forced=is_forced)
        LOOK.has_touched = True
        self.cargo.todo.clear()
        self._departing.let_go_on()
        self._tell("")
        self._doors.uncordon()

    def finish(self, *, is_forced: bool = False) -> None:
        """Nothing more goes: queues are served here again, and it is over, once the other node has answered."""
        record = self.record
        LOOK.has_touched = True
        self.due_ns, self.is_moving = 0, False
        if not record.is_ending:
            record.call_off()
        for held in record.held if is_forced else ():
            self._let_go(held.queue, is_closed=False)
            record.held.give_back(held)
        remotes = self._broker.store.remotes
        for connection in self._broker.cluster.connections.values():
            for queue in remotes.handed_on(connection.options.name):
                connection.turn_back(queue, is_there=not is_forced)
        for queue in self.queues():
            self._broker.cluster.call_off(queue, is_forced=is_forced)
        if record.held.by_name:
            self._look_again(self._broker.at.monotonic_ns + LOOK_AGAIN_NS)

    def _let_go(self, queue: Queue, *, is_closed: bool) -> None:
        connection = self._broker.cluster.connections.get(queue.kind.connection)
        if connection is not None:
            connection.let_go(queue, is_closed=is_closed)

    def _look_at_held(self) -> None:
        """What waited for the answers of heirs before is over once they have come, and the digest is known."""
        record = self.record
        for held in record.held:
            handed_over = held.queue.handed_over
            record.held.take_out(held.of)
            is_under_way = handed_over is not None and handed_over.ids.count
            is_asked = record.is_ending or not record.has_to_ask(held.queue)
            if held.has_any or is_under_way or not is_asked:
                self._broker.cluster.look_at_drain(held.queue)
                continue
            self._let_go(held.queue, is_closed=True)
            record.held.end(held)
            self._broker.cluster.look_at_drain(held.of)

    def queues(self) -> list[Queue]:
        """Those that drain for its sake."""
        record = self.record
        drained = self._broker.store.remotes.drains.queues_to(record.target, record.connection)
        return [queue for queue in drained if queue.kind.name in record.tallies]

    @property
    def idle(self) -> Idle:
        """Since when nothing of each has gone."""
        return self._next.idle

    @property
    def stands_ns(self) -> int:
        """For how long nothing has gone to the heir of now."""
        return self._next.stands_ns if self.record.is_on else 0

    # -- clients -------------------------------------------------------------------------------------------------------

    def verdict(self, peer: AcceptedPeer) -> RoutingVerdict:
        """Where a client belongs that opens a connection."""
        place = self._place_of(peer)
        target = None if place is None else RoutingTarget(self.record.target, place.host, place.port)
        return RoutingVerdict(target, self._why)

    @property
    def _why(self) -> str:
        member = self.member
        if not self.record.is_on:
            return f"node {self._broker.options.node.name} stops"
        name = self.record.target if member is None else member.name
        return f"node {self._broker.options.node.name} scales down: its queues go to node {name}"

    @property
    def member(self) -> Member | None:
        """The heir, where it is known."""
        connection = self._broker.cluster.connections.get(self.record.connection)
        return None if connection is None else connection.topology.get(self.record.target)

    def _place_of(self, peer: AcceptedPeer) -> Connector | None:
        return place_at(self.member, peer.listener)

    # -- what comes by time, and by turns ------------------------------------------------------------------------------

    def on_time(self, now_ns: int) -> None:
        """Clients that are still here leave, and what does not drain yet is looked at once more.

        They are held back until the heir knows the ids of duplicate detection, as they may repeat them there.
        """
        broker, record = self._broker, self.record
        LOOK.has_touched = True
        self.due_ns = 0
        if not record.is_on or not broker.is_running:
            return
        self._look_at_held()
        if record.is_ending:
            if record.held.by_name:
                self._look_again(now_ns + LOOK_AGAIN_NS)
            return
        if (heir := self._next.look(now_ns)) is not None:
            self.go_on_to(heir.connection, heir.node_id)
            return
        self._drop_cargo()
        self._hand_on()
        is_time = now_ns >= self._closing_ns
        if is_time and not self._departing.held:
            self._departing.hold_back("this node scales down", now_ns - self._closing_ns)
            self._patience_ns = now_ns + CARGO_NS
        self.cargo.look()
        if not is_time:
            self._look_again(self._closing_ns)
        elif self._departing.held and self._has_cargo and now_ns < self._patience_ns:
            self._look_again(now_ns + CARGO_LOOK_NS)
        else:
            # What was taken in is answered first.
            broker.store.decisions.wait_for_earlier(self._close, self._departing.held, self._closing_ns)
            self._look_again(now_ns + LOOK_AGAIN_NS)

    @property
    def _has_cargo(self) -> bool:
        """Whether the heir may not know all ids of duplicate detection yet."""
        queues = self._broker.store.remotes.queues_of(self.record.target)
        return bool(self.cargo.todo) or any(DuplicateCargo.is_of(each) and each.message_count for each in queues)

    def _close(self, held: dict[AcceptedPeer, None], closing_ns: int) -> None:
        """`closing_ns`: as it was; else it was called off since and begun once more, and has a grace of its own."""
        record = self.record
        LOOK.has_touched = True
        if record.is_on and not record.is_ending and closing_ns == self._closing_ns:
            self._departing.close(held, self._place_of, self._why)
            record.look_at_all()
            self.is_moving = True

    @property
    def is_due(self) -> bool:
        """Whether there is something to do."""
        record = self.record
        if not record.is_on:
            return False
        if record.is_ending:
            return not self.queues() and not record.held.by_name
        return bool(self.cargo.todo) or (self.is_moving and bool(record.pending))

    def go_on(self, work_max: int) -> None:
        """Queues begin to drain, some at a time."""
        record = self.record
        LOOK.has_touched = True
        if record.is_ending:
            self._broker.notice(Level.INFO, "scale-down-over", node_id=record.target)
            record.end()
            return
        while self.cargo.todo and work_max > 0:
            self.cargo.go_on(self._broker.store.remotes, record.connection, record.target)
            work_max -= CARGO_WORK
        while self.is_moving and record.pending and work_max > 0:
            queue = next(iter(record.pending))
            del record.pending[queue]
            if self._may_begin(queue):
                self._begin(queue)
                work_max -= frame_costs.REVOKED
            elif queue.kind.name in record.tallies:
                self._broker.cluster.look_at_drain(queue)  # the last message of it may have expired or been purged
            work_max -= frame_costs.LOOKED_AT

    def _may_begin(self, queue: Queue) -> bool:
        kind = queue.kind
        is_there = not queue.is_deleted and not kind.is_forwarding and not kind.is_draining
        if kind.is_ring and self.record.is_at_stop:
            return False  # the next process serves, and nothing would bring it back
        return is_there and self.member is not None and not hindrance_of(kind) and not self._departing.waits_for(queue)

    def _begin(self, queue: Queue) -> None:
        delivering = queue.delivering_count
        self._lock(queue, self.record.target)
        # Consumers that were let in and wait for the disk are told of by decisions that are before this one.
        self._broker.store.decisions.wait_for_earlier(self._begin_now, queue, delivering)

    def _begin_now(self, queue: Queue, delivering: int) -> None:
        broker, record = self._broker, self.record
        if not record.is_on or record.is_ending or not self._may_begin(queue):
            return
        self._lock(queue, record.target)
        if broker.store.remains.is_purging(queue):
            return  # what still leaves is in no count of the queue; it is looked at again
        if queue.delivering_count:
            return  # transactions hold it, and what they commit is consumed here; it is looked at again
        try:
            broker.store.remotes.drains.check(queue)
        except Refused as refused:
            broker.notice(Level.DEBUG, "drain-waits", queue=queue.kind.name, why=refused.description)
            return  # and is looked at again
        tally = record.count(queue, delivering)
        broker.store.remotes.begin_drain(queue, record.connection, record.target, tally.now.link)
        record.goes_by(tally, queue.kind.drains_as)
