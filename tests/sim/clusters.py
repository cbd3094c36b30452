"""Seeded histories of whole clusters: nodes that find each other, share messages out, lose links, and lose nodes.

Every node has the same queues; producers and consumers are anywhere. After the faults, consumers are left at one node
only: everything that was accepted anywhere has to come there, once. Order across nodes is nobody's promise, so it is
not asked for here. In some histories groups are kept together, and judged by `groups.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mqbroker.config.cluster_connections import ClusterConnectionTable, cluster_connection
from mqbroker.config.options import default_listener
from mqbroker.config.slices import BrokerOptions, ConnectorOptions

from tests.sim.clients import Client, Consumer, Producer
from tests.sim.disk import Faults
from tests.sim.groups import GROUPS, QUEUE, UNSTEADY, Book, GroupConsumer, GroupProducer
from tests.sim.network import Network
from tests.sim.world import SimNode, World, options_for
from tests.support.checker import History

BUSY_MS: Final = 3_000
QUIET_MS: Final = 120_000
PORT: Final = 5673
KEY: Final = b"simulated cluster".ljust(32, b"\0")
MESH, CHAIN = "mesh", "chain"
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
    faults: dict[str, int] = field(default_factory=dict)
    grouped: int = 0  # messages of groups whose order was judged


def node_id(number: int) -> str:
    """As a node has it for its life."""
    return f"{number:08d}-0000-4000-8000-{number:012d}"


def clustered(options: BrokerOptions, number: int, dialled: list[int], changes: Mapping[str, Any]) -> BrokerOptions:
    """A node whose cluster connection begins with these others."""
    connectors = tuple(
        ConnectorOptions(f"to-node{each}" if each != number else "own", f"node{each}", PORT, tls_enabled=False)
        for each in sorted({*dialled, number})
    )
    values: dict[str, Any] = {
        "name": "c", "connector-ref": "own", "static-connectors": [f"to-node{each}" for each in dialled],
        "check-period": 3000, "connection-ttl": 6000, "retry-interval": 50, "max-retry-interval": 400,
        "call-timeout": 2000, "notification-interval": 100, **changes,
    }  # fmt: skip
    settings = options.address_settings
    built_in = replace(settings.built_in, redistribution_delay=0, max_delivery_attempts=-1)
    listener = replace(
        default_listener(), name="cluster", kind="cluster", port=PORT, sasl_mechanisms=("SCRAM-SHA-256",),
        idle_timeout_ms=6000,
    )  # fmt: skip
    return replace(
        options,
        listeners=(*options.listeners, listener),
        connectors=connectors,
        cluster_connections=(cluster_connection(ClusterConnectionTable.model_validate(values)),),
        address_settings=replace(settings, built_in=built_in),
    )


def grouped(options: BrokerOptions, *, is_arbiter: bool) -> BrokerOptions:
    """A node with a grouping handler. Queues stay, so that none hands its groups on."""
    settings = options.address_settings
    built_in = replace(settings.built_in, auto_delete_queues=False)
    handler = replace(options.grouping_handler, type="LOCAL" if is_arbiter else "REMOTE", timeout=1000)
    return replace(options, grouping_handler=handler, address_settings=replace(settings, built_in=built_in))


class ClusterSimulation:
    """Builds a history from its seed and runs it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = World(seed)
        self.network = Network(self.world)
        self.history = History(is_several_nodes=True)
        self.counts: dict[str, int] = {}
        rng = self.world.rng
        count = rng.choice((2, 2, 3, 3, 4, 5))
        self.book = Book() if random.Random(f"groups {seed}").random() < GROUPED_SHARE else None
        self.shape = CHAIN if count > 2 and rng.random() < 0.25 else MESH
        self.mode = rng.choice(("ON_DEMAND", "ON_DEMAND", "ON_DEMAND", "OFF_WITH_REDISTRIBUTION"))
        faults = Faults(write_error=rng.choice((0, 0, 0.002)), sync_error=rng.choice((0, 0, 0.002)))
        self.nodes = [self._node(number, count, faults) for number in range(count)]
        self.queues = [f"node0-q{number}" for number in range(rng.choice((1, 2)))]
        for node in self.nodes:
            node.start()
        self.clients: list[Client] = []
        self._populate()
        self._faults: list[tuple[str, Callable[[], None]]] = [
            ("kill", lambda: self._crash(power_cut=False)),
            ("power cut", lambda: self._crash(power_cut=True)),
            ("clean stop", self._clean_stop),
            ("pause", lambda: rng.choice(self.nodes).freeze(rng.random() * 400)),
            ("long pause", lambda: rng.choice(self.nodes).freeze(3000 + rng.random() * 6000)),
            ("link reset", self._reset_wire),
            ("client reset", self._reset_client),
            ("partition", self._partition),
            ("one-way cut", self._one_way),
            ("flapping", self._flap),
        ]

    def _node(self, number: int, count: int, faults: Faults) -> SimNode:
        rng = self.world.rng
        options = options_for(rng.choice((8192, 65536, 1 << 20)), 1 << 28, rng.choice((3, 100)))
        changes: dict[str, Any] = {"message-load-balancing": self.mode}
        if self.shape == CHAIN:
            dialled = [each for each in (number - 1, number + 1) if 0 <= each < count]
            changes |= {"max-hops": count, "allow-direct-connections-only": True}
        else:
            dialled = [each for each in range(count) if each != number]
            if rng.random() < 0.3:
                dialled = dialled[:1]  # the topology tells of the others
        options = clustered(options, number, dialled, changes)
        if self.book is not None:
            options = grouped(options, is_arbiter=number == 0)
        node = SimNode(self.world, f"node{number}", options, faults)
        node.identity = {"node_id": node_id(number), "cluster_key": KEY}
        self.network.add(node)
        return node

    def _populate(self) -> None:
        rng = self.world.rng
        for queue in self.queues:
            for number in range(rng.choice((1, 2, 4))):
                node, count = rng.choice(self.nodes), rng.choice((10, 40, 120))
                self.clients.append(Producer(self.world, node, f"{queue}-p{number}", self.history, queue, count))
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

    # -- faults --------------------------------------------------------------------------------------------------------

    def _crash(self, *, power_cut: bool) -> None:
        node = self.world.rng.choice(self.nodes)
        node.crash(power_cut=power_cut)
        self._revive(node)

    def _clean_stop(self) -> None:
        node = self.world.rng.choice(self.nodes)
        node.stop()
        self._revive(node)

    def _revive(self, node: SimNode) -> None:
        def start() -> None:
            if not node.is_up:
                for sent in self.history.sent.values():
                    sent.is_exempt = sent.is_exempt or not sent.is_durable
                node.start()

        self.world.after(20 + self.world.rng.random() * 400, start)

    def _reset_wire(self) -> None:
        wires = self.network.wires()
        if wires:
            self.world.rng.choice(wires).reset()

    def _reset_client(self) -> None:
        node = self.world.rng.choice(self.nodes)
        pipes = list(node.pipes.values())
        if pipes:
            node.reset(self.world.rng.choice(pipes))

    def _partition(self) -> None:
        """Some nodes against the others."""
        rng = self.world.rng
        names = [node.name for node in self.nodes]
        some = rng.sample(names, rng.randrange(1, len(names)))
        others = [name for name in names if name not in some]
        pairs = [pair for a in some for b in others for pair in ((a, b), (b, a))]
        self.network.cut(pairs, rng.choice((50, 500, 4000)))

    def _one_way(self) -> None:
        a, b = self.world.rng.sample(self.nodes, 2)
        self.network.cut([(a.name, b.name)], self.world.rng.choice((50, 500, 4000)))

    def _flap(self) -> None:
        a, b = self.world.rng.sample(self.nodes, 2)
        for number in range(6):
            self.world.after(number * 80, lambda: self.network.cut([(a.name, b.name), (b.name, a.name)], 40))

    def _plan_faults(self) -> None:
        rng = self.world.rng
        for _ in range(rng.choice((0, 2, 5, 12))):
            name, fault = rng.choice(self._faults)
            self.counts[name] = self.counts.get(name, 0) + 1
            self.world.after(rng.random() * BUSY_MS, fault)

    # -- the whole -----------------------------------------------------------------------------------------------------

    def run(self) -> ClusterVerdict:
        """The history from beginning to end."""
        self._plan_faults()
        for at_ms in range(0, BUSY_MS, 250):
            self.world.run(at_ms)
            self._revive_all()
        self.world.run(BUSY_MS + 5_000)
        for client in self.clients:
            client.stop()
        for node in self.nodes:
            node.disk.faults = Faults()
        for at_ms in range(BUSY_MS + 5_000, BUSY_MS + 15_000, 250):
            self._revive_all()  # one that was paused may stop only now
            self.world.run(at_ms)
        self.world.run(BUSY_MS + 20_000)
        left = self._drain()
        stores = [node.broker.store for node in self.nodes]
        sent = self.history.sent.values()
        return ClusterVerdict(
            self.seed, self.world.trace, self.history.check_drained(left) + self._where() + self._groups_found(),
            len(self.nodes), self.shape,
            len(sent), sum(each.outcome == "accepted" for each in sent), self.history.received.total(),
            sum(node.epoch for node in self.nodes), sum(store.arrivals.arrived_total for store in stores),
            sum(store.redistribution.moved_total for store in stores),
            sum(store.arrivals.dropped_total for store in stores), self.world.steps, self.counts,
            0 if self.book is None or self._is_unsteady else self.book.count,
        )  # fmt: skip

    def _revive_all(self) -> None:
        for node in self.nodes:
            if not node.is_up:
                self._revive(node)

    def _drain(self) -> int:
        """Consumers at one node take everything that is anywhere."""
        node = self.world.rng.choice(self.nodes)
        for queue in self.queues:
            Consumer(self.world, node, f"drain-{queue}", self.history, queue, is_drain=True)
        for number, each in enumerate(self.nodes if self.book is not None else ()):
            assert self.book is not None
            GroupConsumer((self.world, each), f"drain-{QUEUE}-{number}", self.history, self.book, is_drain=True)
        self.world.run(BUSY_MS + QUIET_MS, lambda: self._depth() == 0)
        self.world.run(self.world.now_ns // 1_000_000 + 500)
        return self._depth()

    @property
    def _is_unsteady(self) -> bool:
        """Whether a node has left, so that its groups went elsewhere; in a chain a cut takes queues behind it away."""
        return self.shape == CHAIN or any(UNSTEADY & node.told for node in self.nodes)

    def _groups_found(self) -> list[str]:
        return [] if self.book is None or self._is_unsteady else self.book.found()

    def _depth(self) -> int:
        return sum(queue.message_count for node in self.nodes for queue in node.broker.store.queues.values())

    def _where(self) -> list[str]:
        """What is left, and where: for people."""
        left: Counter[str] = Counter()
        for node in self.nodes:
            for name, queue in node.broker.store.queues.items():
                if queue.message_count:
                    left[f"{node.name} {name}"] = queue.message_count
        return [f"left at {place}: {count}" for place, count in left.items()]
