"""A node leaves that has exclusive queues: who alone consumes at the heir gets what waited before what comes later."""

from __future__ import annotations

import pytest

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.unit.node.test_drains import bodies, filled, pair, read_at
from tests.unit.node.test_moving_subscriptions import is_told, waits
from tests.unit.node.test_scale_down import begin, moved

LOCKED = "amqp:resource-locked"


def exclusive(count: int) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """Two nodes; the first one has such a queue with so many messages."""
    cluster, a, b = pair()
    a.admin("queue-create", name="orders", exclusive=True)
    filled(a, count, cluster)
    return cluster, a, b


@pytest.mark.parametrize("address", ["orders", "orders::orders"])
def test_who_comes_to_the_heir_too_early_is_refused_and_makes_nothing(address: str) -> None:
    cluster, a, b = exclusive(100)
    begin(a, cluster)
    early = Consumer(b, "early", address, 500)
    cluster.run()
    assert (is_told(early), waits(b, "orders")) == (LOCKED, -1), "its queue does not drain yet"
    assert is_told(Consumer(b, "other", "others", 500)) == "", "one of another name may begin"
    moved(a, cluster)
    assert read_at(b, cluster).bodies == bodies(100)


def test_what_is_sent_to_the_heir_meanwhile_is_read_there_once_all_has_come() -> None:
    cluster, a, b = exclusive(200)
    begin(a, cluster)
    cluster.hold_up("a", "b")
    cluster.wait(1_600)
    late = Producer(b, "late")
    late.send(b"late")
    cluster.run()
    assert is_told(read_at(b, cluster)) == LOCKED
    browser = Consumer(b, "browser", credit=10, source={"distribution_mode": "copy"})
    cluster.run()
    assert (is_told(browser), browser.bodies) == ("", [b"late"]), "who takes nothing may look"
    cluster.let_through("a", "b")
    moved(a, cluster)
    assert sorted(read_at(b, cluster).bodies) == sorted([*bodies(200), b"late"])


def test_it_is_open_at_the_heir_also_where_nothing_durable_went() -> None:
    cluster, a, b = exclusive(0)
    filled(a, 10, cluster, durable=False)
    begin(a, cluster)
    assert moved(a, cluster)["left"] == 0
    there = read_at(b, cluster)
    assert (is_told(there), there.bodies) == ("", bodies(10))


def test_one_that_the_heir_has_on_other_terms_keeps_nobody_out_and_hinders_only_with_what_it_holds() -> None:
    cluster, a, b = exclusive(0)
    b.admin("queue-create", name="orders", last_value=True)
    begin(a, cluster)
    assert moved(a, cluster)["hindrances"] == []
    assert is_told(read_at(b, cluster)) == ""


def test_a_queue_with_nothing_in_it_is_open_at_once_when_its_link_stands() -> None:
    cluster, a, b = exclusive(0)
    begin(a, cluster)
    cluster.wait(3_000)
    assert is_told(read_at(b, cluster)) == ""


def test_one_that_is_not_exclusive_is_served_meanwhile() -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    begin(a, cluster)
    assert is_told(read_at(b, cluster)) == ""
    moved(a, cluster)


def test_called_off_the_heir_keeps_nobody_out() -> None:
    cluster, a, b = exclusive(10)
    begin(a, cluster)
    assert is_told(read_at(b, cluster)) == LOCKED
    a.ask("scale-down-cancel")
    cluster.run()
    cluster.wait(1_000)
    assert is_told(read_at(b, cluster)) == ""
