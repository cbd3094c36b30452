"""Histories in which heirs fall out. A failing seed prints the command that replays it."""

from __future__ import annotations

import pytest
from mqbroker.base.errors import Bug

from tests.sim.days import of_today, share_of_today
from tests.sim.fallen_heirs import FallenHeirs
from tests.sim.heir_bugs import HEIR_BUGS

SEEDS = range(1, 41)  # some of them each day
EACH_DAY = 4
EACH_TIME = (0, 2030)  # the next one takes over; its answer came when the queue went elsewhere
BUG_SEEDS = (137, *range(100))  # the first one has messages apart that are taken out by nobody, which is rare


def test_all_comes_once_whichever_heir_falls_out() -> None:
    went_on, moved = 0, 0
    for seed in (*EACH_TIME, *of_today(SEEDS, EACH_DAY)):
        history = FallenHeirs(seed)
        assert history.run().violations == [], f"replay with: python -m tests.sim --fallen-heirs {seed}"
        went_on, moved = went_on + history.went_on, moved + history.moved
    assert min(went_on, moved) > 0


def _is_found(seed: int) -> bool:
    try:
        return bool(FallenHeirs(seed).run().violations)
    except Bug:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("name", share_of_today(HEIR_BUGS))
def test_a_bug_is_found(name: str) -> None:
    with HEIR_BUGS[name]():
        assert any(map(_is_found, BUG_SEEDS))
