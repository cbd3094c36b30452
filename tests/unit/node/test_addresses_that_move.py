"""What a person said of an address goes along with its queues to the node that takes them."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.address.address_records import told_of
from mqbroker.node.cluster.forwarding_terms import address_wanted

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Producer
from tests.unit.core.cluster.test_drains import LIMITS, bodies, filled, pair, read_at
from tests.unit.node.test_scale_down import begin, moved


def created(node: ClusterNode, *routing_types: str) -> None:
    node.admin("address-create", name="orders", routing_types=list(routing_types))
    node.admin("queue-create", name="orders")


def described(node: ClusterNode) -> tuple[list[str], bool, bool]:
    """Routing types, whether it pauses, and whether it was only made by using it."""
    (row,) = [each for each in node.admin("addresses")["addresses"] if each["name"] == "orders"]
    return row["routing_types"], row["paused"], row["auto_created"]


@pytest.mark.parametrize("crashes", [False, True])
def test_an_address_that_somebody_made_is_one_there_too_and_stays(crashes: bool) -> None:
    cluster, a, b = pair()
    created(a, "anycast", "multicast")
    filled(a, 10, cluster)
    begin(a, cluster)
    assert moved(a, cluster)["receipt"]["balances"]
    if crashes:
        b.crash()
        b.start()
        cluster.wait(5_000)
    assert described(b) == (["anycast", "multicast"], False, False)
    assert read_at(b, cluster).bodies == bodies(10)
    b.admin("queue-delete", name="orders", force=True)
    cluster.wait(5_000)
    assert described(b)[0] == ["anycast", "multicast"], "nobody deletes it but a person"


def test_which_types_it_may_have_is_said_of_no_other_node_and_hinders_none_that_comes_next() -> None:
    cluster = ClusterStage()
    said: dict[str, Any] = {"options": LIMITS, "message_load_balancing": "OFF"}
    a, b, c = cluster.node("a", ["b"], **said), cluster.node("b", ["a", "c"], **said), cluster.node("c", ["b"], **said)
    cluster.run()
    cluster.wait(600)
    created(c, "anycast")
    a.admin("queue-create", name="topic", address="orders", routing_type="multicast")
    producer = Producer(a, "producer", "orders")
    for index in range(5):
        producer.send(b"%d" % index, durable=True)
    cluster.run()
    begin(c, cluster)
    moved(c, cluster)
    assert described(b)[2] is False, "somebody made it"
    begin(a, cluster)
    assert moved(a, cluster)["hindrances"] == []
    assert b.broker.store.queues["topic"].message_count == 5


def test_a_pause_stays_and_the_plan_says_so() -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    (row,) = begin(a, cluster, dry_run=True)["queues"]
    assert row["address_paused"] is False
    a.admin("address-pause", name="orders", persist=True)
    (row,) = begin(a, cluster, dry_run=True)["queues"]
    assert row["address_paused"] is True
    begin(a, cluster)
    moved(a, cluster)
    assert described(b)[1] is False
    assert read_at(b, cluster).bodies == bodies(10)


def test_who_pauses_it_there_before_has_it_paused() -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    b.admin("address-pause", name="orders")
    begin(a, cluster)
    moved(a, cluster)
    reader = read_at(b, cluster)
    assert reader.bodies == []
    b.admin("address-resume", name="orders")
    cluster.run()
    assert reader.bodies == bodies(10)


def test_what_was_said_there_stays() -> None:
    cluster, a, b = pair()
    cluster.hold_up("a", "b")  # else the second one to make it would find that of the other
    created(b, "anycast")
    created(a, "anycast", "multicast")
    assert (described(a)[0], described(b)[0]) == (["anycast", "multicast"], ["anycast"])
    cluster.let_through("a", "b")
    filled(a, 10, cluster)
    begin(a, cluster)
    moved(a, cluster)
    assert described(b) == (["anycast"], False, False)
    assert read_at(b, cluster).bodies == bodies(10)


def test_it_is_kept_also_where_it_was_made_by_using_it() -> None:
    cluster, a, b = pair()
    created(a, "anycast")
    filled(a, 10, cluster)
    b.admin("queue-create", name="other", address="orders", routing_type="multicast")
    begin(a, cluster)
    moved(a, cluster)
    assert described(b) == (["anycast", "multicast"], False, False)


def test_what_a_file_declares_is_said_by_the_file_there() -> None:
    cluster, a, _ = pair()
    filled(a, 1, cluster)
    address = a.broker.store.addresses["orders"]
    a.broker.store.address_records.configure("orders", ("anycast",))
    assert told_of(address) == {}


@pytest.mark.parametrize(
    "said", ["[]", "{", '{"routing_types": 1}', '{"routing_types": ["x"]}', 5, "x" * 70_000, "[" * 60_000]
)
def test_what_is_no_such_thing_is_refused(said: Any) -> None:
    with pytest.raises((ValueError, RecursionError)):
        address_wanted(said)


def test_what_later_releases_say_besides_is_passed_over() -> None:
    said = '{"routing_types": ["anycast"], "paused": true, "configured": true, "later": 5}'
    assert address_wanted(said) == {"routing_types": ["anycast"]}
    assert address_wanted(None) == {}
