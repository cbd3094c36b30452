"""However much is without an answer when a link is lost: it comes once."""

from __future__ import annotations

from typing import Any

from mqbroker.core.queue.unanswered_forwards import WINDOW
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, build_message

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer

OPTIONS: dict[str, Any] = {"limits": {"link_credit": 100_000}}


def pair(address: str, **wants: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode, Producer]:
    """Two nodes, of which b has a consumer that gets nothing yet, and somebody who sends to it at a."""
    cluster = ClusterStage()
    said = {"options": OPTIONS, "confirmation_window_size": -1}
    a, b = (cluster.node(name, [other], **said) for name, other in (("a", "b"), ("b", "a")))
    cluster.run()
    cluster.wait(600)
    Consumer(b, "wants", address, credit=0, **wants)
    cluster.run()
    return cluster, a, b, Producer(a, address=address)


def send(producer: Producer, count: int, priority: int = 4) -> None:
    """So many tiny durable messages, all alike."""
    run = single(build_message(b"", header=Header(durable=True, priority=priority)))
    for number in range(count):
        assert producer.link.session.send_run(producer.link, run, 0, 1, number) == 1


def arrived_once(b: ClusterNode, count: int) -> bool:
    """Whether b has taken in each message, and none twice."""
    (wants,) = (queue for queue in b.broker.store.queues.values() if queue.consumers)
    return (b.broker.store.arrivals.arrived_total, wants.message_count) == (count, count)


def test_more_tiny_messages_than_are_known_there_while_its_disk_is_slow() -> None:
    count = 26_001
    cluster, a, b, producer = pair("orders")
    b.is_disk_held = True
    send(producer, count)
    cluster.run()
    assert b.broker.store.arrivals.arrived_total == WINDOW, "the rest waits until there are answers"
    cluster.cut_all(a)
    cluster.run()
    b.is_disk_held = False
    cluster.wait(2_500)
    assert arrived_once(b, count)
    assert b.broker.store.arrivals.dropped_total == WINDOW


def test_a_source_is_forgotten_with_its_queue() -> None:
    """The queue that a subscriber has left goes at both ends, and what is known of it with it."""
    cluster, a, b, _ = pair("news", source={"capabilities": ("topic",)})
    wants = Consumer(b, "leaves", "other", credit=10, source={"capabilities": ("topic",)})
    producer = Producer(a, "another", "other")
    cluster.run()
    send(producer, 10)
    cluster.run()
    assert b.broker.store.arrivals._keys
    wants.link.detach()
    cluster.run()
    assert not a.broker.store.remotes.queues_of(node_id_of("b"))
    assert not b.broker.store.arrivals._keys
    assert not b.broker.store.arrivals._links


def test_what_came_behind_with_a_higher_priority_during_an_outage() -> None:
    low, high = 100, 20_100
    cluster, a, b, producer = pair("news", source={"capabilities": ("topic",)})
    send(producer, 1)  # now there is a link for them
    cluster.run()
    cluster.silence(b, is_deaf=False)  # its answers are lost
    send(producer, low)
    cluster.run()
    cluster.hold_up("a", "b")
    for pipe in cluster.between("a", "b"):
        cluster.cut(pipe)
    cluster.run()
    send(producer, high, priority=9)
    cluster.run()
    assert sum(queue.message_count for queue in a.broker.store.remotes.queues_of(node_id_of("b"))) == low + high
    cluster.let_through("a", "b")
    cluster.wait(3_000)
    assert arrived_once(b, 1 + low + high)
    assert b.broker.store.arrivals.dropped_total == low
