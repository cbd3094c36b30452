"""Copies for subscriptions that are further on than the next node: they wait there until the way is known again."""

from __future__ import annotations

import pytest
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.queue.kinds import kind_of

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Producer

TIMES = {"retry_interval": 100, "check_period": 3000, "connection_ttl": 6000}
CHAIN = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}


def subscribe(node: ClusterNode, name: str) -> None:
    """A durable subscription, of which nobody takes anything."""
    store = node.broker.store
    store.make_address("news", BROKER)
    store.create_queue(kind_of(name, "news", store.settings.of("news"), routing=MULTICAST, is_durable=True), BROKER)
    node.step()


def kept(node: ClusterNode, name: str) -> int:
    """Messages of a subscription."""
    return node.broker.store.queues[name].message_count


@pytest.fixture(name="cluster")
def _cluster() -> ClusterStage:
    """Three nodes in a chain, with a subscription at the second and at the third."""
    cluster = ClusterStage()
    for name, static in CHAIN.items():
        cluster.node(name, static, max_hops=3, allow_direct_connections_only=True, **TIMES)
    cluster.run()
    subscribe(cluster.nodes["b"], "sub-b")
    subscribe(cluster.nodes["c"], "sub-c")
    cluster.run()
    cluster.wait(2_000)
    assert {each.queue for each in bindings(cluster)} == {"sub-b", "sub-c"}
    return cluster


def waiting(cluster: ClusterStage) -> dict[tuple[str, ...], int]:
    """Messages at the first node that wait for the second, by the subscriptions that they are for."""
    queues = cluster.nodes["a"].broker.store.remotes.queues_of(node_id_of("b"))
    return {tuple(name[:5] for name in queue.kind.route): queue.message_count for queue in queues}


def owe(cluster: ClusterStage, count: int) -> None:
    """Copies wait at the first node, since the second knows no way to the third."""
    a, b, c = cluster.nodes.values()
    producer = Producer(a, address="news")
    cluster.run()
    b.crash()
    c.crash()
    cluster.run()
    for number in range(count):
        producer.publish(b"%d" % number)
    cluster.run()
    b.start()
    cluster.run()
    cluster.wait(3_000)
    assert kept(b, "sub-b") == count


def bindings(cluster: ClusterStage) -> list[RemoteBinding]:
    """What the first node knows of the others."""
    return [each.binding for each in cluster.nodes["a"].broker.store.remotes.by_name.values()]


def test_a_node_on_the_way_that_does_not_know_it_yet_takes_nothing_from_it(cluster: ClusterStage) -> None:
    a, b, c = cluster.nodes.values()
    producer = Producer(a, address="news")
    cluster.run()
    b.crash()
    c.crash()
    cluster.run()
    for number in range(3):
        producer.publish(b"%d" % number)
    cluster.run()
    assert len(producer.outcomes) == 3
    b.start()
    cluster.run()
    cluster.wait(3_000)
    assert kept(b, "sub-b") == 3
    waiting = a.broker.store.remotes.queues_of(node_id_of("b"))
    assert sum(queue.message_count for queue in waiting) == 3
    c.start()
    cluster.run()
    cluster.wait(5_000)
    assert (kept(b, "sub-b"), kept(c, "sub-c")) == (3, 3)
    assert sum(queue.message_count for queue in waiting) == 0


def test_a_node_on_the_way_that_forgets_it_takes_nothing_from_it(cluster: ClusterStage) -> None:
    a, b, c = cluster.nodes.values()
    producer = Producer(a, address="news")
    producer.publish(b"0")  # the links stand
    cluster.run()
    assert (kept(b, "sub-b"), kept(c, "sub-c")) == (1, 1)
    (known,) = [each.binding for each in b.broker.store.remotes.by_name.values() if each.binding.queue == "sub-c"]
    remote = b.broker.store.remotes.by_name[known.cluster_name]
    for number in range(1, 3):
        producer.publish(b"%d" % number)
    remote.via.remove(known)  # before what is on its way comes
    cluster.run()
    cluster.wait(500)
    assert kept(b, "sub-b") == 3
    remote.via.add(known)
    cluster.run()
    cluster.wait(2_000)
    assert kept(c, "sub-c") == 3


def forget(node: ClusterNode, name: str) -> None:
    """Delete a subscription."""
    store = node.broker.store
    store.delete_queue(store.queues[name], BROKER)
    node.step()


def test_they_leave_at_once_also_where_nothing_is_handed_out(cluster: ClusterStage) -> None:
    a, _, c = cluster.nodes.values()
    producer = Producer(a, address="news")
    producer.publish(b"0")
    cluster.run()
    queues = a.broker.store.remotes.queues_of(node_id_of("b"))
    (owed,) = [queue for queue in queues if queue.kind.route[0].startswith("sub-c")]
    a.admin("queue-pause", name=owed.kind.name)
    producer.publish(b"1")
    cluster.run()
    assert owed.message_count == 1
    forget(c, "sub-c")
    cluster.run()
    assert owed.message_count == 0


def test_copies_that_are_owed_to_a_subscription_leave_with_it(cluster: ClusterStage) -> None:
    """The way there stands, and what is on it has not been taken."""
    a, b, c = cluster.nodes.values()
    producer = Producer(a, address="news")
    producer.publish(b"0")
    cluster.run()
    (known,) = [each.binding for each in b.broker.store.remotes.by_name.values() if each.binding.queue == "sub-c"]
    via = b.broker.store.remotes.by_name[known.cluster_name].via
    via.remove(known)  # without a word: the first node has still a binding for it
    for number in range(1, 4):
        producer.publish(b"%d" % number)
    cluster.run()
    cluster.wait(500)
    assert sum(waiting(cluster).values()) == 3
    via.add(known)
    forget(c, "sub-c")
    cluster.run()
    cluster.wait(100)
    assert sum(waiting(cluster).values()) == 0
    assert {each.queue for each in bindings(cluster)} == {"sub-b"}
    cluster.wait(2_000)
    assert list(waiting(cluster)) == [("sub-b",)], "nothing is left of the way"
    assert a.broker.store.remotes.over == {}


def test_what_was_on_the_link_when_it_was_deleted_leaves_too(cluster: ClusterStage) -> None:
    a, b, c = cluster.nodes.values()
    producer = Producer(a, address="news")
    producer.publish(b"0")
    cluster.run()
    (known,) = [each for each in bindings(cluster) if each.queue == "sub-c"]
    queues = a.broker.store.remotes.queues_of(node_id_of("b"))
    (queue,) = [each for each in queues if known.cluster_name in each.kind.route]
    cluster.hold_up("a", "b")
    for number in range(1, 4):
        producer.publish(b"%d" % number)
    cluster.run()
    assert queue.delivering_count == 3
    forget(c, "sub-c")
    cluster.run()
    cluster.let_through("a", "b")  # the notice there, and what is to be forwarded here
    cluster.run()
    cluster.wait(500)
    assert (kept(b, "sub-b"), queue.message_count) == (4, 0)
    assert list(waiting(cluster)) == [("sub-b",)]


@pytest.mark.slow
def test_a_way_that_is_only_forgotten_takes_nothing_with_it(cluster: ClusterStage) -> None:
    owe(cluster, 3)
    cluster.wait(60_000)
    assert sum(waiting(cluster).values()) == 3
    cluster.nodes["c"].start()
    cluster.run()
    cluster.wait(5_000)
    assert kept(cluster.nodes["c"], "sub-c") == 3


def test_a_subscription_that_is_made_anew_is_owed_what_comes_then(cluster: ClusterStage) -> None:
    a, b, c = cluster.nodes.values()
    producer = Producer(a, address="news")
    producer.publish(b"0")
    cluster.run()
    forget(c, "sub-c")
    subscribe(c, "sub-c")
    cluster.run()
    cluster.wait(500)
    producer.publish(b"1")
    cluster.run()
    cluster.wait(500)
    assert (kept(b, "sub-b"), kept(c, "sub-c")) == (2, 1)
