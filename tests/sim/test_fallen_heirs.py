"""Histories in which heirs fall out. A failing seed prints the command that replays it."""

from __future__ import annotations

from tests.sim.days import of_today
from tests.sim.fallen_heirs import FallenHeirs

SEEDS = range(200, 320)  # some of them each day
EACH_DAY = 4
REGRESSIONS = (32,)  # it had moved before one that was back was asked


def test_all_comes_once_whichever_heir_falls_out() -> None:
    went_on, apart, moved = 0, 0, 0
    for seed in (*REGRESSIONS, *of_today(SEEDS, EACH_DAY)):
        history = FallenHeirs(seed)
        assert history.run().violations == [], f"replay with: python -m tests.sim --fallen-heirs {seed}"
        went_on, apart, moved = went_on + history.went_on, apart + history.apart, moved + history.moved
    assert min(went_on, apart, moved) > 0
