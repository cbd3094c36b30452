"""Histories of nodes that find each other by names. A failing seed prints the command that replays it."""

from __future__ import annotations

from typing import Any
from unittest.mock import PropertyMock, patch

import pytest
from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.cluster.discovery.group import DiscoveryGroup
from mqbroker.node.cluster.membership.bridge import Bridge
from mqbroker.node.cluster.membership.cluster_connection import ClusterConnection
from mqbroker.node.cluster.membership.listed_places import ListedPlaces
from mqbroker.node.values.handshake import Hello

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


_told, _adopt = Bridge.told, ClusterConnection.adopt


def _rest_on(self: Bridge, connector: Connector, boot_id: str) -> None:
    """What rests for long is not dialled before that is over."""
    is_doubtful, self.is_doubtful = self.is_doubtful, False
    _told(self, connector, boot_id)
    self.is_doubtful = is_doubtful


def _doubt_on(self: ClusterConnection, bridge: Bridge, hello: Hello) -> bool:
    """A link that was in doubt stays so when a name leads there by another connector."""
    before = self.bridges.get(hello.node_id)
    is_doubtful = before is not None and before.is_doubtful
    is_adopted = _adopt(self, bridge, hello)
    if before is not None and not is_adopted:
        before.is_doubtful = is_doubtful
    return is_adopted


@pytest.mark.parametrize(
    ("of", "name", "bug", "words"),
    [
        (DiscoveryGroup, "unanswered", PropertyMock(return_value=[]), "says that nobody is missing"),
        (Bridge, "told", _rest_on, "has no link"),
        (ClusterConnection, "adopt", _doubt_on, "has no link"),
    ],
)
def test_nodes_that_do_not_see_who_is_missing_or_find_them_late_are_found(
    of: type, name: str, bug: Any, words: str
) -> None:
    with patch.object(of, name, bug):
        found = (said for seed in range(BUG_SEEDS_MAX) for said in NamedClusters(seed).run().violations)
        assert any(words in said for said in found)
