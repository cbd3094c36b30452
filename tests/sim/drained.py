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
from tests.sim.topics import Subscriber, Subscription

ATTEMPTS: Final = 12
CALLED_OFF_SHARE: Final = 0.3
CONSUMED_SHARE: Final = 0.3
CALM_MS: Final = 30_000
LEAVES: Final = 3
KILLED_SHARE: Final = 0.5
GRACE_MS: Final = 1_000
LOOK_EACH_MS: Final = 1_000


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


class LeavingClusters(DrainedClusters):
    """Histories in which whole nodes leave, some of them half-way. `moved` counts receipts that were looked at when all
    had gone, and `wrong` has those that did not balance, which are violations."""

    def __init__(self, seed: int) -> None:
        self.moved = 0
        self.wrong: list[str] = []
        super().__init__(seed)

    def run(self) -> ClusterVerdict:
        """The history from beginning to end."""
        rng = self.world.rng
        for _ in range(LEAVES):
            node, other = rng.sample(self.nodes, 2)
            at_ms = rng.random() * BUSY_MS / 2
            self.world.after(at_ms, partial(self._leave, node, other))
            if rng.random() < KILLED_SHARE:  # while its queues drain, which they do when clients have left
                self.world.after(at_ms + GRACE_MS + rng.random() * 200, partial(self._kill, rng.choice((node, other))))
            if rng.random() < CALLED_OFF_SHARE:
                self.world.after(at_ms + rng.random() * 3_000, partial(self._stay, node))
        for at_ms in range(0, BUSY_MS, LOOK_EACH_MS):
            for node in self.nodes:
                self.world.after(at_ms, partial(self._look, node))
        verdict = ClusterSimulation.run(self)
        verdict.violations += self.wrong
        return verdict

    def _leave(self, node: ClusterNode, other: ClusterNode) -> None:
        if node.is_up:
            wanted = {"node": str(other.identity["node_id"]), "force": True}
            node.ask("scale-down", wanted, self._has_begun)

    def _kill(self, node: ClusterNode) -> None:
        if node.is_up:
            node.crash(power_cut=self.world.rng.random() < KILLED_SHARE)

    def _stay(self, node: ClusterNode) -> None:
        if node.is_up:
            node.ask("scale-down-cancel", {}, self._was_called_off)

    def _look(self, node: ClusterNode) -> None:
        if node.is_up:
            node.ask("scale-down-show", {}, partial(self._looked, node.name))

    def _looked(self, name: str, reply: AdminReply) -> None:
        said = reply.result
        if said is not None and said["state"] == "moved":
            self.moved += 1
            self.wrong += [f"{name}: {each}" for each in said["receipt"]["difference"]]

    def _drain(self) -> int:
        """Whoever reads everything at the end has to be let in; what has to go before that is given time."""
        for node in self.nodes:
            self._kill(node)  # what they said of each other by now is on their disks
        for _ in range(CALM_MS // LOOK_EACH_MS):
            self.faults.revive_all()
            for node in self.nodes:
                self._look(node)
            self.world.run(self.world.now_ns // 1_000_000 + LOOK_EACH_MS)
        for node in self.nodes:
            self._stay(node)
        return super()._drain()

    def _where(self) -> list[str]:
        leaving = [node.name for node in self.nodes if node.broker.store.remotes.scale_down.is_on]
        return super()._where() + [f"does not stay: {name}" for name in leaving]


class LeavingSubscriptions(LeavingClusters):
    """As those, with durable subscriptions: who subscribes comes to the heir as soon as the node is to leave, and
    at the end what waits is read wherever it is. `handed_over` counts subscriptions that an heir has."""

    @property
    def has_topic(self) -> bool:
        """There is one."""
        return True

    def _leave(self, node: ClusterNode, other: ClusterNode) -> None:
        super()._leave(node, other)
        for each in self.subscriptions:
            if each.node is node:
                self.clients.append(Subscriber(self.world, each.at(other)))

    @property
    def handed_over(self) -> int:
        """See the class's docstring."""
        return sum(len(self._holders(each)) - 1 for each in self.subscriptions)

    def _holders(self, subscription: Subscription) -> list[ClusterNode]:
        return [node for node in self.nodes if subscription.queue in node.broker.store.queues]

    def _drain(self) -> int:
        """Subscribers are wherever a subscription was."""
        for each in self.subscriptions:
            for node in self._holders(each):
                if node is not each.node:
                    Subscriber(self.world, each.at(node), is_drain=True)
        return super()._drain()
