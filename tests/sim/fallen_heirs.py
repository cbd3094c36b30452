"""Histories in which a node leaves, and the heir falls out half-way for so long that the next one takes over.

Beside that all faults of clusters, and in the same histories single queues that drain, are called off, and nodes that
are cordoned. Who fell out comes back at last, with what it had: all that was accepted anywhere has to come, once, and
each receipt that was looked at when all had gone has to balance, over all its heirs. In some an address keeps messages
for later queues: each is at one node then, which has it once. In some a third node with subscriptions takes what comes
just before the other one leaves, its answers are lost, and it falls: what it may have waits for it, under its old ids.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values.effects import AdminReply

from tests.sim.clients import Producer
from tests.sim.cluster_faults import ClusterFaults
from tests.sim.cluster_shapes import MESH
from tests.sim.clusters import BUSY_MS, ClusterSimulation, ClusterVerdict
from tests.sim.drained import GRACE_MS, LeavingClusters
from tests.sim.kept import ADDRESS, KeptPublisher, keeping, lost_or_twice
from tests.sim.network import ClusterNode
from tests.sim.topics import Publisher
from tests.support.checker import History

NODES: Final = 3
MESSAGES: Final = 40  # of each producer
HEIR_TIMEOUT_MS: Final = 1_000
AWAY_MS: Final = (500, 8_000)
SHARE: Final = 0.4  # of histories with a person who names another node, with single drains, with a cordon
FALLS_TOO_SHARE: Final = 0.5  # of those that leave
DRAINS: Final = 3
LEAVES_MS: Final = 600
AGAIN_MS: Final = 300
LOOKS_MS: Final = 250
MUTE_MS: Final = 100
NAMED_WITHIN_MS: Final = 3_000
FALLS_WITHIN_MS: Final = 2_000


class LongFaults(ClusterFaults):
    """Some nodes stay away for longer. `away`: until when, in ms of the history."""

    def __init__(self, faults: ClusterFaults) -> None:
        super().__init__(faults.network, faults.nodes, faults.histories)
        self.away: dict[ClusterNode, float] = {}

    def revive(self, node: ClusterNode, delay_ms: float | None = None) -> None:
        """As ever, but not before it may come back."""
        left_ms = self.away.get(node, 0) - self.world.now_ns / 1_000_000
        if left_ms > 0:
            self.world.after(left_ms + 1, partial(self.revive, node))  # a part of a ns would be none
        else:
            super().revive(node, delay_ms)


class FallenHeirs(LeavingClusters):
    """See the module's docstring. `went_on` counts heirs that another one took the place of, `apart` messages that
    waited for their answers, `unanswered` copies that a third node may have as its neighbour begins to leave."""

    def __init__(self, seed: int) -> None:
        self.went_on = self.apart = self.unanswered = 0
        self.kept = History(is_several_nodes=True)  # of what is kept for later queues
        super().__init__(seed)
        self.faults: LongFaults = LongFaults(self.faults)

    def laid_out(self, rng: Random) -> tuple[int, str, str]:
        """Nodes that are all linked, so that there is a next one."""
        return NODES, MESH, "OFF_WITH_REDISTRIBUTION"

    def enriched(self, options: BrokerOptions) -> BrokerOptions:
        """Who is silent is passed over soon; little is unanswered at a time."""
        (connection,) = options.cluster_connections
        narrow = replace(connection, confirmation_window_size=self.world.rng.choice((500, 2_000, 20_000)))
        scale_down = replace(options.scale_down, heir_timeout=HEIR_TIMEOUT_MS)
        enriched = replace(options, scale_down=scale_down, cluster_connections=(narrow,))
        return keeping(enriched) if self.has_kept else enriched

    @property
    def has_lost_answers(self) -> bool:
        """Whether answers of a third node are lost; by dice of its own, too."""
        return Random(f"answers {self.seed}").random() < SHARE

    @property
    def has_topic(self) -> bool:
        """Always where answers are lost, as copies are what is owed to a node."""
        return super().has_topic or self.has_lost_answers

    @property
    def has_kept(self) -> bool:
        """Whether an address keeps messages for later queues; by dice of its own, so that others stay what they are."""
        return Random(f"kept {self.seed}").random() < SHARE

    def _populate(self) -> None:
        """Much waits at all nodes before one leaves, and stays there."""
        for queue in self.queues:
            for number, node in enumerate(self.nodes):
                producer = Producer(self.world, node, f"{queue}-p{number}", self.history, queue, MESSAGES)
                producer.pace_ms = 2
                self.clients.append(producer)
        for node in self.nodes if self.has_kept else ():
            publisher = KeptPublisher(self.world, node, f"{ADDRESS}-{node.name}", self.kept, ADDRESS, MESSAGES)
            publisher.pace_ms = 20
            self.clients.append(publisher)

    def run(self) -> ClusterVerdict:
        """The history from beginning to end: one node leaves, so that there is a next heir."""
        rng = self.world.rng
        node, other = rng.sample(self.nodes, 2)
        leaves_ms = LEAVES_MS + rng.random() * LEAVES_MS
        self.world.after(leaves_ms, partial(self._leave, node, other))
        if self.has_lost_answers:
            third = next(each for each in self.nodes if each not in (node, other))
            self.world.after(leaves_ms - 3 * MUTE_MS, partial(self._publish_at, node))
            self.world.after(leaves_ms - MUTE_MS, partial(self._lose_answers, node, third))
        for at_ms in range(0, BUSY_MS + max(AWAY_MS), LOOKS_MS):
            for each in self.nodes:
                self.world.after(at_ms, partial(self._look, each))
        verdict = ClusterSimulation.run(self)
        verdict.violations += self.wrong + lost_or_twice(self.kept, self.nodes)
        return verdict

    def plan(self) -> None:
        """What else happens beside those that leave."""
        super().plan()
        rng = self.world.rng
        for _ in range(DRAINS if rng.random() < SHARE else 0):
            node, other = rng.sample(self.nodes, 2)
            self.world.after(rng.random() * BUSY_MS, partial(self._begin, node, other, rng.choice(self.queues)))
        if rng.random() < SHARE:
            node, at_ms = rng.choice(self.nodes), rng.random() * BUSY_MS
            self.world.after(at_ms, partial(self._ask, node, "cordon"))
            self.world.after(at_ms + rng.random() * BUSY_MS, partial(self._ask, node, "uncordon"))

    def _ask(self, asked: ClusterNode, operation: str, **said: object) -> None:
        if asked.is_up:
            asked.ask(operation, said, self._answered)

    def _answered(self, reply: AdminReply) -> None:
        """Whatever came of it: it may have been refused."""

    def _leave(self, node: ClusterNode, other: ClusterNode) -> None:
        """The heir falls out while queues drain, when clients have left."""
        super()._leave(node, other)
        rng = self.world.rng
        if not self.begun:
            self.world.after(AGAIN_MS, partial(self._try_again, node, other))
        if rng.random() < SHARE:
            self.world.after(GRACE_MS + rng.random() * BUSY_MS, partial(self._kill, node))
        after_ms = GRACE_MS + rng.random() * 100
        self.world.after(GRACE_MS, partial(self._fall_when_sent, node, other, FALLS_WITHIN_MS))
        if rng.random() < SHARE:
            third = rng.choice([each for each in self.nodes if each not in (node, other)])
            self.world.after(after_ms + rng.random() * 2_000, partial(self._go_on, node, third))

    def _publish_at(self, node: ClusterNode) -> None:
        """Copies are on their way when it leaves."""
        publisher = Publisher(self.world, node, f"{self.subscriptions[0].topic}-late", self.subscriptions, MESSAGES)
        publisher.pace_ms = 2 * MUTE_MS
        self.publishers.append(publisher)
        self.clients.append(publisher)
        self.faults.histories.append(publisher.history)

    def _lose_answers(self, node: ClusterNode, third: ClusterNode) -> None:
        """The third node takes what comes, and falls before that is heard."""
        self.network.cut([(third.name, node.name)], 2 * MUTE_MS)
        self.world.after(MUTE_MS + 1, partial(self._note_unanswered, node, third))
        self.world.after(2 * MUTE_MS, partial(self._kill, third))

    def _note_unanswered(self, node: ClusterNode, third: ClusterNode) -> None:
        """When its drain has begun: how many copies it may have, which nobody has heard of."""
        queues = node.broker.store.remotes.queues_of(str(third.identity["node_id"])) if node.is_up else []
        self.unanswered += sum(queue.unanswered_count for queue in queues)

    def _try_again(self, node: ClusterNode, other: ClusterNode) -> None:
        """It was down, or not linked."""
        if not (node.is_up and node.broker.store.remotes.scale_down.is_on) and self.world.now_ns < BUSY_MS * 1_000_000:
            self._leave(node, other)

    def _fall_when_sent(self, node: ClusterNode, heir: ClusterNode, left_ms: int) -> None:
        """As soon as something is without an answer, or not at all where that takes too long. Some of them have taken
        it by then, and only their answers are lost; who leaves may fall with them."""
        drains = node.broker.store.remotes.drains.queues.values() if node.is_up else ()
        counts = [each.handed_over.ids.count for each in drains if each.handed_over is not None]
        if heir.is_up and any(counts):
            rng = self.world.rng
            self.faults.away[heir] = self.world.now_ns / 1_000_000 + rng.choice(AWAY_MS)
            mute_ms = rng.choice((0, MUTE_MS, MUTE_MS))
            if mute_ms:
                self.network.cut([(heir.name, node.name)], mute_ms)
            self.world.after(mute_ms, partial(self._kill, heir))
            if rng.random() < FALLS_TOO_SHARE:
                self.world.after(mute_ms + rng.random() * MUTE_MS, partial(self._kill, node))
                third = next(each for each in self.nodes if each not in (node, heir))
                self.world.after(AGAIN_MS + rng.random() * NAMED_WITHIN_MS, partial(self._go_on, node, third))
        elif left_ms > 0:
            self.world.after(1, partial(self._fall_when_sent, node, heir, left_ms - 1))

    def _go_on(self, node: ClusterNode, other: ClusterNode) -> None:
        """A person names another heir, where the node leaves."""
        if node.is_up and node.broker.store.remotes.scale_down.is_on:
            self._ask(node, "scale-down", node=str(other.identity["node_id"]), force=True)

    def _looked(self, name: str, reply: AdminReply) -> None:
        """What nobody has confirmed is named, as long as that node is away."""
        if reply.result is not None and not reply.result["hindrances"]:
            super()._looked(name, reply)

    def _stay(self, node: ClusterNode) -> None:
        """Also where it was down when its cordon was to end."""
        super()._stay(node)
        self._ask(node, "uncordon")

    def _look(self, node: ClusterNode) -> None:
        if node.is_up:
            record = node.broker.store.remotes.scale_down
            self.went_on = max(self.went_on, len(record.past))
            self.apart += sum(held.message_count for held in record.held)
        super()._look(node)
