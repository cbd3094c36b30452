"""Copies for subscriptions that are further on than the next node: they wait there until the way is known again."""

from __future__ import annotations

import pytest
from mqbroker.core.address import MULTICAST
from mqbroker.core.kinds import kind_of
from mqbroker.core.remote_binding import RemoteBinding

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Producer

TIMES = {"retry_interval": 100, "check_period": 3000, "connection_ttl": 6000}
CHAIN = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}


def subscribe(node: ClusterNode, name: str) -> None:
    """A durable subscription, of which nobody takes anything."""
    store = node.broker.store
    store.make_address("news")
    store.create_queue(kind_of(name, "news", store.settings.of("news"), routing=MULTICAST, is_durable=True))
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
