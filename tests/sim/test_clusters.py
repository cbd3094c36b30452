"""Histories of clusters, others each day. A failing seed prints the command that replays it; CLUSTER_SEEDS=0-500 says
which seeds instead."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from mqbroker.core.cluster import arrivals
from mqbroker.core.queue import unanswered_forwards
from mqbroker.node.cluster.membership import forwards

from tests.sim.cluster_bugs import CLUSTER_BUGS
from tests.sim.cluster_shapes import CHAIN, DISCOVERED, MESH, MODES, RING
from tests.sim.clusters import BUSY_MS, ClusterSimulation, ClusterVerdict
from tests.sim.days import DAY, share_of_today
from tests.sim.directed_clusters import DIRECTED, SEEDS, TwoNodes, Unanswered
from tests.sim.search import shows

CHUNK = 25
SEEDS_A_DAY = 50
# Every seed that ever failed stays here.
REGRESSIONS = (121000049, 125002559)


def _chunks() -> list[range]:
    today = DAY * SEEDS_A_DAY
    first, _, last = os.environ.get("CLUSTER_SEEDS", f"{today}-{today + SEEDS_A_DAY}").partition("-")
    seeds = range(int(first), int(last))
    return [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]


def run(seed: int) -> ClusterVerdict:
    """One history; a failure of any kind names its seed."""
    try:
        return ClusterSimulation(seed).run()
    except Exception as error:
        error.add_note(_replay(seed))
        raise


def _replay(seed: int) -> str:
    return f"replay with: python -m tests.sim --cluster {seed}"


@pytest.mark.parametrize("seeds", _chunks(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_nothing_is_lost_doubled_or_left_behind(seeds: range) -> None:
    forwarded = 0
    for seed in seeds:
        verdict = run(seed)
        assert verdict.violations == [], _replay(seed)
        forwarded += verdict.forwarded
    assert forwarded > 0


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_once_failed(seed: int) -> None:
    assert run(seed).violations == []


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source holds back to half of what is remembered, and what was lost comes first: any size will do."""
    monkeypatch.setattr(arrivals, "IDS_MAX", 16)
    monkeypatch.setattr(unanswered_forwards, "WINDOW", 8)
    monkeypatch.setattr(forwards, "ANSWERED_MAX", 3)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("seed", range(700, 706))
def test_nodes_that_remember_little_of_each_other(seed: int) -> None:
    assert run(seed).violations == []


@pytest.mark.usefixtures("small_memory")
def test_what_has_no_answer_comes_again_and_is_known_though_little_is_remembered() -> None:
    """Far more arrives than is remembered, some of it again, and each message is taken once."""
    verdicts = [Unanswered(seed).run() for seed in SEEDS[:3]]
    assert [verdict.violations for verdict in verdicts] == [[], [], []]
    assert all(verdict.again > 0 for verdict in verdicts)
    assert sum(verdict.forwarded for verdict in verdicts) > 100 * unanswered_forwards.WINDOW


@pytest.mark.parametrize("seed", [0, 6, 10])
def test_same_seed_same_trace(seed: int) -> None:
    assert run(seed).trace == run(seed).trace


def test_histories_have_all_faults_shapes_and_modes() -> None:
    built = [ClusterSimulation(seed) for seed in range(100)]
    planned = Counter[str]()
    for each in built:
        each.faults.plan(BUSY_MS)
        planned.update(each.faults.counts)
    assert len(planned) >= 16  # two need discovery
    assert {each.shape for each in built} == {MESH, CHAIN, RING, DISCOVERED}
    assert {each.mode for each in built} == set(MODES)
    assert max(len(each.nodes) for each in built) >= 6


def test_histories_come_to_what_they_are_for() -> None:
    # In one history of fifteen something is sent again that was taken before: in the last ones here it is.
    verdicts = [run(seed) for seed in (*range(6), 37, 71, 104)]
    assert sum(verdict.moved for verdict in verdicts) > 0
    assert sum(verdict.again for verdict in verdicts) > 0
    assert sum(verdict.published for verdict in verdicts) > 0
    assert any(verdict.is_shared_alike for verdict in verdicts)


@pytest.mark.parametrize("name", share_of_today(CLUSTER_BUGS))
def test_the_checker_finds_seeded_bugs(name: str) -> None:
    """In histories that are made for it."""
    with CLUSTER_BUGS[name]():
        assert any(shows(DIRECTED[name](seed)) for seed in SEEDS), f"{len(SEEDS)} histories did not show it"


@pytest.mark.parametrize("story", sorted(set(DIRECTED.values()), key=str), ids=lambda story: story.__name__)
def test_histories_that_are_made_for_bugs_are_good_without(story: type[TwoNodes]) -> None:
    for seed in SEEDS[:4]:
        assert story(seed).run().violations == [], f"{story.__name__}({seed})"
