"""Last values in a cluster: what waited on its way, or is moved, replaces nothing that came later."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.performatives import Rejected

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.support.stage import Stage, options_with
from tests.unit.node.cluster.test_forwards import pair, waiting

KEYS = [("_AMQ_LVQ_NAME", {"default_last_value_queue": True}), ("symbol", {"default_last_value_key": "symbol"})]


def bodies(node: Stage, queue: str = "quotes") -> list[bytes]:
    """What its queue holds."""
    found = node.broker.store.queues[queue].segments()
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


def crash_before_values_come(cluster: ClusterStage, a: ClusterNode, b: ClusterNode, name: str) -> Producer:
    """Two values are on their way to where their consumer is, and that node is gone. Says who sent them."""
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
    return producer


@pytest.mark.parametrize(("name", "settings"), KEYS)
def test_nor_does_one_that_waited_for_its_node(name: str, settings: dict[str, Any]) -> None:
    cluster, a, b = clustered(settings)
    crash_before_values_come(cluster, a, b, name)
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


@pytest.mark.parametrize(("name", "settings"), KEYS)
@pytest.mark.parametrize("between_ms", [0, 10])
@pytest.mark.parametrize("is_given_up", [True, False])
def test_nor_does_one_that_its_node_does_not_take(
    name: str, settings: dict[str, Any], between_ms: int, *, is_given_up: bool
) -> None:
    """It comes back here, where a later one has come meanwhile, perhaps within the same millisecond."""
    cluster, a, b = clustered(settings)
    producer = crash_before_values_come(cluster, a, b, name)
    cluster.wait(between_ms)
    Consumer(a, address="quotes", credit=0)
    producer.publish(b"v2", application_properties={name: "gold"})
    assert (bodies(a), waiting(a, "b")) == ([b"v2"], 2)
    if is_given_up:
        a.admin("cluster-forget", node_id=b.identity["node_id"])
    else:
        b.start()
        b.admin("queue-delete", name="quotes")
    cluster.wait(5_000)
    assert waiting(a, "b") == 0
    assert sorted(bodies(a)) == [b"v2", b"w1"]
    assert a.broker.store.queues["quotes"].replaced_total == 1
    a.crash()
    a.start()
    assert sorted(bodies(a)) == [b"v2", b"w1"]


@pytest.mark.parametrize(("name", "settings"), KEYS)
def test_nor_does_one_that_arrives_while_the_newer_one_waits_for_the_disk(name: str, settings: dict[str, Any]) -> None:
    cluster, a, b = clustered(settings)
    Producer(a, address="quotes").send(b"v1", application_properties={name: "gold"})
    cluster.run()
    cluster.wait(10)
    b.admin("queue-create", name="quotes")
    producer = Producer(b, address="quotes")
    cluster.run()
    b.is_disk_held = True
    producer.publish(b"v2", application_properties={name: "gold"})
    producer.publish(b"w2", application_properties={name: "iron"})
    Consumer(b, address="quotes", credit=0)
    cluster.wait(1_000)
    b.is_disk_held = False
    cluster.wait(1_000)
    assert bodies(a) == []
    assert bodies(b) == [b"v2", b"w2"]
    assert b.broker.store.queues["quotes"].coming_values == {}


def dead(stage: Stage, *texts: bytes, name: str) -> None:
    """Values of one key that a consumer rejects as they come."""
    consumer = Consumer(stage, address="quotes", credit=10)
    producer = Producer(stage, address="quotes")
    for number, text in enumerate(texts):
        producer.publish(text, application_properties={name: "gold"})
        consumer.settle(number, Rejected())
        stage.wait(10)
    stage.drop(consumer.talker)
    stage.run()


@pytest.mark.parametrize(("name", "settings"), KEYS)
def test_a_dead_value_does_not_go_back_where_there_is_a_later_one(name: str, settings: dict[str, Any]) -> None:
    stage = Stage(options_with(address_settings={"quotes": {"dead_letter_address": "dead", **settings}}))
    stage.admin("queue-create", name="dead")
    dead(stage, b"v1", b"v2", name=name)
    assert bodies(stage, "dead") == [b"v1", b"v2"]
    Producer(stage, "other", address="quotes").publish(b"v3", application_properties={name: "gold"})
    assert stage.admin("dead-letters-retry", queue="dead") == {"retried": 0, "left": 2}
    assert (bodies(stage), bodies(stage, "dead")) == ([b"v3"], [b"v1", b"v2"])
    stage.admin("queue-purge", name="quotes")
    assert stage.admin("dead-letters-retry", queue="dead") == {"retried": 2, "left": 0}
    assert (bodies(stage), bodies(stage, "dead")) == ([b"v2"], [])
