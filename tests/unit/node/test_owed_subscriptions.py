"""What is owed to durable subscriptions of a node that is away, planned or not: it waits until somebody gives it up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Producer

GRACE_MS = 60_000
DEAD = {"address_settings": {"#": {"dead_letter_address": "dead", "auto_create_dead_letter_resources": True}}}


def pair(**changes: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """The second has a durable subscription and one that is not, and the first has a place for copies of its own."""
    cluster = ClusterStage()
    a, b = (cluster.node(name, [far], options=DEAD, **changes) for name, far in ("ab", "ba"))
    cluster.run()
    for name, is_durable in (("kept", True), ("volatile", False)):
        b.admin("queue-create", name=name, address="news", routing_type="multicast", durable=is_durable)
    a.admin("queue-create", name="here", address="news", routing_type="multicast")
    cluster.wait(1_000)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    assert known(a) == {"kept": True, "volatile": True}
    return cluster, a, b


def known(node: ClusterNode) -> dict[str, bool]:
    """Queues of others, and whether they are reached."""
    remotes = node.broker.store.remotes.by_name.values()
    return {each.binding.queue: each.binding.is_connected for each in remotes}


def waiting(node: ClusterNode) -> int:
    return sum(queue.message_count for queue in node.broker.store.remotes.queues_of(node_id_of("b")))


def dead(node: ClusterNode) -> int:
    queues = node.broker.store.queues
    return sum(queue.message_count for name, queue in queues.items() if "DLQ" in name or name == "dead")


def publish(node: ClusterNode, count: int, name: str = "producer") -> None:
    producer = Producer(node, name, "news")
    for number in range(count):
        producer.publish(b"%d" % number)
    assert len(producer.outcomes) == count


def go_away(cluster: ClusterStage, node: ClusterNode, how: str) -> None:
    node.stop() if how == "stop" else node.crash()
    cluster.run()


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_it_waits_for_the_node(how: str) -> None:
    cluster, a, b = pair()
    go_away(cluster, b, how)
    assert known(a) == {"kept": False} | ({} if how == "stop" else {"volatile": False})
    publish(a, 3)
    assert waiting(a) == 3
    cluster.wait(GRACE_MS)
    b.start()
    cluster.wait(35_000)
    assert (waiting(a), b.broker.store.queues["kept"].message_count, known(a)) == (0, 3, {"kept": True})


def test_it_waits_where_there_are_no_more_attempts() -> None:
    cluster, a, b = pair(reconnect_attempts=3)
    go_away(cluster, b, "crash")
    cluster.wait(10_000)
    assert len(a.events("node-lost")) == 1
    publish(a, 3)
    assert waiting(a) == 3
    b.start()
    cluster.wait(35_000)
    assert b.broker.store.queues["kept"].message_count == 3


@pytest.mark.slow
@pytest.mark.option("cluster-connections.on-node-lost")
@pytest.mark.parametrize("how", ["stop", "crash"])
@pytest.mark.parametrize(("action", "dead_count"), [("reroute", 0), ("dead-letter", 3)])
@pytest.mark.parametrize("count", [3, 0], ids=["something waits", "nothing waits"])
def test_it_waits_for_the_grace_and_then_nothing_is_owed(how: str, action: str, dead_count: int, count: int) -> None:
    cluster, a, b = pair(on_node_lost=action, node_lost_grace=GRACE_MS)
    go_away(cluster, b, how)
    publish(a, count, "first")
    cluster.wait(GRACE_MS - 2_000)
    assert waiting(a) == count
    cluster.wait(4_000)
    assert (waiting(a), dead(a), known(a)) == (0, dead_count if count else 0, {})
    publish(a, 2, "second")
    assert (waiting(a), a.broker.store.queues["here"].message_count) == (0, count + 2)
    b.start()
    cluster.wait(35_000)
    publish(a, 1, "third")
    cluster.run()
    assert b.broker.store.queues["kept"].message_count == 1


@pytest.mark.parametrize("count", [3, 0])
def test_a_person_may_forget_the_node(count: int) -> None:
    cluster, a, b = pair()
    go_away(cluster, b, "stop")
    publish(a, count, "first")
    found = a.admin("cluster-forget", node_id=node_id_of("b"))
    cluster.run()
    assert found["messages"] == count
    publish(a, 2, "second")
    assert (waiting(a), known(a)) == (0, {})
