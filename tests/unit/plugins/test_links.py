"""Which links stand, and what is missing of those that stood; whoever waits asks again until the time is over."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import links

TOPOLOGY: dict[str, Any] = {
    "members": [
        {"connection": "all", "node_id": "1", "node": "mq1"},
        {"connection": "all", "node_id": "2", "node": "mq2"},
    ],
    "links": [
        {"connection": "all", "node_id": "2", "node": "mq2", "state": "up"},
        {"connection": "all", "node_id": "3", "node": None, "state": "resting"},
    ],
    "inbound": ["2"],
}
OUT = {"direction": "out", "connection": "all", "node_id": "2", "node": "mq2"}
IN = {"direction": "in", "connection": "", "node_id": "2", "node": "mq2"}


def canary(state: str, why: str | None = None, **more: str) -> dict[str, Any]:
    row = {"connection": "all", "node_id": "2", "connector": "amqp://mq2:5673", "state": state, "why": why}
    return {"links": [row | more]}


def members(connection: str, node_id: str, node: str) -> dict[str, Any]:
    """What a node says that has this connection, and another node at the end of it."""
    own = {"connection": connection, "node_id": "1", "node": "mq1"}
    return {"members": [own, {"connection": connection, "node_id": node_id, "node": node}], "inbound": [node_id]}


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


def test_a_node_that_has_come_back_with_another_id_is_known_by_its_name() -> None:
    back = members("all", "9", "mq2")
    assert links.faults([OUT, IN], back, canary("confirmed", node_id="9", node="mq2")) == []
    other = members("all", "9", "mq4")
    assert links.faults([OUT, IN], other, canary("confirmed", node_id="9", node="mq4")) == [
        "there is no link to mq2 (2) any more",
        "mq2 (2) has no link to this node any more",
    ]


def test_a_connection_of_another_name_is_any_that_leads_there() -> None:
    renamed = members("lan", "2", "mq2")
    assert links.faults([OUT], renamed, canary("confirmed", connection="lan")) == []
    assert links.faults([OUT], renamed, canary("failed", "so", connection="lan")) == [
        "link to mq2 (2) at amqp://mq2:5673: failed: so"
    ]
    # One of two connections is there still: the other one does not stand for it.
    both = {"members": [*TOPOLOGY["members"], *renamed["members"]]}
    assert links.faults([OUT], both, canary("confirmed", connection="lan")) == ["there is no link to mq2 (2) any more"]


def test_a_connection_that_was_taken_away_has_no_links() -> None:
    assert links.faults([OUT], {"members": [], "inbound": []}, {"links": []}) == []


def test_a_whole_cluster_whose_connection_was_taken_away_misses_no_link_in_either_direction() -> None:
    """The others, which have it still, are refused here."""
    stood = links.standing(TOPOLOGY)
    assert {row["direction"] for row in stood} == {"in", "out"}
    assert links.faults(stood, {"members": [], "links": [], "inbound": []}, {"links": []}) == []


def test_one_of_two_connections_may_be_taken_away_but_none_may_be_renamed() -> None:
    """The others dial with the name that they know, and refuse one that they do not."""
    stood = links.standing(TOPOLOGY)
    assert links.faults(stood, members("lan", "2", "mq2"), canary("confirmed", connection="lan")) == []
    alone = {"members": [{"connection": "lan", "node_id": "1", "node": "mq1"}], "inbound": []}
    assert links.faults(stood, alone, {"links": []}) == [
        "there is no link to mq2 (2) any more", "mq2 (2) has no link to this node any more",
    ]  # fmt: skip


OWN = {"members": [{"connection": "all", "node_id": "1", "node": "mq1"}]}
# What is left of the cluster, and has told whom it knows.
OTHERS = members("all", "3", "mq3")


@pytest.mark.parametrize(
    ("nodes", "topology", "has_left"),
    [
        (None, OTHERS, False),  # nobody said who the nodes are
        (["mq1"], OTHERS, True),
        (["mq1"], OWN | {"links": [{"node_id": "3", "state": "up"}]}, True),
        (["mq1", "mq2"], OTHERS, False),  # it is still to come
        (["mq1"], None, False),  # nobody knows
        (["mq1"], OWN, False),  # it was just started, or its links do not come about
        (["mq1"], OWN | {"links": [{"node_id": "3", "state": "resting"}]}, False),
        (["mq1"], OTHERS | {"links": [{"node_id": None, "state": "resting"}]}, False),  # that may be it
        (["mq1"], members("all", "2", "mq2"), False),  # it was taken out of the inventory and is still there
        (["mq1"], OTHERS | {"links": [{"node_id": "2", "state": "gone"}]}, False),
        (["mq1"], {"inbound": ["2", "3"]}, False),
    ],
)
def test_a_node_has_left_that_neither_the_inventory_nor_a_broker_with_others_knows(
    nodes: list[str] | None, topology: dict[str, Any] | None, *, has_left: bool
) -> None:
    assert links.has_left(OUT, topology, nodes) is has_left
    assert not links.has_left(OUT | {"node": None}, topology, nodes)


def answering(topology: dict[str, Any]) -> links.Asked:
    def ask(operation: str, **_: Any) -> Any:
        return {"links": []} if operation == "cluster-canary" else topology

    return ask


def test_a_link_to_who_has_left_is_no_fault_in_the_end() -> None:
    assert links.wait(answering(OTHERS), [OUT, IN], 0, ["mq1"])[0] == []
    assert len(links.wait(answering(OTHERS), [OUT, IN], 0)[0]) == 2


def test_nobody_has_left_to_whom_a_link_stood_a_moment_ago() -> None:
    assert links.wait(answering(OTHERS), [OUT, IN], 0, ["mq1"], [OUT | {"node": None}])[0] == [
        "there is no link to mq2 (2) any more"
    ]


def test_a_process_that_was_just_started_says_of_nobody_that_he_has_left() -> None:
    """Neither of a node that another inventory has, nor of one whose place nobody has answered at."""
    away = OWN | {"links": [{"node_id": None, "state": "resting", "connection": "all", "node": None}]}
    for topology in (OWN, away):
        assert links.wait(answering(topology), [OUT, IN], 0, ["mq1"])[0] == [
            "there is no link to mq2 (2) any more", "mq2 (2) has no link to this node any more",
        ]  # fmt: skip


def test_one_look_says_which_links_are_missing() -> None:
    other = OUT | {"node_id": "7", "node": "mq7"}

    def ask(operation: str, **_: Any) -> Any:
        return canary("confirmed") if operation == "cluster-canary" else TOPOLOGY

    assert links.missing(ask, [OUT, other, IN]) == [other]
    assert links.missing(lambda operation, **_: None, [OUT, IN]) == [OUT, IN]


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
