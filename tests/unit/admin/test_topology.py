"""Giving up a node by hand."""

from __future__ import annotations

from typing import Any

from tests.support.cluster_stage import node_id_of
from tests.support.large_messages import Producer
from tests.unit.core.cluster.test_drains import count_at, pair
from tests.unit.node.cluster.membership.test_forwards import Consumer, lost_with_five, waiting


def forget(stage: Any, node: str, **arguments: Any) -> Any:
    return stage.admin("cluster-forget", node_id=node_id_of(node), **arguments)


def test_a_node_that_is_forgotten_has_no_messages_here_any_more() -> None:
    _, a, _ = lost_with_five("hold")
    found = forget(a, "b")
    assert (found["action"], found["messages"]) == ("reroute", 5)
    a.run()
    assert waiting(a, "b") == 0
    assert Consumer(a, "here", credit=100).bodies == [b"%d" % number for number in range(5)]
    assert not [row for row in a.admin("topology")["links"] if row["node_id"] == node_id_of("b")]


def test_messages_for_it_may_become_dead_letters() -> None:
    _, a, _ = lost_with_five("hold")
    assert forget(a, "b", action="dead-letter")["messages"] == 5
    a.run()
    queues = a.broker.store.queues
    assert sum(each.message_count for name, each in queues.items() if "DLQ" in name or name == "dead") == 5


def test_a_node_that_is_forgotten_may_come_back() -> None:
    cluster, a, b = lost_with_five("hold")
    forget(a, "b")
    a.run()
    b.start()
    cluster.run()
    cluster.wait(3_000)
    assert a.state("b") == "up"


def test_what_cannot_be_forgotten_is_refused() -> None:
    cluster, a, b = lost_with_five("hold")
    assert forget(a, "nobody")["condition"] == "amqp:not-found"
    assert forget(a, "a")["condition"] == "amqp:precondition-failed"
    assert forget(a, "b", action="burn")["condition"] == "amqp:invalid-field"
    b.start()
    cluster.run()
    cluster.wait(3_000)
    assert forget(a, "b")["condition"] == "amqp:precondition-failed"


def test_a_node_that_messages_wait_for_is_shown_after_a_restart_that_lost_sight_of_it() -> None:
    cluster, a, _ = lost_with_five("hold")
    a.crash()
    a.start()
    cluster.run()
    cluster.wait(2_000)
    place, lost = a.admin("topology")["links"]
    assert (place["node_id"], place["connector"], place["depth"]) == (None, "amqp://b:5673", 0)
    assert (lost["node_id"], lost["state"], lost["depth"], lost["lag_ms"]) == (node_id_of("b"), "gone", 5, 63_000)
    assert f"mqctl cluster forget {node_id_of('b')}" in lost["why"]
    assert lost["since_ms"] == 2_000
    assert sum(row["depth"] for row in a.admin("status")["links"]) == 5
    assert forget(a, "b")["messages"] == 5
    a.run()
    assert [row["node_id"] for row in a.admin("topology")["links"]] == [None]
    assert Consumer(a, "here", credit=100).bodies == [b"%d" % number for number in range(5)]


def test_what_has_no_answer_is_told_while_its_link_is_down_and_after_a_start() -> None:
    """Who has another node forgotten by that routes it anew, and it comes twice."""
    cluster, a, b = pair(message_load_balancing="ON_DEMAND")
    Consumer(b, "wants", credit=0)
    cluster.run()
    producer = Producer(a)
    b.is_disk_held = True
    for number in range(5):
        producer.send(b"%d" % number)
    cluster.run()

    def unanswered() -> int:
        return sum(row["unanswered"] for row in a.admin("topology")["links"] if row["node_id"] == node_id_of("b"))

    assert unanswered() == 5
    cluster.hold_up("a", "b")
    cluster.cut_all(a)
    cluster.run()
    assert unanswered() == 5
    a.crash()
    a.start()
    cluster.run()
    assert unanswered() == 5
    cluster.let_through("a", "b")
    b.is_disk_held = False
    cluster.wait(5_000)
    assert (unanswered(), count_at(b)) == (0, 5)
