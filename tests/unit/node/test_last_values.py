"""Last values in a cluster: what waited on its way, or is moved, replaces nothing that came later."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.unit.node.test_forwards import pair, waiting

KEYS = [("_AMQ_LVQ_NAME", {"default_last_value_queue": True}), ("symbol", {"default_last_value_key": "symbol"})]


def bodies(node: ClusterNode) -> list[bytes]:
    """What its queue holds."""
    found = node.broker.store.queues["quotes"].segments()
    return [bytes(one.run.payload(one.start + at))[-2:] for one in found for at in range(one.n)]


def clustered(settings: dict[str, Any]) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    return pair(options={"address_settings": {"quotes": {"redistribution_delay": 0, **settings}}})


@pytest.mark.parametrize(("name", "settings"), KEYS)
@pytest.mark.parametrize("is_moved_last", [True, False])
def test_an_older_value_that_is_moved_replaces_no_newer_one(
    name: str, settings: dict[str, Any], *, is_moved_last: bool
) -> None:
    cluster, a, b = clustered(settings)
    first, second = (a, b) if is_moved_last else (b, a)
    for node, body in ((first, b"v1"), (second, b"v2")):
        Producer(node, address="quotes").send(body, application_properties={name: "gold"})
        cluster.run()
        cluster.wait(5)
    Consumer(b, address="quotes", credit=0)
    cluster.run()
    cluster.wait(50)
    assert bodies(a) == []
    assert bodies(b) == [b"v2"]


@pytest.mark.parametrize(("name", "settings"), KEYS)
def test_nor_does_one_that_waited_for_its_node(name: str, settings: dict[str, Any]) -> None:
    cluster, a, b = clustered(settings)
    Consumer(b, address="quotes", credit=0)
    cluster.run()
    b.is_disk_held = True
    producer = Producer(a, address="quotes")
    for body, key in ((b"v1", "gold"), (b"w1", "iron")):
        producer.send(body, application_properties={name: key})
    cluster.run()
    assert waiting(a, "b") == 2
    b.crash()
    b.is_disk_held = False
    cluster.wait(10)
    b.start()
    Producer(b, address="quotes").send(b"v2", application_properties={name: "gold"})
    b.run()
    cluster.wait(2_500)
    assert waiting(a, "b") == 0
    assert sorted(bodies(b)) == [b"v2", b"w1"]
    assert b.broker.store.queues["quotes"].replaced_total == 1
    b.crash()
    b.start()
    assert sorted(bodies(b)) == [b"v2", b"w1"]
