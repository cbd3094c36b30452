"""Bindings of other nodes, and the store-and-forward queues in which messages wait for the way there.

One queue for each set of bindings of one address and one target that messages go to together: its attributes, which the
journal keeps, say where they go, so nothing is written into a message. They are queues as all others: durable, paged,
expiring by the settings of the address unless the target may have the message (core/queue/unanswered_forwards.py); only
clients do not see them, and no message in them has a schedule of its own, because the time comes where the consumers
are. Source: docs/adr/0012-cluster-connections.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mqbroker.base.look import LOOK
from mqbroker.core.address.address import ANYCAST, MULTICAST
from mqbroker.core.address.address_records import told_of
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.awaited_queues import AwaitedQueues
from mqbroker.core.cluster.cluster_bindings import ON_DEMAND, ClusterBindings, Remote, bindings_at
from mqbroker.core.cluster.cordon import Cordon
from mqbroker.core.cluster.drains import Drains
from mqbroker.core.cluster.marks import Marks
from mqbroker.core.cluster.remote_binding import RemoteBinding, cluster_name_of
from mqbroker.core.cluster.scale_down import ScaleDown
from mqbroker.core.queue.id_ranges import IdRanges
from mqbroker.core.queue.kinds import FORWARD, INTERNAL_PREFIX, NODE_ID_SIZE, QueueKind
from mqbroker.core.queue.leaving_reasons import DELETED
from mqbroker.core.queue.queue import Queue
from mqbroker.core.queue.unanswered_forwards import HandedOver

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.core.cluster.held_back import Held
    from mqbroker.core.cluster.redistribution import Redistribution
    from mqbroker.core.queue.backlog import Segment

ROUTES_MAX: Final = 1000  # sets of bindings for one target; beyond that, each binding has its own queue
PREFIX: Final = INTERNAL_PREFIX + "sf."
IDS_RESERVED: Final = 1 << 20


class ForwardingRoute(NamedTuple):
    """Where messages of an address go together: bindings of one target and one routing type, by their names in the
    cluster."""

    connection: str
    target: str
    address: str
    names: tuple[str, ...]
    is_shared: bool


def _is_reserved() -> None:
    """What waits for the disk: links to other nodes begin behind it."""


def _never(node_id: str) -> bool:
    return False


def _nobody(queue: Queue) -> None:
    """No node is there that would serve it."""


class Remotes:
    """Everything that other nodes have, over all cluster connections."""

    def __init__(self, store: ClusterStore, redistribution: Redistribution) -> None:
        self._store = store
        self.redistribution: Final = redistribution
        self.on_queue: Callable[[Queue], None] = _nobody  # is told of each new store-and-forward queue
        self.is_heard: Callable[[str], bool] = _never  # whether that node has a link on which messages come
        self.connections: dict[str, Forwarding] = {}
        self.by_name: dict[str, Remote] = {}
        self.queues: dict[ForwardingRoute, Queue] = {}
        self.marks = Marks()
        self.scale_down = ScaleDown(store, self._observe)
        self.drains = Drains(store, self.scale_down.held.has_any_of)
        self.cordon = Cordon(store)
        self.over: dict[str, None] = {}  # queues beyond a neighbour that were deleted, while something waits for them
        self.given_up: dict[str, None] = {}  # nodes beyond a neighbour that do not come back, while something waits
        self.refused_by: dict[tuple[int, str], None] = {}  # queues that were handed on in vain, by their id and to whom
        self.awaited = AwaitedQueues(store.node_id, store, self._binding, lambda node_id: self.is_heard(node_id))
        self._numbers: dict[tuple[str, str], int] = {}
        self._reserved_until = 0

    def _binding(self, name: str) -> RemoteBinding | None:
        remote = self.by_name.get(name)
        return None if remote is None else remote.binding

    def _observe(self, scale_down: ScaleDown, is_on: bool) -> None:
        store = self._store
        if is_on:
            store.observe_messages(scale_down)
            store.observe_queues(scale_down)
        else:
            store.stop_observing(scale_down)

    def reserve_ids(self) -> None:
        """Other nodes know messages by their ids, so none comes twice, also not after a crash.

        Ids of messages that are not durable are in no journal; so it is told some time before how far they may go.
        """
        store = self._store
        LOOK.has_touched = True
        if store.next_id + IDS_RESERVED // 2 > self._reserved_until:
            self._reserved_until = store.next_id + IDS_RESERVED
            store.journal.reserve(self._reserved_until)
            store.decisions.wait(_is_reserved)

    def touch(self) -> None:
        """An append that says nothing new, for who has to know that the disk works."""
        LOOK.has_touched = True
        self._reserved_until = max(self._reserved_until, self._store.next_id)
        self._store.journal.reserve(self._reserved_until)

    def connection(self, name: str, mode: str = ON_DEMAND) -> Forwarding:
        """The bindings of a cluster connection, whose `message-load-balancing` is `mode`."""
        connection = self.connections.get(name)
        LOOK.has_touched = True
        if connection is None:
            connection = self.connections[name] = Forwarding(name, mode, self._store, self)
        connection.mode = mode
        return connection

    def said_of(self, name: str) -> dict[str, Any]:
        """What a person said of this address that another node is told where a queue of it drains there."""
        return told_of(self._store.addresses[name]) if name in self._store.addresses else {}

    def queue_here(self, name: str, node_id: str) -> Queue | None:
        """The queue of this node, which has this id, that has a name in the whole cluster."""
        queue = self._store.queues.get(name.removesuffix(node_id))
        if queue is None or queue.kind.is_forwarding:
            return None
        return queue if cluster_name_of(queue.kind.name, node_id) == name else None

    def queues_of(self, target: str, connection: str = "") -> list[Queue]:
        """Store-and-forward queues for a node."""
        wanted = (queue for queue in self.queues.values() if queue.kind.forwards_to == target)
        return [queue for queue in wanted if connection in ("", queue.kind.connection)]

    def drained_to(self, target: str, connection: str) -> list[Queue]:
        """Queues of clients of which messages go to a node, and what it may have of those that go elsewhere by now."""
        return [
            *self.drains.queues_to(target, connection),
            *(each.queue for each in self.scale_down.held.to(target, connection)),
        ]

    def routes_count(self, connection: str, target: str) -> int:
        """How many store-and-forward queues lead to a node over a connection."""
        return sum(route[:2] == (connection, target) for route in self.queues)

    def make(self, route: ForwardingRoute) -> Queue:
        """A new store-and-forward queue; on disk with this step's append."""
        kind = QueueKind(
            self._next_name(route.connection, route.target), route.address, routing=FORWARD,
            connection=route.connection, forwards_to=route.target, route=route.names, forwards_shared=route.is_shared,
        )  # fmt: skip
        queue = self._store.add_queue(kind)
        self.on_queue(queue)
        return queue

    def internal_queue(self, connection: str, target: str, address: str) -> Queue:
        """A store-and-forward queue for what the other node takes in itself, at an address that no client may name."""
        self.reserve_ids()
        route = ForwardingRoute(connection, target, address, (address,), is_shared=False)
        return self.queues.get(route) or self.make(route)

    def _next_name(self, connection: str, target: str) -> str:
        taken = self.drains.number_max(connection, target), self.scale_down.number_max
        number = max(self._numbers.get((connection, target), 0), *taken) + 1
        return f"{PREFIX}{connection}.{target}.{number}"

    def begin_drain(self, queue: Queue, connection: str, target: str, link: str = "") -> None:
        """What is in a queue, and what comes, goes to its namesake at this node; on disk with this step's append.

        `link`: under which that knows the queue from before. Raises Refused.
        """
        self.drains.check(queue)
        self.reserve_ids()
        self.marks.cover(self._store)
        self.drains.begin(queue, connection, target, link or self._next_name(connection, target))
        self.on_queue(queue)

    def go_on_to(self, queues: Iterable[Queue], connection: str, target: str) -> list[Held]:
        """This node leaves to another heir from now on, and these queues of it, whose links to the one before are gone,
        drain there. What that may have waits apart for its answer: these. On disk with this step's append."""
        record, turned = self.scale_down, list(queues)
        held = [each for each in map(record.keep_apart, turned) if each is not None]
        self.reserve_ids()
        self.marks.cover(self._store)
        record.go_on_to(connection, target)
        for queue in turned:
            self.drains.turn(queue, connection, target, self._next_name(connection, target))
            record.goes_by(record.tallies[queue.kind.name], queue.kind.drains_as)
        for queue in (*turned, *(each.queue for each in held)):
            self.on_queue(queue)
        return held

    def hand_on(self, queue: Queue, target: str) -> Held | None:
        """What is in a store-and-forward queue, and what comes for its owner, goes to this node from now on, which may
        know the way; what the one that it went to may have waits for its answer, if there is such: that. On disk with
        this step's append."""
        return self._turn(queue, target, IdRanges() if queue.handed_over is None else queue.handed_over.awaited)

    def turn_back(self, queue: Queue, *, is_there: bool) -> Held | None:
        """The same the other way: it goes to its owner again, and so does what that may have. `is_there`: what the node
        that it was handed to may have waits for its answer; else that has none of it, or nobody waits for it."""
        owner, held, handed_over = queue.kind.owner, self.scale_down.held, queue.handed_over
        ids = handed_over.awaited if is_there and handed_over is not None else IdRanges()
        owned = [each for each in held.of(queue) if each.kind.forwards_to == owner]
        LOOK.has_touched = True
        apart = self._turn(queue, owner, ids)
        for each in owned:
            held.give_back(each)
            if queue.handed_over is not None:
                queue.handed_over.begun_before(self._store.next_id)
        return apart

    def _turn(self, queue: Queue, target: str, ids: IdRanges) -> Held | None:
        before, ids = queue.kind, self.scale_down.held.fresh(queue, ids)
        LOOK.has_touched = True
        queue.kind = replace(before, forwards_to=target)
        self._store.journal.declare(queue.journal_id, queue.kind.encoded())
        queue.handed_over = HandedOver()
        held = self.scale_down.held.begin(queue, before, ids) if ids.count else None
        queue.look_for_expired()
        self._store.changed(queue)
        for each in (queue,) if held is None else (queue, held.queue):
            self.on_queue(each)
        return held

    def handed_on(self, connection: str, *, owner: str = "", target: str = "") -> list[Queue]:
        """Store-and-forward queues of one node, or of all, that go to this one, or to any, in place of their owner."""
        kinds = ((queue, queue.kind) for queue in self.queues.values() if queue.kind.is_handed_on)
        wanted = [(queue, kind) for queue, kind in kinds if kind.connection == connection]
        return [queue for queue, kind in wanted if owner in ("", kind.owner) and target in ("", kind.forwards_to)]

    def is_turned_back(self, queue: Queue) -> bool:
        """Whether what the node that it was handed to refuses waits for its owner: not where that is gone for good."""
        return queue.kind.is_handed_on and not all(map(self._is_over, queue.kind.route))

    def why_not_handed_on(self, queue: Queue, target: str) -> str:
        """What hinders clients' messages in it from going over that node; empty where they may. The node can say by an
        answer that it knows no way to the one name of a route; of several it might take some alone."""
        kind, handed_over = queue.kind, queue.handed_over
        if handed_over is None or kind.address.startswith(INTERNAL_PREFIX):
            return "they are for that node alone"
        if len(kind.route) > 1:
            return "they go over no other one, as they are for several queues"
        if (queue.journal_id, target) in self.refused_by:
            return f"node {target} knows no way to it"
        if any(each.kind.forwards_to == target for each in self.scale_down.held.of(queue)):
            return f"node {target} has to answer first for what it may have of them"
        count = queue.unanswered_count
        return "" if queue.message_count > count else f"it may have {count} of them"

    def added(self, queue: Queue) -> None:
        """A store-and-forward queue is there: it was made, or recovery found it."""
        kind = queue.kind
        route = _route_of(queue)
        LOOK.has_touched = True
        queue.handed_over = HandedOver()
        self.queues[route] = queue
        _, of, number = kind.name.rsplit(".", 2)
        for target in (kind.forwards_to, of):  # it may be handed on, and comes back
            self._numbers[route.connection, target] = max(self._numbers.get((route.connection, target), 0), int(number))

    def restored(self) -> None:
        """The queues are those of a process before, which may have sent whatever is in them."""
        for queue in (*self.queues.values(), *self.drains.queues.values()):
            assert queue.handed_over is not None
            queue.handed_over.begun_before(self._store.next_id)

    def gone(self, queue: Queue) -> None:
        """A store-and-forward queue was deleted."""
        LOOK.has_touched = True
        self.queues.pop(_route_of(queue), None)
        for name in queue.kind.route if self.over or self.given_up else ():
            if not any(name in route.names for route in self.queues):
                self.over.pop(name, None)
                self.given_up.pop(name[-NODE_ID_SIZE:], None)

    def deleted(self, name: str) -> None:
        """A queue of another node was deleted: copies that wait until the way to it is known again wait in vain. Where
        another node has the same subscription they go on to who knows of it, and come back to be handed on."""
        waiting = [each for each in self.queues.values() if each.kind.is_owed_beyond and name in each.kind.route]
        LOOK.has_touched = True
        if waiting:
            self.over[name] = None
        for queue in waiting:
            if not self.is_owed_beyond(queue) and not self._is_elsewhere(queue):
                self._store.purge(queue)

    def _is_elsewhere(self, queue: Queue) -> bool:
        """Whether somebody has one of the subscriptions that its copies were owed to."""
        address = self._store.addresses[queue.kind.address]
        bindings = bindings_at(address)
        names = [name[:-NODE_ID_SIZE] for name in queue.kind.route]
        is_known = any(bindings.group(MULTICAST, name) is not None for name in names) if bindings is not None else False
        return is_known or any(name in self._store.queues for name in names)

    def owed_beyond(self, node_id: str, connection: str) -> list[Queue]:
        """Those with copies for subscriptions of a node to which others are between."""
        kinds = ((queue, queue.kind) for queue in self.queues.values() if queue.kind.is_owed_beyond)
        return [
            queue
            for queue, kind in kinds
            if kind.connection == connection and all(name.endswith(node_id) for name in kind.route)
        ]

    def give_up_beyond(self, queues: list[Queue]) -> int:
        """The node that these are owed to does not come back; how many messages they have."""
        LOOK.has_touched = True
        self.given_up.update((name[-NODE_ID_SIZE:], None) for queue in queues for name in queue.kind.route)
        return sum(queue.message_count for queue in queues)

    def is_owed_beyond(self, queue: Queue) -> bool:
        """Whether its messages are for subscriptions further on, and one of these is still there as far as is known."""
        return queue.kind.is_owed_beyond and not all(map(self._is_over, queue.kind.route))

    def _is_over(self, name: str) -> bool:
        return name in self.over or name[-NODE_ID_SIZE:] in self.given_up

    def tidy(self, queues: Iterable[Queue]) -> None:
        """Delete those of these store-and-forward queues that hold nothing, and whose bindings are gone."""
        for queue in list(queues):
            is_known = all(name in self.by_name for name in queue.kind.route) or queue.part_of is not None
            if not is_known and not queue.message_count and not queue.consumers and not queue.arriving_count:
                self._store.delete_queue(queue, BROKER)

    def reroute(self, queue: Queue, segment: Segment) -> None:
        """Messages in delivery that their target has no queue for: they are routed again, and go elsewhere or nowhere.

        Copies that were owed to a subscription end with it, unless another node has it; messages of a shared queue
        that nobody takes are dead.
        """
        LOOK.has_touched = True
        for name in queue.kind.route:
            if name in self.by_name:
                remote = self.by_name[name]
                remote.via.remove(remote.binding)
        if not queue.kind.forwards_shared:
            names = [name[:-NODE_ID_SIZE] for name in queue.kind.route]
            self.redistribution.hand_on(queue, segment, names)
            self._store.discard(queue, segment, DELETED)
        elif not self.redistribution.route_again(queue, segment):
            self._store.dead_letters.reject(queue, segment, f"node {queue.kind.forwards_to} has no queue for it")
        self.tidy([queue])


def _route_of(queue: Queue) -> ForwardingRoute:
    """Under which it is found: that of its owner, so that it takes what is for that also while it is handed on."""
    kind = queue.kind
    return ForwardingRoute(kind.connection, kind.owner, kind.address, kind.route, kind.forwards_shared)


class Forwarding:
    """The bindings of one cluster connection. `mode` is its `message-load-balancing`."""

    def __init__(self, name: str, mode: str, store: ClusterStore, remotes: Remotes) -> None:
        self.name = name
        self.mode = mode
        self._store = store
        self._remotes = remotes

    # -- bindings ------------------------------------------------------------------------------------------------------

    def add(self, binding: RemoteBinding) -> None:
        """A queue of another node is known."""
        store = self._store
        address = store.addresses.get(binding.address) or store.add_address(binding.address)
        LOOK.has_touched = True
        bindings = bindings_at(address)
        if bindings is None:
            bindings = address.cluster_bindings = ClusterBindings()
        remote = self._remotes.by_name[binding.cluster_name] = Remote(binding, self)
        bindings.add(remote)
        self._remotes.over.pop(binding.cluster_name, None)
        for each in store.queue_observers:
            each.remote_added(binding)
        self._look(binding)

    def remove(self, binding: RemoteBinding) -> None:
        """A queue of another node was deleted, or is not known from now on."""
        store = self._store
        LOOK.has_touched = True
        if self._remotes.by_name.pop(binding.cluster_name, None) is None:
            return
        address = store.addresses[binding.address]
        bindings = bindings_at(address)
        assert bindings is not None
        bindings.remove(binding)
        if not bindings:
            address.cluster_bindings = None
        for each in store.queue_observers:
            each.remote_removed(binding)
        self._look(binding)
        if binding.is_deleted:
            self._remotes.awaited.deleted(binding.cluster_name)
            self._remotes.deleted(binding.cluster_name)
        self._remotes.tidy(address.forwarding)
        if address.is_empty:
            store.auto_delete.vacated(address)

    def changed(self, binding: RemoteBinding) -> None:
        """Its consumers, or whether it can be reached, are other ones."""
        bindings = bindings_at(self._store.addresses[binding.address])
        assert bindings is not None
        bindings.look()
        for each in self._store.queue_observers:
            each.remote_changed(binding)
        self._look(binding)

    def _look(self, binding: RemoteBinding) -> None:
        """Messages of the queue of that name may be wanted there now."""
        queue = self._store.queues.get(binding.queue)
        if queue is not None and queue.kind.address == binding.address:
            self._remotes.redistribution.look(queue, is_new=True)

    def leaves_to(self, node_id: str, heir: str) -> None:
        """A node leaves everything to that one, or (empty) stays, or is gone."""
        remotes = self._remotes
        LOOK.has_touched = True
        remotes.awaited.leaves_to(node_id, heir)
        for binding in self.bindings():
            if binding.node_id == node_id and binding.heir != heir:
                LOOK.has_touched = True
                binding.heir = heir
                self.changed(binding)

    def bindings(self) -> Iterator[RemoteBinding]:
        """All bindings of other nodes that are reached over this connection."""
        return (each.binding for each in self._remotes.by_name.values() if each.via is self)

    # -- messages ------------------------------------------------------------------------------------------------------

    def queues_for(self, address: Address, bindings: list[RemoteBinding]) -> list[Queue]:
        """Where messages wait that go to all these bindings, which are of one target."""
        self._remotes.reserve_ids()
        target = bindings[0].target
        names = tuple(sorted(each.cluster_name for each in bindings))
        route = ForwardingRoute(self.name, target, address.name, names, bindings[0].routing == ANYCAST)
        known = self._remotes.queues.get(route)
        if known is not None:
            return [known]
        if len(names) > 1 and self._remotes.routes_count(self.name, target) >= ROUTES_MAX:
            return [queue for each in bindings for queue in self.queues_for(address, [each])]
        return [self._remotes.make(route)]
