"""Dead letters that go back in a cluster: to their queue, wherever it is, and to nobody who had a copy."""

from __future__ import annotations

import pytest

from tests.support.cluster_stage import ClusterNode
from tests.unit.core.address.test_diverts import divert, reload
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
