"""Histories of nodes that find each other by names. A failing seed prints the command that replays it."""

from __future__ import annotations

from unittest.mock import patch

from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.node.cluster.listed_places import ListedPlaces

from tests.sim.named import NamedClusters

SEEDS = range(10)
BUG_SEEDS_MAX = 40


def test_nodes_that_find_each_other_by_names_lose_nothing_and_are_whole_at_the_end() -> None:
    answers = 0
    for seed in SEEDS:
        history = NamedClusters(seed)
        assert history.run().violations == [], f"replay with: python -m tests.sim --named {seed}"
        answers += history.answers
    assert answers > 0


def _deaf(self: ListedPlaces, connector: Connector) -> None:
    """Places of names are heard of, and nobody dials them."""


def test_nodes_that_dial_no_place_of_a_name_are_found() -> None:
    with patch.object(ListedPlaces, "add", _deaf):
        assert any(NamedClusters(seed).run().violations for seed in range(BUG_SEEDS_MAX))
