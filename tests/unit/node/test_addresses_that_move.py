"""What a person said of an address goes along with its queues to the node that takes them."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.address.address_records import told_of
from mqbroker.node.cluster.forwarding_terms import address_wanted

from tests.support.cluster_stage import ClusterNode
from tests.unit.node.test_drains import bodies, filled, pair, read_at
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


@pytest.mark.parametrize("persist", [False, True])
def test_a_pause_goes_along_where_the_address_has_no_queue(persist: bool) -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    a.admin("address-pause", name="orders", persist=persist)
    begin(a, cluster)
    moved(a, cluster)
    assert described(b)[1]
    reader = read_at(b, cluster)
    assert reader.bodies == []
    b.admin("address-resume", name="orders")
    cluster.run()
    assert reader.bodies == bodies(10)


def test_what_was_said_there_stays_and_who_is_served_there_is_not_paused() -> None:
    cluster, a, b = pair()
    cluster.hold_up("a", "b")  # else the second one to make it would find that of the other
    created(b, "anycast")
    created(a, "anycast", "multicast")
    a.admin("address-pause", name="orders")
    assert (described(a), described(b)) == ((["anycast", "multicast"], True, False), (["anycast"], False, False))
    cluster.let_through("a", "b")
    filled(a, 10, cluster)
    begin(a, cluster)
    moved(a, cluster)
    assert described(b) == (["anycast"], False, False)
    assert read_at(b, cluster).bodies == bodies(10)


def test_types_hold_where_the_address_was_made_by_using_it_and_keep_those_it_has() -> None:
    cluster, a, b = pair()
    created(a, "anycast")
    filled(a, 10, cluster)
    b.admin("queue-create", name="other", address="orders", routing_type="multicast")
    a.admin("address-pause", name="orders")
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
    "said", ["[]", "{", '{"paused": 1}', '{"routing_types": ["x"]}', 5, "x" * 70_000, "[" * 60_000]
)
def test_what_is_no_such_thing_is_refused(said: Any) -> None:
    with pytest.raises((ValueError, RecursionError)):
        address_wanted(said)


def test_what_later_releases_say_besides_is_passed_over() -> None:
    assert address_wanted('{"paused": true, "configured": true, "later": 5}') == {"paused": True}
    assert address_wanted(None) == {}
