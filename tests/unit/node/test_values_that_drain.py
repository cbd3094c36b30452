"""Last values in a queue that drains: the newest of each key stays, wherever it is when that begins or ends."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.performatives import Modified
from mqbroker.wire.sections import Header

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Producer
from tests.unit.core.cluster.test_drains import LIMITS, count_at, drain, pair, read_at
from tests.unit.node.amqp.peers.test_coordinator import Client
from tests.unit.node.test_kinds_that_move import keyed, made
from tests.unit.node.test_scale_down import begin, moved

DELAYS: dict[str, Any] = {"address_settings": {"orders": {"redelivery_delay": 10_000}}}
KEY: dict[str, Any] = {"_AMQ_LVQ_NAME": "k"}


def of_values(**settings: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    cluster, a, b = pair(options=LIMITS | settings)
    made(a, last_value=True)
    return cluster, a, b


def fail_one(node: ClusterNode, cluster: ClusterStage) -> None:
    """Its first message is delivered in vain, and waits until it is delivered again."""
    reader = read_at(node, cluster, credit=1)
    reader.settle(0, Modified(delivery_failed=True))
    reader.talker.connection.close()
    cluster.run()
    assert node.broker.store.queues["orders"].scheduled_count == 1


@pytest.mark.parametrize("has_newer", [False, True])
def test_what_waits_to_be_delivered_again_stays_when_a_drain_was_called_off_if_it_is_the_last(
    *, has_newer: bool
) -> None:
    cluster, a, _ = of_values(**DELAYS)
    keyed(a, cluster, ("k", b"the first"))
    fail_one(a, cluster)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    if has_newer:
        keyed(a, cluster, ("k", b"newer"))
    a.admin("drain-cancel", queue="orders")
    cluster.run()
    cluster.wait(11_000)
    assert read_at(a, cluster).bodies == [b"newer" if has_newer else b"the first"]
    assert count_at(a) == 1


def test_what_a_transaction_held_stays_when_a_drain_was_called_off() -> None:
    cluster, a, _ = of_values()
    keyed(a, cluster, ("k", b"the only one"))
    client = Client(a)
    client.receiver("orders")
    txn = client.declare()
    client.retire(0, 0, txn, settled=True)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    a.admin("drain-cancel", queue="orders")
    cluster.run()
    client.discharge(txn, fail=True)
    client.talker.connection.close()
    cluster.run()
    assert read_at(a, cluster).bodies == [b"the only one"]


def test_what_was_on_its_way_stays_when_a_drain_was_called_off_by_force() -> None:
    cluster, a, b = of_values()
    b.is_disk_held = True
    drain(a, cluster)
    keyed(a, cluster, ("k", b"the only one"))
    assert a.broker.store.queues["orders"].delivering_count == 1
    a.admin("drain-cancel", queue="orders", force=True)
    cluster.cut_all(b)
    cluster.wait(100)
    assert read_at(a, cluster).bodies == [b"the only one"]


@pytest.mark.parametrize("by", ["a delay", "a transaction"])
def test_a_value_that_was_replaced_does_not_come_behind_the_newer_one(by: str) -> None:
    cluster, a, b = of_values(**DELAYS if by == "a delay" else {})
    keyed(a, cluster, ("k", b"old"))
    client, txn = Client(a), b""
    if by == "a delay":
        fail_one(a, cluster)
    else:
        client.receiver("orders")
        txn = client.declare()
        client.retire(0, 0, txn, settled=True)
    cluster.wait(5)
    keyed(a, cluster, ("k", b"new"))
    drain(a, cluster)
    reader = read_at(b, cluster)
    reader.settle(0)
    cluster.run()
    if txn:
        client.discharge(txn, fail=True)
    client.talker.connection.close()
    cluster.run()
    cluster.wait(12_000)
    assert reader.bodies == [b"new"]
    assert count_at(a) == count_at(b) == 0


@pytest.mark.parametrize("is_called_off", [False, True])
def test_an_older_value_is_not_there_again_where_the_newer_one_expired(*, is_called_off: bool) -> None:
    cluster, a, b = of_values()
    keyed(a, cluster, ("k", b"old"))
    cluster.hold_up("a", "b")
    drain(a, cluster)
    cluster.wait(10)
    Producer(a).publish(b"new", application_properties=KEY, header=Header(durable=True, ttl=1_000))
    cluster.wait(5_000)
    if is_called_off:
        a.admin("drain-cancel", queue="orders")
        cluster.run()
    cluster.let_through("a", "b")
    cluster.wait(5_000)
    assert count_at(a) == count_at(b) == 0


def test_of_two_that_came_at_the_same_time_the_later_one_is_kept_whatever_its_priority() -> None:
    cluster, a, b = of_values()
    cluster.hold_up("a", "b")
    begin(a, cluster)
    cluster.wait(1_600)
    a.admin("send", address="orders", messages=[
        {"body": body, "durable": True, "priority": priority, "application_properties": KEY}
        for body, priority in (("old", 4), ("new", 9))])  # fmt: skip
    cluster.let_through("a", "b")
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]
    assert b.admin("browse", queue="orders")["messages"][0]["body"] == "new"


def test_a_value_of_before_a_restart_is_not_replaced_since_the_other_node_may_have_it() -> None:
    cluster, a, _ = of_values()
    keyed(a, cluster, ("k", b"old"))
    cluster.hold_up("a", "b")
    drain(a, cluster)
    for _ in range(2):
        a.crash()
        a.start()
        cluster.run()
    keyed(a, cluster, ("k", b"newer"), ("k", b"newest"))
    assert count_at(a) == 2
