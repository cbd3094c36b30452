"""Last values in a cluster: what waited on its way, or is moved, replaces nothing that came later."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.node.values import inputs as given
from mqbroker.wire.parts import DELIVERY_DELAY
from mqbroker.wire.performatives import Rejected
from mqbroker.wire.run import single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import Header, build_message, encode_section
from mqbroker.wire.values import Long

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.support.stage import Stage, options_with
from tests.unit.node.cluster.membership.test_forwards import pair, waiting

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


@pytest.mark.parametrize(("name", "settings"), KEYS)
def test_keys_are_told_apart_however_long_and_of_whatever_type_they_are(name: str, settings: dict[str, Any]) -> None:
    stage = Stage(options_with(address_settings={"quotes": settings}))
    producer = Producer(stage, address="quotes")
    long = "g" * 5_000
    for body, key in ((b"v1", long + "a"), (b"v2", long + "b"), (b"v3", long + "a"), (b"w1", 0), (b"w2", False)):
        producer.publish(body, application_properties={name: key})
    producer.publish(b"w3", application_properties={name: 0})
    assert bodies(stage) == [b"v2", b"v3", b"w2", b"w3"]


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


@pytest.mark.slow
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


def send_later(producer: Producer, body: bytes, delay_ms: int, name: str = "_AMQ_LVQ_NAME") -> None:
    """A value of gold with a delay."""
    whole = build_message(body, durable=True, application_properties={name: "gold"})
    bare = scan_sections(whole, 0, len(whole)).bare
    said = encode_section(MESSAGE_ANNOTATIONS, {DELIVERY_DELAY: Long(delay_ms)})
    producer.link.session.send_run(producer.link, single(whole[:bare] + said + whole[bare:]), 0, 1, body)
    producer.stage.run()


@pytest.mark.parametrize(("name", "settings"), KEYS)
def test_one_with_a_delay_that_waited_replaces_what_is_there_when_it_is_due(
    name: str, settings: dict[str, Any]
) -> None:
    """As where all of them are sent to one node: what counts is from when on it is the value."""
    cluster, a, b = clustered(settings)
    Consumer(b, address="quotes", credit=0)
    cluster.run()
    b.is_disk_held = True
    send_later(Producer(a, address="quotes"), b"v1", 10_000, name)
    cluster.run()
    assert waiting(a, "b") == 1
    b.crash()
    b.is_disk_held = False
    cluster.wait(10)
    b.start()
    Producer(b, address="quotes").send(b"v2", application_properties={name: "gold"})
    cluster.wait(2_500)
    assert waiting(a, "b") == 0
    assert bodies(b) == [b"v2", b"v1"]
    cluster.wait(10_000)
    assert bodies(b) == [b"v1"]


@pytest.mark.parametrize(("name", "settings"), KEYS)
def test_one_from_before_another_was_due_replaces_nothing(name: str, settings: dict[str, Any]) -> None:
    cluster, a, b = clustered(settings)
    Consumer(b, address="quotes", credit=0)
    cluster.run()
    send_later(Producer(b, address="quotes"), b"v1", 1_000, name)
    cluster.wait(500)
    b.is_disk_held = True
    Producer(a, address="quotes").send(b"v0", application_properties={name: "gold"})
    cluster.run()
    assert waiting(a, "b") == 1
    b.crash()
    b.is_disk_held = False
    cluster.hold_up("a", "b")
    b.start()
    cluster.wait(2_000)
    assert bodies(b) == [b"v1"]
    cluster.let_through("a", "b")
    cluster.wait(5_000)
    assert waiting(a, "b") == 0
    assert bodies(b) == [b"v1"]


def test_one_that_a_consumer_had_when_another_was_due_does_not_come_back_by_a_crash() -> None:
    stage = Stage(options_with(address_settings={"quotes": {"default_last_value_queue": True}}))
    stage.admin("queue-create", name="quotes")
    named = {"_AMQ_LVQ_NAME": "gold"}
    producer = Producer(stage, address="quotes")
    send_later(producer, b"v1", 1_000)
    consumer = Consumer(stage, address="quotes", credit=1)
    producer.publish(b"v2", application_properties=named)
    assert consumer.bodies == [b"v2"]
    stage.wait(2_000)
    assert bodies(stage) == [b"v1"]
    for _ in range(2):
        stage.crash()
        stage.start()
        assert bodies(stage) == [b"v1"]
    Producer(stage, "again", address="quotes").publish(b"v3", application_properties=named)
    assert bodies(stage) == [b"v3"]


def test_what_waits_for_the_disk_is_the_last_value_whatever_its_priority() -> None:
    stage = Stage(options_with(address_settings={"quotes": {"default_last_value_queue": True}}))
    stage.admin("queue-create", name="quotes")
    producer = Producer(stage, address="quotes")
    stage.is_disk_held = True
    for body, priority in ((b"v1", 0), (b"v2", 9)):
        header = Header(durable=True, priority=priority)
        producer.publish(body, header=header, application_properties={"_AMQ_LVQ_NAME": "gold"})
    first, _ = stage.pending
    stage.pending.remove(first)
    stage.give(given.Synced(stage.disk.commit([first])))
    stage.step()
    queue = stage.broker.store.queues["quotes"]
    assert (queue.waiting_count, list(queue.coming_values)) == (1, ["gold"])
    stage.is_disk_held = False
    stage.run()
    assert (bodies(stage), queue.coming_values) == ([b"v2"], {})
