"""Histories of clusters whose nodes find each other by names of DNS, of which answers change, vanish, and come twice.

Each node asks by itself, so that two of them may know different answers at a time: some places, none, places twice, and
places where nobody is. Beside that all faults of clusters. When the faults are over the name leads to all nodes, and
then each has to be linked with each, beside what is asked of every history.

Then one of them falls, for longer than others dial at the full rate, while the name may be gone for a moment and lead
by other connectors than nodes say of themselves. It comes back and is told that the name does not exist: the others
have to find it, and its own canary must not say that nobody is missing before the name has led somewhere for it. In the
end all canaries do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from mqbroker.base.time import NS_PER_MS
from mqbroker.config.declarations.options import BrokerFile, to_slices
from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values import inputs as given
from mqbroker.node.values.bridge_states import BridgeState
from mqbroker.node.values.effects import AdminReply

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
TOLD_MS: Final = WHOLE_MS + 20_000
SPREAD_MS: Final = 1_000
ALIAS: Final = "alias-of-"  # hosts where nodes are reached besides
AWAY_MS: Final = 6_000  # more than 30 attempts take
FOUND_MS: Final = 4_000  # less than one rest of a place that is dialled slowly
CANARY_MS: Final = 5_000


class NamedClusters(ClusterSimulation):
    """See the module's docstring. `answers` counts those that nodes had."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(f"named {seed}")
        self.answers = 0
        self.canaries: dict[str, bool] = {}  # by node: whether all is whole
        super().__init__(seed)
        self.network.nodes |= {ALIAS + node.name: node for node in self.nodes}

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
            for at_ms in range(WHOLE_MS, TOLD_MS, 1_000):
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
        if not verdict.violations:
            verdict.violations.extend(self._one_falls())
        return verdict

    # -- one falls, and comes back -------------------------------------------------------------------------------------

    def _one_falls(self) -> list[str]:
        """What went wrong then, in words."""
        self.world.run(TOLD_MS + SPREAD_MS)  # so that nobody hears answers of before
        fallen = self.chance.choice(self.nodes)
        others = [node for node in self.nodes if node is not fallen]
        prefix = self.chance.choice(("", ALIAS))
        self._all_hear(self.nodes, prefix)
        if self.chance.random() < 0.5:
            self._all_hear(others, None)
            self._all_hear(others, prefix)
        fallen.crash(power_cut=False)
        is_named_again = self.chance.random() < 0.5
        self._pass(500)
        if is_named_again:
            self._all_hear(others, None)
        self._pass(AWAY_MS)
        fallen.start()
        self._pass(500)
        self._all_hear([fallen], None)  # as a host says that has no name server yet
        if is_named_again:
            self._all_hear(others, prefix)
        self._pass(FOUND_MS)
        node_id = fallen.broker.node_id
        lost = [node.name for node in others if self._state(node, node_id) is not BridgeState.UP]
        said = [f"{name} has no link to {fallen.name}, which is back" for name in lost]
        if self._is_whole(fallen):
            said.append(f"{fallen.name} had no answer from DNS and says that nobody is missing")
        self._all_hear(self.nodes, prefix)
        return said + [f"{node.name} says that somebody is missing" for node in self.nodes if not self._is_whole(node)]

    def _pass(self, duration_ms: int) -> None:
        self.world.run(self.world.now_ns // NS_PER_MS + duration_ms)

    def _all_hear(self, nodes: list[ClusterNode], prefix: str | None) -> None:
        """The name leads to all nodes, by these hosts (a node knows its own place); None: to nobody."""
        for node in nodes:
            others = [] if prefix is None else [prefix + each.name for each in self.nodes if each is not node]
            self._tell(node, others if prefix is None else [node.name, *others])
        self._pass(1_000)

    def _state(self, node: ClusterNode, node_id: str) -> BridgeState | None:
        (connection,) = node.broker.cluster.connections.values()
        bridge = connection.bridges.get(node_id)
        return None if bridge is None else bridge.state

    def _is_whole(self, node: ClusterNode) -> bool:
        self.canaries.pop(node.name, None)
        node.ask("cluster-canary", {"timeout_ms": CANARY_MS}, partial(self._crossed, node.name))
        self.world.run(self.world.now_ns // NS_PER_MS + 2 * CANARY_MS, lambda: node.name in self.canaries)
        return self.canaries.get(node.name, False)

    def _crossed(self, name: str, reply: AdminReply) -> None:
        self.canaries[name] = reply.result is not None and bool(reply.result["is_whole"])
