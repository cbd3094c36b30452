"""Histories of clusters that go where a planted bug shows: two nodes, and at each turn what the bug is about.

Each is drawn from a seed as any other, and is good without the bug whatever the seed: all that comes more often than
elsewhere are the moments in which a node must not have answered, forgotten or passed over something.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Final, TypeVar

from tests.sim.clients import Consumer, Producer
from tests.sim.cluster_shapes import MESH
from tests.sim.clusters import BUSY_MS, ClusterSimulation
from tests.sim.network import ClusterNode
from tests.sim.topics import Publisher, Subscriber, Subscription

Taker = TypeVar("Taker", bound=Consumer)
POWER_CUTS_MAX: Final = 8
HOUR_MS: Final = 3_600_000


class Holder(Consumer):
    """Decides on nothing that it takes, and is lost with all of it."""

    def _decide(self, delivery_id: int, message_id: str) -> None:
        """It has it."""

    def fall(self) -> None:
        """Its connection breaks, and it does not come back."""
        self.is_stopped = True
        if self.pipe is not None:
            self.node.reset(self.pipe)


class TwoNodes(ClusterSimulation):
    """A queue at both, whose messages go wherever somebody takes them."""

    has_groups = has_topic = compares_shares = False

    def laid_out(self, rng: random.Random) -> tuple[int, str, str]:
        return 2, MESH, "ON_DEMAND"

    def plan(self) -> None:
        """Nothing."""

    def turns(self, every_ms: int) -> Iterator[float]:
        """Times until all is calm, each somewhere in its turn."""
        for at_ms in range(200, BUSY_MS, every_ms):
            yield at_ms + self.world.rng.random() * every_ms

    def send(self, node: ClusterNode, count: int, pace_ms: int) -> None:
        """Durable messages from a producer at a node, in small runs or one by one."""
        queue = self.queues[0]
        producer = Producer(self.world, node, f"{queue}-p{len(self.clients)}", self.history, queue, count)
        producer.durable_share, producer.is_settled, producer.pace_ms = 1.0, False, pace_ms
        self.clients.append(producer)

    def take(self, node: ClusterNode, kind: type[Taker]) -> Taker:
        """A consumer at a node."""
        queue = self.queues[0]
        consumer = kind(self.world, node, f"{queue}-c{len(self.clients)}", self.history, queue)
        self.clients.append(consumer)
        return consumer

    def fall(self, node: ClusterNode, *, power_cut: bool) -> None:
        node.crash(power_cut=power_cut)
        self.faults.revive(node)


class HandedOver(TwoNodes):
    """What is sent at one node is taken at the other one, whose power goes when it has said something."""

    def _populate(self) -> None:
        source, taker = self.nodes
        for _ in range(2):
            self.send(source, 300, 200)
        self.take(taker, Consumer)
        self._left = POWER_CUTS_MAX
        taker.observers.append(self._said)

    def _said(self, conn: int, data: bytes) -> None:
        """To the other node, while something is on its way to its own disk."""
        taker = self.nodes[1]
        if conn in taker.wires and taker.unsynced and self._left > 0 and self.world.rng.random() < 0.1:
            self._left -= 1
            self.world.after(3, partial(self.fall, taker, power_cut=True))  # when it has arrived, perhaps

    def plan(self) -> None:
        source, taker = self.nodes
        self.network.delay((taker.name, source.name), 60, BUSY_MS)  # so that much has no answer yet
        for number, at_ms in enumerate(self.turns(150)):
            self.world.after(at_ms, self.faults.kinds["link reset" if number % 2 else "reset at a byte"])
        for at_ms in self.turns(900):
            self.world.after(at_ms, partial(self.fall, source, power_cut=self.world.rng.random() < 0.5))
            self.world.after(at_ms + 450, partial(self.fall, taker, power_cut=False))


class Unanswered(TwoNodes):
    """What is sent at one node arrives at the other one, whose answers are held until the link is lost: so all of it
    is sent again, in many pieces, and from the first one on."""

    def _populate(self) -> None:
        source, taker = self.nodes
        for _ in range(2):
            self.send(source, 300, 200)
        self.take(taker, Consumer)

    def plan(self) -> None:
        source, taker = (node.name for node in self.nodes)
        for at_ms in self.turns(700):
            self.world.after(at_ms, partial(self.network.cut, [(taker, source)], 300))
            self.world.after(at_ms + 290, self._lose)

    def _lose(self) -> None:
        for wire in self.network.wires():
            wire.reset()


class Redistributed(TwoNodes):
    """Consumers are at one node, then at the other, and leave what they have taken undecided."""

    def _populate(self) -> None:
        for node in self.nodes:
            self.send(node, 300, 200)

    def plan(self) -> None:
        for number, at_ms in enumerate(range(300, BUSY_MS - 300, 600)):
            node = self.nodes[number % 2]
            self.world.after(at_ms, partial(self._visit, node))
        self.world.after(BUSY_MS / 2, partial(self._set_back, self.nodes[0]))

    def _visit(self, node: ClusterNode) -> None:
        if not node.is_up:
            return
        holder, consumer = self.take(node, Holder), self.take(node, Consumer)
        holder.window = consumer.window = 20
        self.world.after(250, consumer.stop)
        self.world.after(300, holder.fall)

    @staticmethod
    def _set_back(node: ClusterNode) -> None:
        node.skew_ms -= HOUR_MS


class TwoSubscriptions(TwoNodes):
    """A topic of which one node has two subscriptions, and the other one the publishers."""

    has_topic = True

    def _subscribe(self) -> None:
        source, taker = self.nodes
        topic = "node0-q8"
        for number, node in enumerate((taker, taker, source)):
            self.subscriptions.append(Subscription(node, topic, f"s{number}"))
        self.clients += [Subscriber(self.world, each) for each in self.subscriptions]
        publisher = Publisher(self.world, source, f"{topic}-p0", self.subscriptions, 100)
        publisher.durable_share, publisher.is_settled, publisher.pace_ms = 1.0, False, 400
        self.publishers.append(publisher)
        self.clients.append(publisher)

    def _populate(self) -> None:
        """Only what is published."""

    def plan(self) -> None:
        source, taker = (node.name for node in self.nodes)
        for at_ms in self.turns(700):
            self.world.after(at_ms, self.faults.kinds["link reset"])
            self.world.after(at_ms, partial(self.network.cut, [(source, taker), (taker, source)], 400))


class Grouped(TwoNodes):
    """Groups, and the node that decides whose they are falls and comes back."""

    has_groups = True

    def plan(self) -> None:
        for client in self.clients:
            if isinstance(client, Producer):
                client.pace_ms = 200
        for at_ms in self.turns(700):
            self.world.after(at_ms, partial(self.fall, self.nodes[0], power_cut=False))


class Shared(TwoNodes):
    """Nothing happens, and at the end shares are compared."""

    compares_shares = True


# By the name of the bug: the histories that are made for it.
DIRECTED: Final[dict[str, type[TwoNodes]]] = {
    "the source is answered before the disk": HandedOver,
    "arrivals are forgotten at a restart": HandedOver,
    "what is sent again is taken again": HandedOver,
    "a new message is taken for an old one": HandedOver,
    "a lost link loses what was on it": HandedOver,
    "store-and-forward queues are not durable": HandedOver,
    "only the last arrivals are known": Unanswered,
    "redistribution doubles": Redistributed,
    "redistribution forgets deliveries": Redistributed,
    "nothing is redistributed": Redistributed,
    "a late consumer elsewhere finds nothing": Redistributed,
    "redistribution waits for the wall clock": Redistributed,
    "groups go the ordinary way": Grouped,
    "pins are forgotten at a restart": Grouped,
    "the turn never changes": Shared,
    "one copy for all subscriptions of a node": TwoSubscriptions,
    "subscriptions behind a lost link are skipped": TwoSubscriptions,
}
SEEDS: Final = range(6)
