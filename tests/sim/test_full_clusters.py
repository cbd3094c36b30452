"""Histories of clusters with much that can be switched on. A failing seed prints the command that replays it."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from mqbroker.admin.moves import Purge
from mqbroker.core.address.address import Address
from mqbroker.core.queue.queue import Segment
from mqbroker.core.queue.unanswered_forwards import HandedOver

from tests.sim.full_clusters import ADMIN, FEATURES, FullClusters, features_of

EXPIRED_TWICE = 79  # what was at two nodes
DELETED_UNDER_SENDERS = 271100828  # where another node has a queue of that name, and nothing goes there
LINK_LET_GO = 271101260  # before it was answered, and its queue is needed later
PAGE_OF_A_COMPETING_QUEUE = 281200179  # of two that waited for each other's turn
PINNED = (EXPIRED_TWICE, DELETED_UNDER_SENDERS, LINK_LET_GO, PAGE_OF_A_COMPETING_QUEUE)
SEEDS = (*range(16), *PINNED)  # each of FEATURES alone, and draws of them
PURGED_BY = 92  # the search begins there
BUG_SEEDS_MAX = 60


def _wants_all(self: Purge, segment: Segment, index: int) -> bool:
    """A purge takes what it was not asked for."""
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_the_fate_of_each_message_is_known(seed: int) -> None:
    assert FullClusters(seed).run().violations == [], f"replay with: python -m tests.sim --full-clusters {seed}"


def test_each_feature_is_on_alone_and_with_others() -> None:
    drawn = [features_of(seed) for seed in SEEDS]
    for feature in FEATURES:
        assert {feature} in drawn
        assert any(feature in each and len(each) > 1 for each in drawn)


def test_same_seed_same_trace() -> None:
    assert FullClusters(3).run().trace == FullClusters(3).run().trace


def test_a_purge_that_takes_too_much_is_found() -> None:
    seeds = [seed for seed in (PURGED_BY, *range(BUG_SEEDS_MAX)) if ADMIN in features_of(seed)]
    with patch.object(Purge, "wants", _wants_all):
        assert any(FullClusters(seed).run().violations for seed in seeds)


def test_messages_for_a_queue_that_is_gone_are_missed() -> None:
    with patch.object(Address, "has_way", property(lambda self: not self.is_empty)):
        found = FullClusters(DELETED_UNDER_SENDERS).run().violations
    assert any(each.startswith("lost: ") for each in found)


def test_what_expires_at_two_nodes_is_found() -> None:
    with patch.object(HandedOver, "free_count", lambda _self, _first, count: count):
        found = (
            each for seed in (EXPIRED_TWICE, *range(BUG_SEEDS_MAX)) for each in FullClusters(seed).run().violations
        )
        assert any(each.startswith("doubled") for each in found)
