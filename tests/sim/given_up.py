"""Histories of clusters in which nodes are given up while messages for them are handed over.

An administrator forgets nodes that are not reached, or `on-node-lost` does so by itself, and they are back soon. What
waited for them goes elsewhere, and may be at both places, so it may come twice. None of it may be lost. Much of what
full_clusters.py switches on is so here, too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values.effects import AdminReply

from tests.sim.clusters import BUSY_MS, ClusterVerdict
from tests.sim.full_clusters import EXPIRING, LARGE, PAGED, PRIORITIES, SLOW, TRANSACTED, ExplainedHistory, FullClusters
from tests.sim.network import ClusterNode

FEATURES: Final = (LARGE, TRANSACTED, EXPIRING, PRIORITIES, PAGED, SLOW)
ATTEMPTS: Final = 40
GRACES_MS: Final = (None, None, 200, 1_500)


class GivenUpHistory(ExplainedHistory):
    """What was sent before a node was given up may come twice: it is forgiven for all but its loss."""

    is_all_forgiven = False  # nobody tells when

    def receive(self, consumer: str, queue: str, body: bytes, delivery_count: int) -> str | None:
        if self.is_all_forgiven:
            self.forgiven.update(self.sent)
        return super().receive(consumer, queue, body, delivery_count)

    def lost(self) -> list[str]:
        forgiven, self.forgiven = self.forgiven, set()
        found = super().lost()
        self.forgiven = forgiven
        return found


class GivenUpClusters(FullClusters):
    """See the module's docstring. `given_up`: how often somebody was."""

    history_type = GivenUpHistory

    def __init__(self, seed: int) -> None:
        chance = Random(f"given up {seed}")
        self.given_up = 0
        self.grace_ms = chance.choice(GRACES_MS)
        self.drawn = frozenset(each for each in FEATURES if chance.random() < 0.3)
        super().__init__(seed)
        assert isinstance(self.history, GivenUpHistory)
        self.history.is_all_forgiven = self.grace_ms is not None

    def features_for(self, seed: int) -> frozenset[str]:
        """Those that leave nothing else to be explained."""
        return self.drawn

    def enriched(self, options: BrokerOptions) -> BrokerOptions:
        """Who is lost for so long is given up, in some histories."""
        options = super().enriched(options)
        if self.grace_ms is None:
            return options
        lost = {"on_node_lost": "reroute", "node_lost_grace": self.grace_ms}
        return replace(
            options, cluster_connections=tuple(replace(each, **lost) for each in options.cluster_connections)
        )

    def _subscribe(self) -> None:
        """What is owed to subscriptions of a node ends when it is given up."""

    @property
    def _is_unsteady(self) -> bool:
        """So does what it owns of groups."""
        return True

    def run(self) -> ClusterVerdict:
        """The history from beginning to end."""
        for _ in range(ATTEMPTS):
            node, other = self.chance.sample(self.nodes, 2)
            self.world.after(self.chance.random() * BUSY_MS, partial(self._forget, node, other))
        return super().run()

    def _forget(self, node: ClusterNode, other: ClusterNode) -> None:
        """Refused while the other one is linked."""
        if node.is_up:
            node.ask("cluster-forget", {"node_id": other.identity["node_id"]}, self._answered)

    def _answered(self, reply: AdminReply) -> None:
        if reply.result is not None:
            self.given_up += 1
            self.history.forgiven.update(self.history.sent)
