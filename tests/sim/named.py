"""Histories of clusters whose nodes find each other by names of DNS, of which answers change, vanish, and come twice.

Each node asks by itself, so that two of them may know different answers at a time: some places, none, places twice, and
places where nobody is. Beside that all faults of clusters. When the faults are over the name leads to all nodes, and
then each has to be linked with each, beside what is asked of every history.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from mqbroker.config.options import BrokerFile, to_slices
from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values import inputs as given
from mqbroker.node.values.bridge_states import BridgeState

from tests.sim.cluster_shapes import DISCOVERED, PORT
from tests.sim.clusters import BUSY_MS, ClusterSimulation, ClusterVerdict
from tests.sim.network import ClusterNode

NAME: Final = "mq.example.org:5673"
GROUP: Final = {"name": "g", "discovery": "dns", "names": [NAME]}
NOWHERE: Final = ("nobody0", "nobody1")  # places where no node ever is
PERIODS_MS: Final = (50, 200, 700)
SILENT_SHARE: Final = 0.15  # of looks that have no answer
EMPTY_SHARE: Final = 0.1  # of answers that the name does not exist
WHOLE_MS: Final = BUSY_MS + 6_000
SPREAD_MS: Final = 1_000


class NamedClusters(ClusterSimulation):
    """See the module's docstring. `answers` counts those that nodes had."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(f"named {seed}")
        self.answers = 0
        super().__init__(seed)

    def laid_out(self, rng: Random) -> tuple[int, str, str]:
        """Some nodes, none of which is told of another."""
        count, _, mode = super().laid_out(rng)
        return count, DISCOVERED, mode

    def enriched(self, options: BrokerOptions) -> BrokerOptions:
        """Nobody broadcasts, and the group asks for names."""
        found = to_slices(BrokerFile.model_validate({"discovery-groups": [GROUP]}))
        return replace(options, broadcast_groups=(), discovery_groups=found.discovery_groups)

    def plan(self) -> None:
        """Each node looks from time to time, and at the end the name leads to all."""
        super().plan()
        for node in self.nodes:
            period_ms = self.chance.choice(PERIODS_MS)
            for at_ms in range(0, WHOLE_MS, period_ms):
                self.world.after(at_ms + self.chance.random() * period_ms, partial(self._answer, node))
        for node in self.nodes:
            for at_ms in range(WHOLE_MS, WHOLE_MS + 20_000, 1_000):
                late_ms = at_ms + self.chance.random() * SPREAD_MS
                self.world.after(late_ms, partial(self._tell, node, [each.name for each in self.nodes]))

    def _answer(self, node: ClusterNode) -> None:
        dice = self.chance.random()
        if dice < SILENT_SHARE:
            return
        places = [*(each.name for each in self.nodes), *NOWHERE]
        found = self.chance.choices(places, k=self.chance.randrange(1, 2 * len(places)))
        self._tell(node, [] if dice < SILENT_SHARE + EMPTY_SHARE else found)

    def _tell(self, node: ClusterNode, hosts: list[str]) -> None:
        if node.is_up and "g" in node.ears:
            self.answers += 1
            node.give(given.Resolved("g", tuple((NAME, host, PORT) for host in hosts)))

    def run(self) -> ClusterVerdict:
        """The history from beginning to end, and whether the cluster is whole then."""
        verdict = super().run()
        for node in self.nodes:
            (connection,) = node.broker.cluster.connections.values()
            up = sum(each.state is BridgeState.UP for each in connection.bridges.values())
            if up != len(self.nodes) - 1:
                verdict.violations.append(f"{node.name} is linked to {up} of {len(self.nodes) - 1} others")
        return verdict
