"""Seeded histories of clusters in which the journal of a node is wiped or an old copy of it is put back.

What clients have done until then is judged by nobody: an old copy has lost some of it and brings some of it again. From
then on everything holds as in any history: what is accepted at any node comes to a consumer, once, whatever falls and
breaks. The node is killed before its links stand, too. At the end all nodes know each other in the processes that there
are, and none was taken for two.
"""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Final

from tests.sim.clients import Client, Consumer, Producer
from tests.sim.cluster_faults import ClusterFaults
from tests.sim.cluster_shapes import clustered, node_id
from tests.sim.disk import Faults
from tests.sim.network import CONNECT_TIMEOUT_MS, ClusterNode, Network
from tests.sim.world import World, options_for
from tests.support.checker import History
from tests.support.old_journals import Files

KEY: Final = b"simulated cluster".ljust(32, b"\0")
QUEUE: Final = "node0-q0"
BEFORE_MS: Final = 400  # of each stretch that nobody judges
AFTER_MS: Final = 2_000
SETTLING_MS: Final = 6_000
QUIET_MS: Final = 60_000


@dataclass(slots=True)
class OldCopiesVerdict:
    """What came of one history."""

    seed: int
    violations: list[str]
    nodes: int
    accepted: int
    forwarded: int
    again: int  # messages that were sent again and dropped


class OldCopies:
    """Builds a history from its seed and runs it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = World(seed)
        self.network = Network(self.world)
        self.rng: random.Random = self.world.rng
        count = self.rng.choice((2, 2, 3))
        self.nodes = [self._node(number, count) for number in range(count)]
        for node in self.nodes:
            node.start()
        self.victim = self.rng.choice(self.nodes)
        self.until_ms = 0

    def _node(self, number: int, count: int) -> ClusterNode:
        options = options_for(self.rng.choice((8192, 65536)), 1 << 28, self.rng.choice((3, 100)))
        options = clustered(options, number, [each for each in range(count) if each != number], {})
        node = ClusterNode(self.world, f"node{number}", options, Faults())
        node.identity = {"node_id": node_id(number), "cluster_key": KEY}
        self.network.add(node)
        return node

    def run(self) -> OldCopiesVerdict:
        """The history from beginning to end."""
        before = History(is_several_nodes=True)
        clients = self._clients(before, "old", 60)
        for number in range(self.rng.choice((1, 2, 3))):
            if number:
                clients += self._clients(before, f"old{number}", 20)
            self._pass(BEFORE_MS)
            copy = deepcopy(self.victim.disk.stable)
            for _ in range(self.rng.choice((0, 1, 2))):
                self._start_again(None)
                self._pass(BEFORE_MS)
            for client in clients:
                client.stop()
            self._pass(self.rng.random() * 50)
            self._start_again({} if self.rng.random() < 0.4 else copy)
            for _ in range(self.rng.choice((0, 1, 2))):
                self._pass(self.rng.random() * 60)
                self._start_again(None)
        return self._judge(before)

    def _judge(self, before: History) -> OldCopiesVerdict:
        after = History(is_several_nodes=True)
        after.sent = {
            name: replace(sent, is_exempt=True, outcome="unknown") for name, sent in before.sent.items()
        }  # what is left of it comes to whoever asks
        clients = self._clients(after, "new", 80)
        faults = ClusterFaults(self.network, self.nodes, [after])
        faults.plan(AFTER_MS)
        for _ in range(0, AFTER_MS, 250):
            self._pass(250)
            faults.revive_all()
        self._pass(SETTLING_MS)
        for client in clients:
            client.stop()
        self.network.calm()
        for _ in range(0, SETTLING_MS, 250):
            self._pass(250)
            faults.revive_all()
        Consumer(self.world, self.rng.choice(self.nodes), "drain", after, QUEUE, is_drain=True)
        self.world.run(self.until_ms + QUIET_MS, lambda: self._depth() == 0)
        self.world.run(self.world.now_ns // 1_000_000 + 500)
        # Who dials in vain hears of it late, and only then dials again.
        dialled_ms = self.world.now_ns // 1_000_000 + CONNECT_TIMEOUT_MS + SETTLING_MS
        self.world.run(dialled_ms, lambda: not self._strangers())
        stores = [node.broker.store for node in self.nodes]
        return OldCopiesVerdict(
            self.seed, after.check_drained(self._depth()) + self._strangers(), len(self.nodes),
            sum(each.outcome == "accepted" for each in after.sent.values()),
            sum(store.arrivals.arrived_total for store in stores),
            sum(store.arrivals.dropped_total for store in stores),
        )  # fmt: skip

    def _clients(self, history: History, name: str, count: int) -> list[Client]:
        """Who sends durable messages at each node, and consumers at some."""
        found: list[Client] = []
        for number, node in enumerate(self.nodes):
            producer = Producer(self.world, node, f"{name}-p{number}", history, QUEUE, count)
            producer.durable_share, producer.is_settled = 1.0, False
            found.append(producer)
        found += [
            Consumer(self.world, node, f"{name}-c{number}", history, QUEUE)
            for number, node in enumerate(
                self.rng.choices([each for each in self.nodes if each is not self.victim], k=2)
            )
        ]
        return found

    def _pass(self, duration_ms: float) -> None:
        self.until_ms += int(duration_ms)
        self.world.run(self.until_ms)

    def _start_again(self, files: Files | None) -> None:
        """The node is killed or stops in order, and begins with what its disk has, or with these files."""
        victim = self.victim
        if self.rng.random() < 0.3:
            victim.stop()
            self._pass(200)
        victim.crash(power_cut=self.rng.random() < 0.5)
        if files is not None:
            victim.disk.stable = deepcopy(files)
            victim.positions.clear()
        victim.start()

    def _depth(self) -> int:
        return sum(queue.message_count for node in self.nodes for queue in node.broker.store.queues.values())

    def _strangers(self) -> list[str]:
        """Nodes that another one does not know, knows in another process, or takes for two."""
        found = [f"{node.name} tells of a split brain" for node in self.nodes if "cluster-split-brain" in node.told]
        living = {node.identity["node_id"]: node.broker.boot_id for node in self.nodes}
        for node in self.nodes:
            members = node.broker.cluster.connections["c"].topology.members
            known = {each.node_id: each.boot_id for each in members}
            if known != living:
                found.append(f"{node.name} knows {known}, and there are {living}")
        return found
