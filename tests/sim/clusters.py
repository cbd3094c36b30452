"""Seeded histories of whole clusters: nodes that find each other, share messages out, lose links, and lose nodes.

Every node has the same queues; producers and consumers are anywhere, and some histories have a topic with subscriptions
at several nodes. After the faults, consumers are left at one node only (at all where nothing is redistributed):
everything that was accepted anywhere has to come there, once. Some histories then look whether nodes share messages
out alike. Order across nodes is nobody's promise, so it is not asked for here. In some histories groups are kept
together, and judged by `groups.py`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from mqbroker.config.slices import BrokerOptions
from mqbroker.core.queue.queue import Queue

from tests.sim.clients import Client, Consumer, Producer
from tests.sim.cluster_faults import ClusterFaults
from tests.sim.cluster_shapes import DISCOVERED, MESH, MODES, SIZES, clustered, links_of, node_id, shape_of
from tests.sim.disk import Faults
from tests.sim.even_shares import check_shares
from tests.sim.groups import GROUPS, QUEUE, UNSTEADY, Book, GroupConsumer, GroupProducer
from tests.sim.network import ClusterNode, Network
from tests.sim.topics import Publisher, Subscriber, Subscription, owed
from tests.sim.world import World, options_for
from tests.support.checker import History

BUSY_MS: Final = 3_000
QUIET_MS: Final = 120_000
KEY: Final = b"simulated cluster".ljust(32, b"\0")
STRICT: Final = "STRICT"
GROUPED_SHARE: Final = 0.2  # of histories in which groups are kept together


@dataclass(slots=True)
class ClusterVerdict:
    """What came of one history."""

    seed: int
    trace: str
    violations: list[str]
    nodes: int
    shape: str
    sent: int
    accepted: int
    received: int
    crashes: int
    forwarded: int  # messages that arrived from other nodes
    moved: int  # messages that were redistributed
    again: int  # messages that were sent again and dropped
    steps: int
    mode: str = ""
    published: int = 0  # messages of topics
    is_shared_alike: bool | None = None  # None: nobody looked
    faults: dict[str, int] = field(default_factory=dict)
    grouped: int = 0  # messages of groups whose order was judged


def grouped(options: BrokerOptions, *, is_arbiter: bool) -> BrokerOptions:
    """A node with a grouping handler. Queues stay, so that none hands its groups on."""
    settings = options.address_settings
    built_in = replace(settings.built_in, auto_delete_queues=False)
    handler = replace(options.grouping_handler, type="LOCAL" if is_arbiter else "REMOTE", timeout=1000)
    return replace(options, grouping_handler=handler, address_settings=replace(settings, built_in=built_in))


class ClusterSimulation:
    """Builds a history from its seed and runs it."""

    producer: type[Producer] = Producer
    history_type: type[History] = History

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = World(seed)
        self.network = Network(self.world)
        self.history = self.history_type(is_several_nodes=True)
        rng = self.world.rng
        count, self.shape, self.mode = self.laid_out(rng)
        self.book = Book() if self.has_groups else None
        faults = Faults(write_error=rng.choice((0, 0, 0.002)), sync_error=rng.choice((0, 0, 0.002)))
        self.nodes = [self._node(number, count, faults) for number in range(count)]
        self.queues = [f"node0-q{number}" for number in range(rng.choice((1, 2)))]
        for node in self.nodes:
            node.start()
        self.clients: list[Client] = []
        self.subscriptions: list[Subscription] = []
        self.publishers: list[Publisher] = []
        if self.has_topic:
            self._subscribe()
        self._populate()
        histories = [self.history, *(each.history for each in (*self.subscriptions, *self.publishers))]
        self.faults = ClusterFaults(self.network, self.nodes, histories)

    def laid_out(self, rng: random.Random) -> tuple[int, str, str]:
        """How many nodes, how they hang together, and how they share messages out."""
        count = rng.choice(SIZES)
        return count, shape_of(rng, count), rng.choice(MODES)

    @property
    def has_groups(self) -> bool:
        """Whether groups are kept together; asked once."""
        return random.Random(f"groups {self.seed}").random() < GROUPED_SHARE

    @property
    def has_topic(self) -> bool:
        """Whether there is one; asked once."""
        return self.world.rng.random() < 0.3

    @property
    def compares_shares(self) -> bool:
        """Whether nodes are looked at at the end for how they share out; asked once."""
        return self.world.rng.random() < 0.25

    def plan(self) -> None:
        """What happens to nodes and to the network, and when."""
        self.faults.plan(BUSY_MS)

    def _node(self, number: int, count: int, faults: Faults) -> ClusterNode:
        rng = self.world.rng
        options = options_for(rng.choice((8192, 65536, 1 << 20)), 1 << 28, rng.choice((3, 100)))
        dialled, changes = links_of(rng, self.shape, number, count)
        changes = {"message-load-balancing": self.mode, **changes}
        options = self.enriched(clustered(options, number, dialled, changes))
        if self.book is not None:
            options = grouped(options, is_arbiter=number == 0)
        node = ClusterNode(self.world, f"node{number}", options, faults)
        node.identity = {"node_id": node_id(number), "cluster_key": KEY}
        self.network.add(node)
        return node

    def enriched(self, options: BrokerOptions) -> BrokerOptions:
        """What else a node is; here nothing."""
        return options

    def _populate(self) -> None:
        rng = self.world.rng
        for queue in self.queues[: 1 if self.subscriptions else None]:
            for number in range(rng.choice((1, 2, 4))):
                node, count = rng.choice(self.nodes), rng.choice((10, 40, 120))
                producer = self.producer(self.world, node, f"{queue}-p{number}", self.history, queue, count)
                producer.pace_ms = rng.choice((10, 10, 200))
                self.clients.append(producer)
            for number in range(rng.choice((0, 1, 2, 4))):
                node = rng.choice(self.nodes)
                self.clients.append(Consumer(self.world, node, f"{queue}-c{number}", self.history, queue))
        if self.book is not None:
            self.clients += self._grouped(self.book)

    def _grouped(self, book: Book) -> list[Client]:
        """Each group is sent at two nodes; consumers are at all of them."""
        rng, clients = self.world.rng, list[Client]()
        for group in GROUPS:
            for number, node in enumerate(rng.sample(self.nodes, 2)):
                clients.append(GroupProducer(self.world, node, f"{QUEUE}-{group}-p{number}", self.history, group))
        for number, node in enumerate(self.nodes):
            clients.append(GroupConsumer((self.world, node), f"{QUEUE}-c{number}", self.history, book))
        return clients

    def _subscribe(self) -> None:
        """A topic, durable subscriptions at some nodes, and who publishes."""
        rng, topic = self.world.rng, "node0-q8"
        for number in range(rng.choice((2, 3))):
            self.subscriptions.append(Subscription(rng.choice(self.nodes), topic, f"s{number}"))
        self.clients += [Subscriber(self.world, each) for each in self.subscriptions]
        for number in range(rng.choice((1, 2))):
            node, count = rng.choice(self.nodes), rng.choice((10, 40))
            self.publishers.append(Publisher(self.world, node, f"{topic}-p{number}", self.subscriptions, count))
            self.publishers[-1].pace_ms = rng.choice((10, 200, 500))
        self.clients += self.publishers

    # -- the whole -----------------------------------------------------------------------------------------------------

    def run(self) -> ClusterVerdict:
        """The history from beginning to end."""
        self.plan()
        for at_ms in range(0, BUSY_MS, 250):
            self.world.run(at_ms)
            self.faults.revive_all()
        self.world.run(BUSY_MS + 5_000)
        for client in self.clients:
            client.stop()
        for node in self.nodes:
            node.disk.faults = Faults()
        self.network.calm()
        for at_ms in range(BUSY_MS + 5_000, BUSY_MS + 15_000, 250):
            self.faults.revive_all()  # one that was paused may stop only now
            self.world.run(at_ms)
        self.world.run(BUSY_MS + 20_000)
        left = self._drain()
        violations = self.history.check_drained(left) + self._where() + owed(self.subscriptions, 0)
        violations += self._groups_found()
        is_alike = None
        if self.mode != "OFF_WITH_REDISTRIBUTION" and self.compares_shares:
            unequal = check_shares(self.world, self.nodes)
            violations, is_alike = violations + unequal, not unequal
        stores = [node.broker.store for node in self.nodes]
        sent = self.history.sent.values()
        return ClusterVerdict(
            self.seed, self.world.trace, violations, len(self.nodes), self.shape,
            len(sent), sum(each.outcome == "accepted" for each in sent), self.history.received.total(),
            sum(node.epoch for node in self.nodes), sum(store.arrivals.arrived_total for store in stores),
            sum(store.redistribution.moved_total for store in stores),
            sum(store.arrivals.dropped_total for store in stores), self.world.steps, self.mode,
            sum(each.number for each in self.publishers), is_alike, self.faults.counts,
            0 if self.book is None or self._is_unsteady else self.book.count,
        )  # fmt: skip

    def _drain(self) -> int:
        """Consumers at one node take everything that is anywhere, and subscribers what is theirs."""
        nodes = self.nodes if self.mode == STRICT else [self.world.rng.choice(self.nodes)]
        for queue in self.queues:
            for node in nodes:
                Consumer(self.world, node, f"drain-{queue}-{node.name}", self.history, queue, is_drain=True)
        for each in self.subscriptions:
            Subscriber(self.world, each, is_drain=True)
        for number, node in enumerate(self.nodes if self.book is not None else ()):
            assert self.book is not None
            GroupConsumer((self.world, node), f"drain-{QUEUE}-{number}", self.history, self.book, is_drain=True)
        self.world.run(BUSY_MS + QUIET_MS, lambda: self._depth() == 0)
        self.world.run(self.world.now_ns // 1_000_000 + 500)
        return self._depth()

    @property
    def _is_unsteady(self) -> bool:
        """Whether groups may have gone elsewhere: a node has left, or one between others has forgotten what is behind
        it (docs/CLUSTERS.md, Groups)."""
        return self.shape not in (MESH, DISCOVERED) or any(UNSTEADY & node.told for node in self.nodes)

    def _groups_found(self) -> list[str]:
        return [] if self.book is None or self._is_unsteady else self.book.found()

    def _queues(self) -> list[tuple[ClusterNode, Queue]]:
        queues = [(node, queue) for node in self.nodes for queue in node.broker.store.queues.values()]
        return [(node, queue) for node, queue in queues if not queue.kind.is_ring]  # nobody reads what is kept

    def _depth(self) -> int:
        return sum(queue.message_count for _, queue in self._queues())

    def _where(self) -> list[str]:
        """What is left, and where: stranded where nobody takes it and somebody would at another node."""
        found = []
        for node, queue in self._queues():
            name, count = queue.kind.name, queue.message_count
            served = [other.name for other, same in self._queues() if same.kind.name == name and same.consumers]
            if count and served and not (queue.consumers or queue.kind.is_internal):
                found.append(
                    f"stranded: {count} of {name} at {node.name}, which has no consumers, and {served} have some"
                )
            elif count:
                found.append(f"left at {node.name} {name}: {count}")
        return found
