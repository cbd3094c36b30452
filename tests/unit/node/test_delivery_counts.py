"""The delivery count that a consumer is told counts attempts of ours, whatever the producer wrote there."""

from __future__ import annotations

import pytest
from mqbroker.wire.performatives import Modified
from mqbroker.wire.sections import Header, decode_header

from tests.support.cluster_stage import ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.support.stage import Stage

FAILED = Modified(delivery_failed=True)
MANY = 0xFFFFFFFF


def counts(consumer: Consumer) -> list[tuple[int, bool]]:
    """Delivery count and first-acquirer of each message that came."""
    headers = []
    for event in consumer.incoming:
        payload = bytes(event.run.payload(0))
        header = decode_header(payload, 0, len(payload))[0]
        headers.append((header.delivery_count, bool(header.first_acquirer)))
    return headers


@pytest.mark.parametrize("said", [3, MANY])
def test_a_count_of_the_producers_does_not_go_on(said: int) -> None:
    stage = Stage()
    Producer(stage).publish(b"x", header=Header(delivery_count=said, first_acquirer=True))
    consumer = Consumer(stage, credit=3)
    for number in range(2):
        consumer.settle(number, FAILED)
    assert counts(consumer) == [(0, True), (1, False), (2, False)]


def test_another_node_does_not_take_it_for_ours() -> None:
    """It would be a dead letter there before anybody has seen it."""
    cluster = ClusterStage()
    options = {"address_settings": {"#": {"max_delivery_attempts": 3, "redistribution_delay": 0}}}
    a, b = cluster.node("a", ["b"], options=options), cluster.node("b", ["a"], options=options)
    cluster.run()
    cluster.wait(600)
    b.admin("queue-create", name="orders")
    consumer = Consumer(b, "there", credit=3)
    cluster.wait(600)
    Producer(a).publish(b"x", header=Header(delivery_count=MANY))
    cluster.wait(600)
    assert counts(consumer) == [(0, False)]
    consumer.settle(0, FAILED)
    cluster.run()
    assert counts(consumer) == [(0, False), (1, False)]
