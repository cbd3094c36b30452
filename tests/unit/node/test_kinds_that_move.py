"""Queues of all kinds go to another node, each with what it keeps, and are of the same kind there."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from mqbroker.wire.sections import Header, Properties

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.unit.core.cluster.test_drains import bodies, count_at, drain, filled, pair, read_at, row_of
from tests.unit.node.test_scale_down import begin, moved, shown


def made(node: ClusterNode, **attributes: Any) -> None:
    assert "condition" not in node.admin("queue-create", name="orders", **attributes)


def keyed(node: ClusterNode, cluster: ClusterStage, *said: tuple[str, bytes]) -> None:
    producer = Producer(node, f"keys {said}")
    for key, body in said:
        producer.publish(body, application_properties={"_AMQ_LVQ_NAME": key})
    cluster.run()
    assert len(producer.outcomes) == len(said)


@pytest.mark.parametrize(
    "attributes",
    [
        {"last_value": True},
        {"last_value_key": "which"},
        {"ring_size": 7},
        {"non_destructive": True},
        {"purge_on_no_consumers": True},
        {"exclusive": True, "group_buckets": 4, "group_rebalance": True, "group_first_key": "first"},
        {"consumers_before_dispatch": 2, "delay_before_dispatch_ms": 50, "max_consumers": 3},
        {"selector": "colour = 'red'"},
    ],
)
def test_a_queue_is_of_its_kind_there_whatever_the_settings_there_say(attributes: dict[str, Any]) -> None:
    cluster, a, b = pair()
    made(a, **attributes)
    filled(a, 20, cluster, application_properties={"colour": "red"})
    before, count = a.broker.store.queues["orders"].kind.attributes() | {"maker": ""}, count_at(a)
    begin(a, cluster)
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]
    assert (count_at(a), count_at(b)) == (0, count)
    assert b.broker.store.queues["orders"].kind.attributes() | {"maker": ""} == before


def test_the_newest_value_of_each_key_is_kept_wherever_it_was() -> None:
    cluster, a, b = pair()
    for node in (a, b):
        made(node, last_value=True)
    keyed(b, cluster, ("old there", b"old there 1"))
    cluster.wait(10)
    keyed(a, cluster, ("old there", b"old there 2"), ("old here", b"old here 1"), ("only here", b"only here 1"))
    cluster.wait(10)
    keyed(b, cluster, ("old here", b"old here 2"), ("only there", b"only there 1"))
    begin(a, cluster)
    assert moved(a, cluster)["receipt"]["balances"]
    consumer = read_at(b, cluster)
    assert sorted(consumer.bodies) == [b"old here 2", b"old there 2", b"only here 1", b"only there 1"]


def test_a_value_that_the_other_node_may_have_is_not_replaced_here() -> None:
    cluster, a, b = pair(confirmation_window_size=200)
    made(a, last_value=True)
    keyed(a, cluster, ("k", b"1"), ("l", b"1"))
    b.is_disk_held = True  # it has them, and answers for none
    begin(a, cluster)
    cluster.wait(1_600)
    a.bridge("b").end("cut")
    cluster.wait(50)
    a.admin("send", address="orders", messages=[
        {"body": "2", "durable": True, "application_properties": {"_AMQ_LVQ_NAME": "k"}}])  # fmt: skip
    assert count_at(a) == 3
    b.crash()
    b.is_disk_held = False
    b.start()
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]
    assert count_at(b) == 2


def test_values_are_replaced_again_when_a_drain_was_called_off() -> None:
    cluster, a, _ = pair()
    made(a, last_value=True)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    keyed(a, cluster, ("k", b"1"))
    a.crash()
    a.start()
    cluster.run()
    keyed(a, cluster, ("k", b"2"), ("l", b"1"))
    assert count_at(a) == 3, "the other node may have what was there before the restart"
    a.admin("drain-cancel", queue="orders", force=True)
    cluster.run()
    assert read_at(a, cluster).bodies == [b"2", b"1"]


def test_a_ring_keeps_its_size_there_and_what_is_on_its_way_stays_until_it_is_answered() -> None:
    cluster, a, b = pair()
    made(a, ring_size=10)
    filled(a, 15, cluster)
    cluster.hold_up("a", "b")
    begin(a, cluster)
    cluster.wait(1_600)
    late = base64.b64encode(b"late").decode()
    a.admin("send", address="orders", messages=[{"body_base64": late, "durable": True}] * 3)
    assert count_at(a) == 13
    cluster.let_through("a", "b")
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]
    assert read_at(b, cluster).bodies == [*bodies(7, 8), b"late", b"late", b"late"]


def test_a_ring_that_is_served_again_has_its_size() -> None:
    cluster, a, _ = pair()
    made(a, ring_size=10)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    filled(a, 15, cluster)
    assert count_at(a) == 15
    a.admin("drain-cancel", queue="orders")
    cluster.run()
    assert count_at(a) == 10


def test_what_everybody_may_read_moves_all_and_is_read_there_again() -> None:
    cluster, a, b = pair(confirmation_window_size=2_000)
    made(a, non_destructive=True)
    filled(a, 200, cluster)
    begin(a, cluster)
    for node in (a, b):
        cluster.wait(1_100)
        node.crash()
        node.start()
        cluster.run()
    assert moved(a, cluster)["receipt"]["balances"]
    assert [read_at(b, cluster).bodies for _ in range(2)] == [bodies(200)] * 2
    assert count_at(b) == 200


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"ring_size": 3}, "ring-size is 3 here"),
        ({"last_value": True}, "last-value is True here"),
        ({"non_destructive": True}, "non-destructive is True here"),
        ({"purge_on_no_consumers": True}, "purge-on-no-consumers is True here"),
        ({"selector": "a = 1"}, "selector is 'a = 1' here"),
        ({"durable": False}, "is-durable is False here"),
        ({"routing_type": "multicast"}, "routing is 'multicast' here"),
    ],
)
def test_a_queue_of_that_name_on_other_terms_is_named(there: dict[str, Any], why: str) -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    made(b, **there)
    drain(a, cluster)
    assert why in row_of(a)["why"]
    assert count_at(a) == 5


def test_priorities_and_the_order_in_groups_are_kept() -> None:
    cluster, a, b = pair()
    producer = Producer(a)
    for number in range(30):
        producer.send(b"%05d" % number, properties=Properties(group_id=f"g{number % 3}"))
    cluster.run()
    producer.publish(b"first", header=Header(durable=True, priority=9))
    begin(a, cluster)
    moved(a, cluster)
    consumers = [Consumer(b, f"reader {number}", credit=100) for number in range(2)]
    cluster.run()
    found = [each.bodies for each in consumers]
    assert b"first" in (each[0] for each in found if each)
    for group in range(3):
        (whole,) = [[body for body in each if body.isdigit() and int(body) % 3 == group] for each in found
                    if any(body.isdigit() and int(body) % 3 == group for body in each)]  # fmt: skip
        assert whole == bodies(30)[group::3]


def test_nothing_of_a_plain_queue_is_hindered_by_its_kind() -> None:
    cluster, a, _ = pair()
    for number, attributes in enumerate(({"ring_size": 5}, {"last_value": True}, {"non_destructive": True})):
        a.admin("queue-create", name=f"q{number}", **attributes)
        a.admin("send", address=f"q{number}", messages=[{"body": "x", "durable": True}])
    assert begin(a, cluster, dry_run=True)["hindrances"] == []
    assert shown(a)["state"] == "none"


def test_a_ring_whose_drain_is_stuck_has_at_most_twice_its_size_and_its_producers_go_on() -> None:
    full: dict[str, Any] = {"max_size_bytes": 20_000, "address_full_policy": "BLOCK"}
    cluster, a, b = pair(options={"limits": {"link_credit": 100}, "address_settings": {"orders": full}})
    made(a, ring_size=10)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    producer = Producer(a)
    for number in range(300):
        producer.publish(b"%05d" % number + bytes(100))
    assert len(producer.outcomes) == 300
    assert count_at(a) == 20
    a.crash()
    a.start()
    cluster.run()
    a.admin("send", address="orders", messages=[{"body": "x", "durable": True}] * 5)
    assert count_at(a) == 20, "of what was there before the restart nobody knows where it is"
    cluster.let_through("a", "b")
    cluster.wait(5_000)
    assert (count_at(a), count_at(b)) == (0, 10)
