"""Links on which another node forwards: what it may say of itself."""

from __future__ import annotations

import pytest
from mqbroker.node.cluster.arrival_links import SOURCE_BYTES_MAX

from tests.support.large_messages import Consumer, Producer
from tests.unit.node.cluster.test_forwards import pair


@pytest.mark.parametrize(
    ("size", "is_heard"), [(SOURCE_BYTES_MAX // 4, True), (SOURCE_BYTES_MAX, False), (70_000, False)]
)
def test_a_source_has_a_name_that_the_journal_can_keep(size: int, *, is_heard: bool) -> None:
    cluster, a, b = pair(listener={"max_frame_size_bytes": 1 << 20})
    consumer = Consumer(b, credit=10)
    cluster.run()
    a.broker.node_id = "é" * (size // 2)
    Producer(a).publish(b"one")
    cluster.run()
    assert (b.is_up, b.halted) == (True, None)
    assert consumer.bodies == [b"one"] * is_heard
    refused = [str(each["why"]) for each in a.events("forwarding-refused")]
    assert all(each.startswith("amqp:invalid-field: mq:source and the name of its link") for each in refused)
    assert bool(refused) is not is_heard
    b.crash()
    b.start()
    assert b.is_up
