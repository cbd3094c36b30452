"""What another node says on the attach of a link is not taken for more than it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mqbroker.core.cluster.id_digest import NO_IDS
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.node.cluster.forwarding import forwarding_terms as terms
from mqbroker.wire.performatives import Attach, Target

ATTRIBUTES = {
    name: value
    for name, value in QueueKind("orders", "orders", "anycast").attributes().items()
    if name not in terms.OF_HERE
}


def wanted(said: Any = None, **changes: Any) -> QueueKind | None:
    return terms.queue_wanted(json.dumps({**ATTRIBUTES, **changes}) if said is None else said, "orders")


def test_attributes_of_a_queue_come_back() -> None:
    assert wanted() == QueueKind("orders", "orders", "anycast")


@pytest.mark.parametrize("changes", [{"address": "other"}, {"is_durable": False}, {"drains_as": "x"}, {"maker": "x"}])
def test_what_is_no_queue_that_drains_here_is_none(changes: dict[str, Any]) -> None:
    assert wanted(**changes) is None


@pytest.mark.parametrize(
    "said",
    [b"{}", "", "[]", "[" * 60_000, json.dumps(ATTRIBUTES) + " " * terms.ATTRIBUTES_SIZE_MAX],
    ids=["bytes", "nothing", "list", "deep", "long"],
)
def test_what_cannot_be_read_or_is_too_long_is_none(said: Any) -> None:
    assert wanted(said) is None


def test_a_digest_of_another_size_says_nothing() -> None:
    answers = [
        Attach(name="l", handle=0, role=True, target=Target(dynamic_node_properties={terms.ARRIVED: packed}))
        for packed in (NO_IDS.packed(), NO_IDS.packed() + b"x", b"", "text")
    ]
    assert [terms.arrived_in(answer) for answer in answers] == [NO_IDS, None, None, None]
