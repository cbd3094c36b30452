"""Histories in which nodes are given up. A failing seed prints the command that replays it."""

from __future__ import annotations

from unittest.mock import patch

from mqbroker.core.cluster.forwarding import Remotes
from mqbroker.core.queue.leaving_reasons import DELETED
from mqbroker.core.queue.queue import Queue, Segment

from tests.sim.given_up import GivenUpClusters

SEEDS = (*range(16), 271100187)  # the last: two nodes that forgot each other were never linked again
BUG_SEEDS_MAX = 60


def _drop(self: Remotes, queue: Queue, segment: Segment) -> None:
    """What waits for a node that is given up is gone."""
    self._store.discard(queue, segment, DELETED)


def test_what_waited_for_a_node_that_is_given_up_comes() -> None:
    given_up = 0
    for seed in SEEDS:
        history = GivenUpClusters(seed)
        assert history.run().violations == [], f"replay with: python -m tests.sim --given-up {seed}"
        given_up += history.given_up
    assert given_up > 0


def test_messages_that_go_with_their_node_are_found() -> None:
    with patch.object(Remotes, "reroute", _drop):
        assert any(GivenUpClusters(seed).run().violations for seed in range(BUG_SEEDS_MAX))
