"""Foreign clients at different nodes of a cluster: what one sends here, another one gets there, as it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.foreign.conftest import wait_for_depth
from tests.foreign.jms_client import JmsClient
from tests.foreign.link_client import LinkClient
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import Nodes, knows, linked

pytestmark = pytest.mark.foreign

Pair = tuple[BrokerProcess, BrokerProcess]
LARGE_BYTES = 1 << 20


@pytest.fixture
def pair(make_broker: Callable[..., BrokerProcess], jms: JmsClient) -> Pair:
    """Two nodes that are linked. Qpid JMS is connected to both, as `one` and `two`, with a session of that name."""
    nodes = Nodes(make_broker, 2, settings={"#": {"redistribution-delay": 0}})
    one, two = nodes.start()
    linked(one, "mq1")
    linked(two, "mq0")
    for name, broker in (("one", one), ("two", two)):
        jms.connect(name, broker)
        jms.session(name, name)
    return one, two


def test_a_message_of_rhea_comes_to_jms_at_the_other_node_as_it_was(
    pair: Pair, jms: JmsClient, rhea: LinkClient
) -> None:
    one, _ = pair
    jms.consumer("two", "in", "queue:orders")
    knows(one, 1, 1)
    rhea.connect("c", one)
    rhea.sender("c", "out", "orders")
    said: dict[str, Any] = {"body": "grüße, 世界", "properties": {"color": "red", "number": 5}}
    assert rhea.send("out", said) == ["accepted"]
    (found,) = jms.receive("in")
    assert found["body"] == said["body"]
    assert found["properties"] == {**said["properties"], "JMSXDeliveryCount": 1}
    wait_for_depth(one, "orders", 0)


def test_selectors_and_priorities_hold_across_nodes(pair: Pair, jms: JmsClient) -> None:
    one, _ = pair
    jms.consumer("two", "in", "queue:orders", selector="color = 'red'")
    knows(one, 1, 1)
    for color in ("red", "blue", "red"):
        jms.put("one", "queue:orders", {"body": color, "properties": {"color": color}}, priority=7)
    found = jms.receive("in", 2)
    assert [(each["body"], each["priority"]) for each in found] == [("red", 7)] * 2
    assert jms.is_quiet("in")
    assert one.admin("queue-show", name="orders")["message_count"] == 1


def test_a_large_body_crosses_whole_and_leaves_no_file_behind(pair: Pair, jms: JmsClient) -> None:
    one, two = pair
    jms.consumer("two", "in", "queue:big")
    knows(one, 1, 1)
    jms.put("one", "queue:big", {"kind": "bytes", "size": LARGE_BYTES})
    (found,) = jms.receive("in")
    body = (bytes(range(251)) * (1 << 13))[:LARGE_BYTES]
    assert found["sha256"] == hashlib.sha256(body).hexdigest()
    for broker in (one, two):
        assert sum(row["message_count"] for row in broker.admin("queues")["queues"]) == 0


def test_an_answer_reaches_a_temporary_queue_at_the_other_node(pair: Pair, jms: JmsClient) -> None:
    one, two = pair
    jms.ask("temporary", session="one", name="answers", topic=False)
    jms.consumer("one", "answers", "temporary:answers")
    jms.consumer("two", "requests", "queue:requests")
    knows(one, 1, 1)
    knows(two, 1, 1)
    jms.producer("two", "anywhere")
    (asked,) = jms.put("one", "queue:requests", {"body": "2 + 2?", "reply_to": "temporary:answers"})
    jms.receive("requests")
    jms.send("anywhere", {"body": "4", "correlation_id": asked}, destination="reply:requests")
    (answer,) = jms.receive("answers")
    assert (answer["body"], answer["correlation_id"]) == ("4", asked)
    assert not [row["name"] for row in two.admin("queues")["queues"] if row["name"].startswith("temporary")]


def test_subscriptions_at_both_nodes_get_what_is_sent_to_a_topic(pair: Pair, jms: JmsClient) -> None:
    one, two = pair
    jms.consumer("one", "here", "topic:news")
    jms.consumer("two", "there", "topic:news")
    knows(one, 1, 1)
    knows(two, 1, 1)
    jms.put("one", "topic:news", "a", "b")
    jms.put("two", "topic:news", "c")
    assert sorted(jms.bodies("here", 3)) == sorted(jms.bodies("there", 3)) == ["a", "b", "c"]


def test_what_lies_where_nobody_takes_it_moves(pair: Pair, jms: JmsClient) -> None:
    one, _ = pair
    jms.put("one", "queue:stranded", *(f"m{number}" for number in range(20)))
    assert one.admin("queue-show", name="stranded")["message_count"] == 20
    jms.consumer("two", "in", "queue:stranded")
    assert jms.bodies("in", 20) == [f"m{number}" for number in range(20)]
    wait_for_depth(one, "stranded", 0)
