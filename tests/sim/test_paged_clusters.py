"""Histories of clusters that page. A failing seed prints the command that replays it."""

from __future__ import annotations

from unittest.mock import patch

from mqbroker.core.paging.paging import Paging
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.queue import Queue

from tests.sim.paged_clusters import PagedClusters
from tests.support.values import replaced

SEEDS = range(8)
BUG_SEEDS_MAX = 60
FOUND_BY = 49
_PUBLISH = Paging.publish


def _uncounted(self: Paging, part: Segment, durable: tuple[int, ...], queues: list[Queue]) -> None:
    """Nobody knows of what was paged how often it was delivered."""
    _PUBLISH(self, replaced(part, deliveries=0), durable, queues)


def test_nothing_is_lost_doubled_or_left_behind() -> None:
    forwarded = 0
    for seed in SEEDS:
        verdict = PagedClusters(seed).run()
        assert verdict.violations == [], f"replay with: python -m tests.sim --paged-cluster {seed}"
        forwarded += verdict.forwarded
    assert forwarded > 0


def test_counts_that_pages_forget_are_found() -> None:
    with patch.object(Paging, "publish", _uncounted):
        assert any(PagedClusters(seed).run().violations for seed in (FOUND_BY, *range(BUG_SEEDS_MAX)))
