"""Bugs that show at random: a connection or a node ends, and nothing that was accepted is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.days import of_today
from tests.sim.planted import LOOKS, MUTATORS, PlantedSimulation

SEEDS = (*range(12), *range(1000, 1024), *range(3000, 3012, 3))
CHUNK = 10
CHUNKS_A_DAY = 2
CHUNKS = [SEEDS[start : start + CHUNK] for start in range(0, len(SEEDS), CHUNK)]


@pytest.mark.parametrize("seeds", of_today(CHUNKS, CHUNKS_A_DAY), ids=str)
def test_nothing_is_lost_where_bugs_show(seeds: tuple[int, ...]) -> None:
    shown: Counter[str] = Counter()
    contained = stopped = accepted = 0
    for seed in seeds:
        simulation = PlantedSimulation(seed)
        try:
            verdict = simulation.run()
        except Exception as error:
            error.add_note(f"replay with: python -m tests.sim --bugs {seed}")
            raise
        assert verdict.violations == [], f"replay with: python -m tests.sim --bugs {seed}"
        shown += simulation.plant.shown
        contained += simulation.contained
        stopped += simulation.stopped
        accepted += verdict.accepted
    assert shown.total() == contained + stopped, "each bug ended a connection or a node"
    assert contained > 10
    assert stopped > 10
    assert accepted > 100
    assert len(shown) > (len(LOOKS) + len(MUTATORS)) // 2
