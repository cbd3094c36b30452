"""Histories of clusters in which administrators drain queues to other nodes and call that off, under all faults.

Producers and consumers go on, nodes die, links are cut. Two nodes may drain a queue to each other, or in a circle. At
the end all drains are called off, and everything that was accepted anywhere has to come, once.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from mqbroker.node.values.effects import AdminReply

from tests.sim.clients import Consumer, Producer
from tests.sim.clusters import BUSY_MS, ClusterSimulation, ClusterVerdict
from tests.sim.network import ClusterNode

ATTEMPTS: Final = 12
CALLED_OFF_SHARE: Final = 0.3
CONSUMED_SHARE: Final = 0.3
CALM_MS: Final = 30_000


class DrainedClusters(ClusterSimulation):
    """See the module's docstring. `begun` and `called_off` count what was answered."""

    def __init__(self, seed: int) -> None:
        self.begun = 0
        self.called_off = 0
        super().__init__(seed)

    @property
    def has_groups(self) -> bool:
        """Drained groups come where their owner is not."""
        return False

    def _populate(self) -> None:
        """Much waits at all nodes, and few take it."""
        rng = self.world.rng
        for queue in self.queues:
            for number, node in enumerate(self.nodes):
                producer = Producer(self.world, node, f"{queue}-p{number}", self.history, queue, rng.choice((40, 200)))
                producer.pace_ms = rng.choice((2, 10))
                self.clients.append(producer)
            if rng.random() < CONSUMED_SHARE:
                node = rng.choice(self.nodes)
                self.clients.append(Consumer(self.world, node, f"{queue}-c", self.history, queue))

    def run(self) -> ClusterVerdict:
        """The history from beginning to end."""
        rng = self.world.rng
        for _ in range(ATTEMPTS):
            node, other = rng.sample(self.nodes, 2)
            queue = rng.choice(self.queues)
            at_ms = rng.random() * BUSY_MS
            self.world.after(at_ms, partial(self._begin, node, other, queue))
            if rng.random() < CALLED_OFF_SHARE:
                self.world.after(at_ms + rng.random() * 500, partial(self._call_off, node, queue))
        return super().run()

    def _begin(self, node: ClusterNode, other: ClusterNode, queue: str) -> None:
        if node.is_up:
            wanted = {"queue": queue, "node": str(other.identity["node_id"])}
            node.ask("drain-queue", wanted, self._has_begun)

    def _has_begun(self, reply: AdminReply) -> None:
        self.begun += reply.result is not None

    def _call_off(self, node: ClusterNode, queue: str) -> None:
        if node.is_up:
            node.ask("drain-cancel", {"queue": queue}, self._was_called_off)

    def _was_called_off(self, reply: AdminReply) -> None:
        self.called_off += reply.result is not None

    def _drain(self) -> int:
        """Whoever reads everything at the end has to be let in."""
        for node in self.nodes:
            for queue in list(node.broker.store.remotes.drains.queues):
                self._call_off(node, queue)
        self.world.run(self.world.now_ns // 1_000_000 + CALM_MS)
        return super()._drain()

    def _where(self) -> list[str]:
        drains = [(node.name, node.broker.store.remotes.drains.queues) for node in self.nodes]
        return super()._where() + [f"drains on at {name}: {list(queues)}" for name, queues in drains if queues]
