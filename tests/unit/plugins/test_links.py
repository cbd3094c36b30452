"""Which links stand, and what is missing of those that stood; whoever waits asks again until the time is over."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import links

TOPOLOGY: dict[str, Any] = {
    "members": [{"node_id": "1", "node": "mq1"}, {"node_id": "2", "node": "mq2"}],
    "links": [
        {"connection": "all", "node_id": "2", "node": "mq2", "state": "up"},
        {"connection": "all", "node_id": "3", "node": None, "state": "resting"},
    ],
    "inbound": ["2"],
}
OUT = {"direction": "out", "connection": "all", "node_id": "2", "node": "mq2"}
IN = {"direction": "in", "connection": "", "node_id": "2", "node": "mq2"}


def canary(state: str, why: str | None = None) -> dict[str, Any]:
    row = {"connection": "all", "node_id": "2", "connector": "amqp://mq2:5673", "state": state, "why": why}
    return {"links": [row]}


def test_links_that_stand_are_noted_in_both_directions() -> None:
    assert links.standing(TOPOLOGY) == [OUT, IN]
    assert links.standing(None) == links.standing({}) == []


def test_a_release_that_tells_nothing_of_links_inwards_has_none() -> None:
    assert links.standing({key: value for key, value in TOPOLOGY.items() if key != "inbound"}) == [OUT]


def test_all_is_whole_where_canaries_crossed_and_the_others_are_back() -> None:
    for state in ("confirmed", "unsupported"):
        assert links.faults([OUT, IN], TOPOLOGY, canary(state)) == []


def test_each_fault_names_its_link() -> None:
    assert links.faults([OUT, IN], {"inbound": []}, canary("timeout", "it was not accepted in time")) == [
        "link to mq2 (2) at amqp://mq2:5673: timeout: it was not accepted in time",
        "mq2 (2) has no link to this node any more",
    ]
    assert links.faults([OUT], TOPOLOGY, canary("gone")) == [
        "link to mq2 (2) at amqp://mq2:5673: gone: its node has stopped"
    ]
    assert links.faults([OUT], TOPOLOGY, None) == ["there is no link to mq2 (2) any more"]
    assert links.faults([OUT | {"node": None}], TOPOLOGY, {"links": []}) == ["there is no link to 2 any more"]


@pytest.mark.slow
def test_it_is_asked_until_all_is_whole() -> None:
    answers = iter([None, canary("failed", "the link is resting"), canary("confirmed")])
    asked: list[str] = []

    def ask(operation: str, **arguments: Any) -> Any:
        asked.append(operation)
        return next(answers) if operation == "cluster-canary" else TOPOLOGY

    assert links.wait(ask, [OUT, IN], 30)[0] == []
    assert asked.count("cluster-canary") == 3


def test_the_time_is_over() -> None:
    found, last = links.wait(lambda operation, **_: canary("failed", "so"), [OUT], 0)
    assert (found, last) == (["link to mq2 (2) at amqp://mq2:5673: failed: so"], canary("failed", "so"))
