"""A node leaves that has exclusive queues: nobody consumes at the heir while they come, behind what was sent there."""

from __future__ import annotations

import pytest

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer, content
from tests.unit.core.cluster.test_drains import bodies, count_at, filled, pair, pair_of_which_b_takes_less, read_at
from tests.unit.node.test_full_heirs import pair_with
from tests.unit.node.test_moving_subscriptions import is_told, waits
from tests.unit.node.test_reloads_by_turns import declaring, reloading
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
    b.admin("queue-create", name="orders", exclusive=True)  # else it would be made by using it
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
    assert read_at(b, cluster).bodies == [b"late", *bodies(200)], (
        "one has all of it, behind what was sent there meanwhile"
    )


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


@pytest.mark.parametrize("force", [False, True])
def test_one_message_that_stays_keeps_nobody_out_for_long(force: bool) -> None:
    cluster, a, b = pair_of_which_b_takes_less()
    a.admin("queue-create", name="orders", exclusive=True)
    filled(a, 10, cluster).send(content(1))
    cluster.run()
    begin(a, cluster, force=force)
    assert is_told(read_at(b, cluster)) == LOCKED
    for _ in range(60):
        cluster.wait(1_000)
        reader = read_at(b, cluster)
        if not is_told(reader):
            break
    assert (reader.bodies, count_at(a)) == (bodies(10), 1)


def test_it_is_locked_until_it_would_have_begun_to_come_for_five_seconds() -> None:
    cluster, a, b = exclusive(20)
    begin(a, cluster)
    cluster.hold_up("a", "b")
    cluster.wait(25_900)
    assert is_told(read_at(b, cluster)) == LOCKED
    cluster.wait(200)
    assert is_told(read_at(b, cluster)) == "", "nothing has come for so long"


def test_it_is_locked_while_a_client_stays_that_has_not_settled() -> None:
    cluster, a, b = exclusive(20)
    slow = Consumer(a, "slow", credit=1)
    cluster.run()
    assert slow.bodies == bodies(1)
    begin(a, cluster)
    for _ in range(10):
        cluster.wait(1_000)
        assert is_told(read_at(b, cluster)) == LOCKED, "it is still to come"
    slow.settle(0)
    moved(a, cluster)
    assert read_at(b, cluster).bodies == bodies(19, 1)


def test_it_is_open_where_only_a_consumer_makes_room() -> None:
    cluster, a, b = pair_with({"exclusive": True}, max_size_messages=30, address_full_policy="BLOCK")
    begin(a, cluster)
    cluster.wait(2_000)
    assert (count_at(a) > 0, count_at(b) >= 30) == (True, True)
    reader = Consumer(b, "reader", credit=500)
    cluster.run()
    assert is_told(reader) == ""
    for number in range(30):
        reader.settle(number)
    assert moved(a, cluster)["receipt"]["balances"]
    assert reader.bodies == bodies(60)


def test_one_that_is_not_exclusive_at_the_heir_is_served() -> None:
    cluster, a, b = pair()
    cluster.hold_up("a", "b")  # else there would be one of that name
    a.admin("queue-create", name="orders", exclusive=True)
    b.admin("queue-create", name="orders")
    cluster.let_through("a", "b")
    filled(a, 20, cluster)
    begin(a, cluster)
    assert is_told(read_at(b, cluster)) == ""
    moved(a, cluster)


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_reload_that_makes_it_exclusive_or_ends_that_is_known_at_the_heir(is_exclusive: bool) -> None:
    cluster, a, b = pair()
    options = a.broker.options
    for exclusive_now in (not is_exclusive, is_exclusive):
        reloading(a, declaring(options, 1, exclusive=exclusive_now))
        cluster.run()
    (binding,) = [each.binding for each in b.broker.store.remotes.by_name.values()]
    assert (binding.queue, binding.is_exclusive) == ("declared.0", is_exclusive)
    producer = Producer(a, "producer", "declared.0")
    for body in bodies(10):
        producer.send(body, durable=False)
    cluster.run()
    begin(a, cluster)
    early = Consumer(b, "early", "declared.0", 100)
    cluster.run()
    assert is_told(early) == (LOCKED if is_exclusive else "")
    moved(a, cluster)
    late = Consumer(b, "late", "declared.0", 100)
    cluster.run()
    assert is_told(late) == ""
    assert [*early.bodies, *late.bodies] == bodies(10)


def test_a_reload_that_changes_it_keeps_its_consumers_and_tells_its_selector() -> None:
    cluster, a, b = pair()
    options = a.broker.options
    reloading(a, declaring(options, 1))
    Consumer(a, "reader", "declared.0", 100)
    cluster.run()
    for filter_now in ("a = 1", "a = 2"):
        reloading(a, declaring(options, 1, filter=filter_now))
        cluster.run()
        (binding,) = [each.binding for each in b.broker.store.remotes.by_name.values()]
        assert (binding.selector, binding.consumers_count) == (filter_now, 1)


def test_who_comes_by_an_address_waits_for_the_queue_of_another_name_that_comes_there() -> None:
    cluster, a, b = pair()
    a.admin("queue-create", name="q1", address="sales", routing_type="anycast", exclusive=True)
    producer = Producer(a, "producer", "sales")
    for body in bodies(50):
        producer.send(body)
    cluster.run()
    begin(a, cluster)
    early = Consumer(b, "early", "sales", 500)
    cluster.run()
    assert is_told(early) == LOCKED
    moved(a, cluster)
    reader = Consumer(b, "reader", "sales", 500)
    cluster.run()
    assert reader.bodies == bodies(50)
    assert [row["name"] for row in b.admin("queues")["queues"]] == ["q1"]


def test_a_multicast_queue_that_is_not_exclusive_is_no_subscription_and_is_served() -> None:
    cluster, a, b = pair()
    a.admin("queue-create", name="first", address="topic", routing_type="multicast")
    begin(a, cluster)
    reader = Consumer(b, "reader", "topic::first", 10)
    cluster.run()
    assert is_told(reader) == ""
    moved(a, cluster)


def test_what_comes_keeps_it_locked_for_as_long_again_and_is_forgotten_of_a_node_that_stays() -> None:
    cluster, a, b = pair_of_which_b_takes_less()
    a.admin("queue-create", name="orders", exclusive=True)
    filled(a, 10, cluster).send(content(1))  # which stays
    cluster.run()
    begin(a, cluster)
    cluster.hold_up("a", "b")
    cluster.wait(4_000)
    cluster.let_through("a", "b")
    cluster.wait(3_000)
    assert waits(b, "orders") == 10, "they came later than it was heard that the node leaves"
    assert is_told(read_at(b, cluster)) == LOCKED
    cluster.wait(5_000)
    assert is_told(read_at(b, cluster)) == ""
    a.ask("scale-down-cancel")
    cluster.run()
    cluster.wait(1_000)
    assert b.broker.store.remotes.awaited.stirred_ns == {}
