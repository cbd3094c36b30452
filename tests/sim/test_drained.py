"""Histories in which queues drain to other nodes. A failing seed prints what replays it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from mqbroker.core.cluster.arrivals import Arrivals
from mqbroker.core.cluster.drains import Drains
from mqbroker.core.cluster.id_digest import NO_IDS
from mqbroker.core.queue.queue import Queue
from mqbroker.core.queue.unanswered_forwards import HandedOver

from tests.sim.days import of_today, share_of_today
from tests.sim.drained import DrainedClusters, LeavingClusters, LeavingSubscriptions

SEEDS = range(1, 81)  # some of them each day
EACH_DAY = 2
EACH_TIME = (44, 68)  # much is sent again, or called off twice
LEAVING_EACH_TIME = (3, 12)  # in the last one two leave to each other, and are called off
SUBSCRIBED_EACH_TIME = (2, 4)  # in the last one two leave to each other as well
BUG_SEEDS = range(40)
RECEIPT_SEEDS = range(8)


def _is_answered(self: Drains, queue: Queue) -> bool:
    """Whoever calls a drain off need not wait."""
    return True


def _handed_over_is_forgotten(self: HandedOver, first: int, count: int) -> int:
    """What went out is not held against what may go again."""
    return 0


def _digest_is_not_on_disk(self: Arrivals, source: str, first: int, count: int) -> None:
    """What has arrived is counted in memory alone."""
    self._digests[source] = self._digests.get(source, NO_IDS).plus(first, count)


def test_what_drains_comes_once_whatever_is_killed_or_cut() -> None:
    begun, called_off, again = 0, 0, 0
    for seed in (*EACH_TIME, *of_today(SEEDS, EACH_DAY)):
        history = DrainedClusters(seed)
        verdict = history.run()
        assert verdict.violations == [], f"replay with: python -m tests.sim --drained {seed}"
        begun, called_off, again = begun + history.begun, called_off + history.called_off, again + verdict.again
    assert min(begun, called_off, again) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "name", "bug"),
    share_of_today([(Drains, "is_answered", _is_answered), (HandedOver, "awaited_count", _handed_over_is_forgotten)]),
)
def test_a_bug_is_found(of: type, name: str, bug: Callable[..., Any]) -> None:
    with patch.object(of, name, bug):
        assert any(DrainedClusters(seed).run().violations for seed in BUG_SEEDS)


def test_nodes_that_leave_lose_nothing_and_their_receipts_balance() -> None:
    begun, called_off, moved = 0, 0, 0
    for seed in (*LEAVING_EACH_TIME, *of_today(SEEDS, EACH_DAY)):
        history = LeavingClusters(seed)
        verdict = history.run()
        assert verdict.violations == [], f"replay with: python -m tests.sim --leaving {seed}"
        begun, called_off, moved = begun + history.begun, called_off + history.called_off, moved + history.moved
    assert min(begun, called_off, moved) > 0


def test_subscriptions_of_nodes_that_leave_get_each_copy_once() -> None:
    handed_over, moved = 0, 0
    for seed in (*SUBSCRIBED_EACH_TIME, *of_today(SEEDS, EACH_DAY)):
        history = LeavingSubscriptions(seed)
        verdict = history.run()
        assert verdict.violations == [], f"replay with: python -m tests.sim --leaving-subscriptions {seed}"
        handed_over, moved = handed_over + history.handed_over, moved + history.moved
    assert min(handed_over, moved) > 0


@pytest.mark.slow
def test_a_receipt_that_does_not_balance_is_found() -> None:
    with patch.object(Arrivals, "_digest", _digest_is_not_on_disk):
        assert any(LeavingClusters(seed).run().violations for seed in RECEIPT_SEEDS)
