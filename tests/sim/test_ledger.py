"""What observers of a store are told balances with what it holds, in any history."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from mqbroker.core.queue.leaving_reasons import ACKNOWLEDGED, LEFT

from tests.sim.clusters import ClusterSimulation
from tests.sim.days import share_of_today
from tests.sim.full_clusters import FullClusters
from tests.sim.histories import FEATURES, LARGE_FROM, PAGING_FROM, TRANSACTIONS, Simulation, seeds_of
from tests.sim.network import ClusterNode
from tests.sim.world import SimNode

POINTS = ("entered", "restored", "returned", ACKNOWLEDGED, *LEFT)
PLAIN = {
    "plain": range(6),
    "transactions": seeds_of(TRANSACTIONS, 6),
    "features": seeds_of(FEATURES, 24),
    "paging": range(PAGING_FROM, PAGING_FROM + 48, 6),
    "large": range(LARGE_FROM + 4, LARGE_FROM + 40, 6),
}


class Observed(Simulation):
    """A history whose nodes are observed, but for one thing that they may say."""

    def __init__(self, seed: int, deaf_to: str = "") -> None:
        self._deaf_to = deaf_to
        super().__init__(seed)

    def made(self, *args: Any) -> SimNode:
        return super().made(*args).observed(self._deaf_to)


class ObservedCluster(ClusterSimulation):
    def _node(self, *args: Any) -> ClusterNode:
        node = super()._node(*args)
        node.observed()
        return node


class ObservedFullCluster(FullClusters):
    def _node(self, *args: Any) -> ClusterNode:
        node = super()._node(*args)
        node.observed()
        return node


def judged(nodes: list[Any]) -> Counter[str]:
    """What was told in a history that is over."""
    told: Counter[str] = Counter()
    for node in nodes:
        assert node.ledgers[-1].compare(node.broker.store) == [], node.name
        assert node.ledgers[-1].miscounted(node.broker.store) == {}, node.name
        for ledger in node.ledgers:
            assert ledger.violations == []
            told += ledger.told
    return told


@pytest.mark.parametrize("kind", PLAIN)
def test_what_observers_hear_balances_with_what_queues_hold(kind: str) -> None:
    told: Counter[str] = Counter()
    for seed in PLAIN[kind]:
        history = Observed(seed)
        assert history.run().violations == [], seed
        told += judged(history.nodes)
    expected = {
        "features": POINTS,
        "paging": ("entered", "restored", "returned", ACKNOWLEDGED, "moved"),
    }.get(kind, ("entered", "restored", "returned", ACKNOWLEDGED))
    assert [point for point in expected if not told[point]] == []


def test_it_does_in_clusters() -> None:
    told: Counter[str] = Counter()
    for seed in range(4):
        cluster = ObservedCluster(seed)
        assert cluster.run().violations == [], seed
        told += judged(cluster.nodes)
    for seed in range(8):
        full = ObservedFullCluster(seed)
        assert full.run().violations == [], seed
        told += judged(full.nodes)
    assert [point for point in ("entered", "restored", "returned", ACKNOWLEDGED, "moved") if not told[point]] == []


def test_a_history_is_the_same_whether_it_is_observed_or_not() -> None:
    for seed in (1, *seeds_of(FEATURES, 2), PAGING_FROM):
        assert Observed(seed).run().trace == Simulation(seed).run().trace


@pytest.mark.parametrize("point", share_of_today(POINTS))
def test_a_point_that_says_nothing_is_noticed(point: str) -> None:
    for seed in PLAIN["features"]:
        history = Observed(seed, deaf_to=point)
        history.run()
        for node in history.nodes:
            node.ledgers[-1].compare(node.broker.store)
            if any(each.violations for each in node.ledgers) or node.ledgers[-1].miscounted(node.broker.store):
                return
    pytest.fail("no history showed that the ledger is not told of it")
