"""How often a message was delivered goes with it to another node, also where it is paged there, or on its way."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.performatives import Modified
from mqbroker.wire.sections import decode_header

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer, body_in

FAILED = Modified(delivery_failed=True)


def pair(**settings: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """Two nodes where little stays in memory, and messages go at once where somebody wants them."""
    said = {
        "redistribution_delay": 0, "max_delivery_attempts": 3, "auto_delete_queues": False,
        "dead_letter_address": "dead", "auto_create_dead_letter_resources": True, "max_size_messages": 4, **settings,
    }  # fmt: skip
    cluster = ClusterStage()
    options = {"address_settings": {"orders": said}}
    a, b = cluster.node("a", ["b"], options=options), cluster.node("b", ["a"], options=options)
    cluster.run()
    cluster.wait(600)
    return cluster, a, b


def failed_twice(cluster: ClusterStage, node: ClusterNode, *, durable: bool = True) -> None:
    """A message of this node that was delivered twice in vain, and waits."""
    Producer(node, "first").publish(b"often", durable=durable)
    consumer = Consumer(node, "failing", credit=2)
    for number in range(2):
        consumer.settle(number, FAILED)
    assert count_of(consumer, 1) == 1
    consumer.link.detach()
    cluster.run()


def count_of(consumer: Consumer, number: int) -> int:
    """The delivery count that a consumer was told."""
    payload = bytes(consumer.incoming[number].run.payload(0))
    return decode_header(payload, 0, len(payload))[0].delivery_count


def filled(node: ClusterNode, *, durable: bool = True) -> int:
    """So many messages of its own, so that what comes now is paged."""
    producer = Producer(node, "filling")
    for number in range(6):
        producer.publish(b"%d" % number, durable=durable)
    assert node.broker.store.queues["orders"].paged_count
    return 6


@pytest.mark.parametrize(("is_restarted", "durable"), [(False, True), (True, True), (False, False)])
def test_what_is_paged_where_it_arrives_keeps_its_count(is_restarted: bool, durable: bool) -> None:
    cluster, a, b = pair()
    a.admin("queue-create", name="orders")
    b.admin("queue-create", name="orders")
    cluster.run()
    failed_twice(cluster, a, durable=durable)
    before = filled(b, durable=durable)
    wanted = Consumer(b, "wants", credit=0)
    cluster.wait(100)
    assert (a.broker.store.queues["orders"].message_count, b.broker.store.queues["orders"].message_count) == (0, 7)
    if is_restarted:
        wanted.link.detach()
        cluster.run()
        b.crash()
        b.start()
        cluster.run()
    taken_in_order(cluster, b, before, extra=int(is_restarted))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_is_paged_on_its_way_keeps_its_count(is_restarted: bool) -> None:
    cluster, a, b = pair(redistribution_delay=5_000)
    a.admin("queue-create", name="orders")
    b.admin("queue-create", name="orders")
    cluster.run()
    failed_twice(cluster, a)
    wanted = Consumer(b, "wants", credit=0)
    cluster.run()
    cluster.hold_up("a", "b")
    before = 12
    for number in range(before):
        Producer(a, f"producer-{number}").publish(b"%d" % number)
    cluster.wait(5_500)
    (waiting,) = a.broker.store.remotes.queues_of(b.broker.node_id)
    assert waiting.paged_count
    assert waiting.message_count == before + 1
    if is_restarted:
        a.crash()
        a.start()
        (waiting,) = a.broker.store.remotes.queues_of(b.broker.node_id)
        assert waiting.message_count == before + 1
    cluster.let_through("a", "b")
    cluster.wait(5_000)
    wanted.link.detach()
    taken_in_order(cluster, b, before)


def taken_in_order(cluster: ClusterStage, node: ClusterNode, before: int, extra: int = 0) -> None:
    """It comes behind so many others with its count, fails once more, and is dead."""
    consumer = Consumer(node, "last", credit=0)
    for number in range(before + 1):
        consumer.link.grant(1)
        cluster.run()
        is_it = body_in(bytes(consumer.incoming[number].run.payload(0))) == b"often"
        assert count_of(consumer, number) == (2 if is_it else extra)
        consumer.settle(number, FAILED if is_it else None)
    cluster.run()
    queues = node.broker.store.queues
    assert queues["orders"].message_count == 0
    assert [queues[name].message_count for name in queues if "DLQ" in name or name == "dead"] == [1]
