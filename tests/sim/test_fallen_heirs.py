"""Histories in which heirs fall out. A failing seed prints the command that replays it."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from mqbroker.base.errors import Bug

from tests.sim.days import of_today, share_of_today
from tests.sim.fallen_heirs import FallenHeirs
from tests.sim.heir_bugs import HEIR_BUGS
from tests.unit.node.cluster.departure.test_next_heir import BOUND_MS, COUNT, Heirs, names
from tests.unit.node.test_scale_down import shown

SEEDS = range(1, 41)  # some of them each day
EACH_DAY = 4
EACH_TIME = (0, 2030, 4)  # the next one takes over; its answer came when the queue went elsewhere; answers are lost
BUG_SEEDS_MAX = 100
RARE = "what waits apart is not taken out"  # hardly ever in a history that is drawn by lot


def test_all_comes_once_whichever_heir_falls_out() -> None:
    went_on, moved, unanswered = 0, 0, 0
    for seed in (*EACH_TIME, *of_today(SEEDS, EACH_DAY)):
        history = FallenHeirs(seed)
        assert history.run().violations == [], f"replay with: python -m tests.sim --fallen-heirs {seed}"
        went_on, moved = went_on + history.went_on, moved + history.moved
        unanswered += history.unanswered
    assert min(went_on, moved, unanswered) > 0


def _is_found(seed: int) -> bool:
    try:
        return bool(FallenHeirs(seed).run().violations)
    except Bug:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("name", share_of_today(name for name in HEIR_BUGS if name != RARE))
def test_a_bug_is_found(name: str) -> None:
    with HEIR_BUGS[name]():
        assert any(map(_is_found, range(BUG_SEEDS_MAX)))


@pytest.mark.parametrize("name", ["", *HEIR_BUGS])
def test_one_history_that_is_written_down_finds_each(name: str) -> None:
    """The heir has what it did not answer for, is lost, and comes back when the next one has the rest."""
    with HEIR_BUGS[name]() if name else nullcontext():
        of = Heirs()
        of.begin_half(has_it=True)
        of.lose(of.b)
        of.cluster.wait(BOUND_MS + 5_000)
        of.bring_back(of.b)
        of.cluster.wait(5_000)
        said = shown(of.a)
        is_whole = of.everywhere() == names(COUNT)
    assert (is_whole and said["state"] == "moved" and said["receipt"]["balances"]) == (not name)
