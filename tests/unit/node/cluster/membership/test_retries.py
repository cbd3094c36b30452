"""Dead letters that go back in a cluster: to their queue, wherever it is, and to nobody who had a copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.slices import BrokerOptions
from mqbroker.wire.performatives import Rejected

from tests.support.cluster_stage import ClusterNode, node_id_of, options_for
from tests.support.stage import options_with
from tests.unit.core.address.test_diverts import divert, reload
from tests.unit.node.cluster.grouping.test_grouping import Site
from tests.unit.node.cluster.membership.test_forwards import pair

DIES = {
    "dead_letter_address": "DLQ",
    "max_delivery_attempts": 1,
    "auto_create_queues": False,
    "auto_delete_queues": False,
}


def reject(node: ClusterNode, queue: str) -> None:
    answer = node.admin("receive", address=queue, count_max=1, wait_ms=1)
    assert node.admin("settle", tag=answer["tag"], outcome="rejected") == {}


def count_at(node: ClusterNode, queue: str) -> int:
    return node.broker.store.queues[queue].message_count


def queue_said(node: ClusterNode, queue: str) -> str:
    """Which queue the one message in this one says that it was in."""
    answer = node.admin("receive", address=queue, count_max=1, wait_ms=1)
    assert node.admin("settle", tag=answer["tag"], outcome="released") == {}
    (message,) = answer["messages"]
    said: str = message["message_annotations"]["x-opt-ORIG-QUEUE"]
    return said


def test_a_retry_goes_to_no_subscription_of_another_node_which_had_the_message() -> None:
    cluster, a, b = pair(options={"address_settings": {"#": DIES}})
    a.admin("queue-create", name="DLQ")
    for node, queue in ((a, "s1"), (b, "s2")):
        node.admin("queue-create", name=queue, address="news", routing_type="multicast")
    cluster.run()
    assert a.admin("send", address="news", messages=[{"body": "x"}]) == {"accepted": 1}
    cluster.run()
    reject(a, "s1")
    a.admin("queue-delete", name="s1")
    cluster.run()
    for to_address in (False, True):
        said = a.admin("dead-letters-retry", queue="DLQ", to_address=to_address)
        assert said == {"retried": int(to_address), "left": int(not to_address)}
        cluster.run()
        assert count_at(b, "s2") == 1 + to_address


@pytest.mark.parametrize("to_address", [False, True])
@pytest.mark.parametrize("routing", ["multicast", "anycast"])
def test_dead_letters_that_are_gathered_at_another_node_go_back_to_their_queue_alone(
    routing: str, to_address: bool
) -> None:
    """Other subscriptions, and a divert, had it."""
    cluster, a, b = pair(message_load_balancing="STRICT", options={"address_settings": {"#": DIES}})
    for node in (a, b):
        reload(node, divert("d", "news", "audit"))
    for node, queues in ((a, ("DLQ", "audit")), (b, ("gathered", "audit"))):
        for queue in queues:
            node.admin("queue-create", name=queue)
    for queue in ("s1", "s2"):
        a.admin("queue-create", name=queue, address="news", routing_type=routing)
    cluster.run()
    assert a.admin("send", address="news", messages=[{"body": "x"}]) == {"accepted": 1}
    reject(a, "s1")
    assert a.admin("messages-move", queue="DLQ", address="gathered") == {"moved": 1, "left": 0}
    cluster.run()
    others = ((a, "s2"), (a, "audit"), (b, "audit"))
    before = [count_at(*each) for each in others]
    said = b.admin("dead-letters-retry", queue="gathered", to_address=to_address)
    assert said == {"retried": 1, "left": 0}
    cluster.run()
    assert (count_at(a, "s1"), [count_at(*each) for each in others]) == (1, before)


def test_dead_letters_of_a_queue_that_another_node_shares_with_none_go_to_one_that_is_here() -> None:
    """Messages do not go there to be shared (OFF), so those who share them here have them."""
    cluster, a, b = pair(message_load_balancing="OFF", options={"address_settings": {"#": DIES}})
    for queue in ("there", "here"):
        a.admin("queue-create", name=queue, address="orders")
    a.admin("queue-create", name="DLQ")
    cluster.run()
    assert a.admin("send", address="orders::there", messages=[{"body": "x"}]) == {"accepted": 1}
    reject(a, "there")
    a.admin("queue-delete", name="there")
    b.admin("queue-create", name="there", address="orders")
    cluster.run()
    assert a.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    cluster.run()
    assert (count_at(a, "here"), count_at(b, "there")) == (1, 0)


def test_what_a_queue_shared_that_is_gone_goes_to_no_subscription_of_another_node() -> None:
    """It had its copy; who shares by now what comes to the address gets the message."""
    cluster, a, b = pair(message_load_balancing="STRICT", options={"address_settings": {"#": DIES}})
    a.admin("queue-create", name="DLQ")
    a.admin("queue-create", name="gone", address="news")
    b.admin("queue-create", name="s", address="news", routing_type="multicast")
    cluster.run()
    assert a.admin("send", address="news", messages=[{"body": "x"}]) == {"accepted": 1}
    cluster.run()
    reject(a, "gone")
    a.admin("queue-delete", name="gone")
    assert a.admin("dead-letters-retry", queue="DLQ") == {"retried": 0, "left": 1}
    b.admin("queue-create", name="other", address="news")
    cluster.run()
    assert a.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    cluster.run()
    assert (count_at(b, "s"), count_at(b, "other")) == (1, 1)


class GroupingSite(Site):
    """Of its nodes `a` has no queue but that in which dead letters are gathered."""

    def options(self, name: str) -> BrokerOptions:
        rules = {"#": {**DIES, "auto_create_queues": True}, "gathered": {"auto_create_queues": False}}
        tables = {
            "grouping_handler": {"type": self.types[name], **self.handler},
            "address_settings": rules,
        }  # fmt: skip
        others = [each for each in self.names if each != name]
        said: dict[str, Any] = {"retry_interval": 100, "max_hops": 1, "allow_direct_connections_only": False}
        return options_for(name, others, {**said, "options": tables})


def test_a_group_that_is_retried_at_another_node_stays_together() -> None:
    site = GroupingSite("abc")
    site["a"].admin("queue-create", name="gathered")
    for name in "bc":
        site[name].admin("queue-create", name="DLQ")
    consumers = {name: site.consumer(name) for name in "bc"}
    site.publish(site.producer("b"), *"gggg")
    owner = site.owners("a")["g"]
    for number in range(4):
        consumers[owner].settle(number, Rejected())
    site.cluster.run()
    assert site[owner].admin("messages-move", queue="DLQ", address="gathered") == {"moved": 4, "left": 0}
    site.wait(1_000)
    assert "orders" not in site["a"].broker.store.queues
    assert site["a"].admin("dead-letters-retry", queue="gathered") == {"retried": 4, "left": 0}
    site.wait(1_000)
    assert {name: len(each.bodies) for name, each in consumers.items()} == {"b": 0, "c": 0, owner: 8}


@pytest.mark.parametrize("to_address", [False, True])
@pytest.mark.parametrize(
    ("routing", "is_here"),
    [("anycast", False), ("multicast", False), ("multicast", True)],
)
def test_what_expired_on_its_way_to_a_queue_is_retried_to_that_alone(
    routing: str, is_here: bool, to_address: bool
) -> None:
    """It says which one it was for, not in which one it waited for the way; other subscriptions had their copies."""
    rules = {**DIES, "expiry_address": "expired"}
    cluster, a, b = pair(message_load_balancing="STRICT", options={"address_settings": {"#": rules}})
    a.admin("queue-create", name="expired")
    b.admin("queue-create", name="there", address="news", routing_type=routing)
    if is_here:
        a.admin("queue-create", name="here", address="news", routing_type=routing)
    cluster.run()
    b.crash()
    cluster.run()
    assert a.admin("send", address="news", messages=[{"body": "x", "ttl_ms": 500}]) == {"accepted": 1}
    if is_here:
        answer = a.admin("receive", address="here", count_max=1, wait_ms=1)
        assert a.admin("settle", tag=answer["tag"], outcome="accepted") == {}
    cluster.wait(2_000)
    assert count_at(a, "expired") == 1
    b.start()
    cluster.run()
    cluster.wait(3_000)
    assert queue_said(a, "expired") == "there"
    said = a.admin("dead-letters-retry", queue="expired", to_address=to_address)
    assert said == {"retried": 1, "left": 0}
    cluster.run()
    assert count_at(b, "there") == 1
    if is_here:
        assert count_at(a, "here") == 0


@pytest.mark.parametrize("to_address", [False, True])
def test_a_copy_that_expired_on_its_way_to_several_subscriptions_says_none_of_them(to_address: bool) -> None:
    """It stays, as it goes to no one of them alone, but for who wants it sent to all of the address again."""
    rules = {**DIES, "expiry_address": "expired"}
    cluster, a, b = pair(options={"address_settings": {"#": rules}})
    a.admin("queue-create", name="expired")
    for node, queue in ((b, "s1"), (b, "s2"), (a, "here")):
        node.admin("queue-create", name=queue, address="news", routing_type="multicast")
    cluster.run()
    b.crash()
    cluster.run()
    assert a.admin("send", address="news", messages=[{"body": "x", "ttl_ms": 500}]) == {"accepted": 1}
    answer = a.admin("receive", address="here", count_max=1, wait_ms=1)
    assert a.admin("settle", tag=answer["tag"], outcome="accepted") == {}
    cluster.wait(2_000)
    assert queue_said(a, "expired").startswith("$.sf.")
    b.start()
    cluster.run()
    cluster.wait(3_000)
    said = a.admin("dead-letters-retry", queue="expired", to_address=to_address)
    assert said == {"retried": int(to_address), "left": int(not to_address)}
    cluster.run()
    assert [count_at(*each) for each in ((b, "s1"), (b, "s2"), (a, "here"))] == [int(to_address)] * 3


@pytest.mark.parametrize("queue", ["orders", "other"])
def test_what_expired_on_its_way_to_a_queue_of_a_node_that_is_away_makes_one_of_the_name_of_its_address(
    queue: str,
) -> None:
    """As for senders; one of another name is kept for its node."""
    rules = {**DIES, "expiry_address": "expired"}
    cluster, a, b = pair(message_load_balancing="STRICT", options={"address_settings": {"#": rules}})
    a.admin("queue-create", name="expired")
    b.admin("queue-create", name=queue, address="orders")
    cluster.run()
    b.crash()
    cluster.run()
    message = {"body": "x", "ttl_ms": 500, "durable": True}
    assert a.admin("send", address="orders", messages=[message]) == {"accepted": 1}
    cluster.wait(2_000)
    a.crash()
    may_make = {"#": rules, "orders": {"auto_create_queues": True}}
    a.options = replace(a.options, address_settings=options_with(address_settings=may_make).address_settings)
    a.start()
    cluster.run()
    is_made = queue == "orders"
    said = a.admin("dead-letters-retry", queue="expired")
    assert said == {"retried": int(is_made), "left": int(not is_made)}
    assert ("orders" in a.broker.store.queues) == is_made


@pytest.mark.parametrize("to_address", [False, True])
@pytest.mark.parametrize("how", ["restarted", "deleted there", "forgotten"])
def test_what_expired_on_its_way_to_a_subscription_goes_to_no_queue_that_had_it_here(
    how: str, to_address: bool
) -> None:
    """Its own queue had the message. The node has started anew, and knows nothing of the other one's bindings; or
    these are gone, and the queue in which it waited with them."""
    rules = {**DIES, "expiry_address": "expired"}
    cluster, a, b = pair(message_load_balancing="STRICT", options={"address_settings": {"#": rules}})
    for queue in ("expired", "news"):
        a.admin("queue-create", name=queue)
    b.admin("queue-create", name="there", address="news", routing_type="multicast")
    cluster.run()
    b.crash()
    cluster.run()
    message = {"body": "x", "ttl_ms": 500, "durable": True}
    assert a.admin("send", address="news", messages=[message]) == {"accepted": 1}
    answer = a.admin("receive", address="news", count_max=1, wait_ms=1)
    assert a.admin("settle", tag=answer["tag"], outcome="accepted") == {}
    cluster.wait(2_000)
    assert count_at(a, "expired") == 1
    if how == "restarted":
        a.crash()
        a.start()
    elif how == "deleted there":
        b.start()
        cluster.wait(3_000)
        b.admin("queue-delete", name="there")
    else:
        a.admin("cluster-forget", node_id=node_id_of("b"))
    cluster.run()
    cluster.wait(1_000)
    assert any(each.kind.is_forwarding for each in a.broker.store.queues.values()) == (how == "restarted")
    said = a.admin("dead-letters-retry", queue="expired", to_address=to_address)
    assert said == {"retried": int(to_address), "left": int(not to_address)}
    assert count_at(a, "news") == int(to_address)


def test_a_copy_of_a_node_that_is_not_there_makes_no_queue_on_its_topic() -> None:
    """Nobody tells then what reads there: the address has no way, and the copy waits for who knows."""
    gathered = {**DIES, "auto_create_queues": False}
    rules = {"#": {**DIES, "auto_create_queues": True}, "gathered": gathered}
    cluster, a, b = pair(message_load_balancing="STRICT", options={"address_settings": rules})
    a.admin("queue-create", name="gathered")
    b.admin("queue-create", name="DLQ")
    for queue in ("s1", "s2"):
        b.admin("queue-create", name=queue, address="news", routing_type="multicast")
    cluster.run()
    assert a.admin("send", address="news", messages=[{"body": "x"}]) == {"accepted": 1}
    cluster.run()
    reject(b, "s1")
    assert b.admin("messages-move", queue="DLQ", address="gathered") == {"moved": 1, "left": 0}
    cluster.run()
    cluster.wait(1_000)
    b.crash()
    a.crash()
    a.start()
    cluster.run()
    cluster.wait(1_000)
    assert a.admin("dead-letters-retry", queue="gathered") == {"retried": 0, "left": 1}
    assert "news" not in a.broker.store.queues
    b.start()
    cluster.run()
    cluster.wait(3_000)
    assert a.admin("dead-letters-retry", queue="gathered") == {"retried": 1, "left": 0}
    cluster.run()
    assert (count_at(b, "s1"), count_at(b, "s2")) == (1, 1)


@pytest.mark.parametrize("queue", ["q", "orders"])
def test_what_a_queue_of_a_node_that_is_not_there_shared_makes_none_that_nobody_reads(queue: str) -> None:
    """It is there when its node is. One of the name of the address is made, as for senders, and its messages go on."""
    options = {"address_settings": {"#": DIES, "orders": {**DIES, "auto_create_queues": True}}}
    cluster, a, b = pair(message_load_balancing="ON_DEMAND", options=options)
    a.admin("queue-create", name="DLQ")
    b.admin("queue-create", name=queue, address="orders")
    cluster.run()
    assert b.admin("send", address="orders", messages=[{"body": "x", "durable": True}]) == {"accepted": 1}
    reject(b, queue)
    cluster.run()
    cluster.wait(500)
    assert count_at(a, "DLQ") == 1
    b.crash()
    a.crash()
    a.start()
    cluster.run()
    is_made = queue == "orders"
    said = a.admin("dead-letters-retry", queue="DLQ")
    assert said == {"retried": int(is_made), "left": int(not is_made)}
    assert ("orders" in a.broker.store.queues) == is_made
    if not is_made:
        b.start()
        cluster.run()
        cluster.wait(3_000)
        assert a.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
        cluster.run()
        assert count_at(b, "q") == 1


@pytest.mark.parametrize(("routing", "other"), [("anycast", "multicast"), ("multicast", "anycast")])
@pytest.mark.parametrize("is_gathered", [False, True])
def test_a_queue_of_the_same_name_and_the_other_routing_type_is_another_queue(
    routing: str, other: str, is_gathered: bool
) -> None:
    """It had the message; whether it is at another node than the retry or at that itself."""
    cluster, a, b = pair(message_load_balancing="STRICT", options={"address_settings": {"#": DIES}})
    for node, queue in ((a, "DLQ"), (b, "gathered")):
        node.admin("queue-create", name=queue)
    for node, kind in ((a, routing), (b, other)):
        node.admin("queue-create", name="x", address="news", routing_type=kind)
    cluster.run()
    assert a.admin("send", address="news", messages=[{"body": "m"}]) == {"accepted": 1}
    cluster.run()
    assert (count_at(a, "x"), count_at(b, "x")) == (1, 1)
    reject(a, "x")
    a.admin("queue-delete", name="x")
    cluster.run()
    node, queue = (b, "gathered") if is_gathered else (a, "DLQ")
    if is_gathered:
        assert a.admin("messages-move", queue="DLQ", address="gathered") == {"moved": 1, "left": 0}
        cluster.run()
    assert node.admin("dead-letters-retry", queue=queue) == {"retried": 0, "left": 1}
    cluster.run()
    assert count_at(b, "x") == 1
