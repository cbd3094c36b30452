"""A message expires at one node: at the one that has it, and what may be at both is judged of by the one it goes to."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.address.dead_letters import HOLD_MS
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.kinds import kind_of
from mqbroker.wire.sections import Header, Properties

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Producer

TTL_MS = 5_000
TO_EXPIRY = {"address_settings": {"news": {"expiry_address": "expired"}, "expired": {"auto_create_queues": False}}}


def pair(**changes: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """The second has a durable subscription that nobody takes anything from, and both a place for what has expired."""
    cluster = ClusterStage()
    a, b = (cluster.node(name, [far], options=TO_EXPIRY, **changes) for name, far in ("ab", "ba"))
    for node in (a, b):
        node.admin("queue-create", name="expired")
    b.admin("queue-create", name="kept", address="news", routing_type="multicast")
    cluster.run()
    cluster.wait(1_000)
    publish(a, 1, "opener")  # now there is a link for them
    cluster.run()
    assert b.admin("queue-purge", name="kept")["purged"] == 1
    return cluster, a, b


def waiting(node: ClusterNode) -> int:
    """Messages for the second node."""
    return sum(queue.message_count for queue in node.broker.store.remotes.queues_of(node_id_of("b")))


def expired(*nodes: ClusterNode) -> list[int]:
    """How many messages have come to the expiry address of each."""
    return [node.broker.store.queues["expired"].message_count for node in nodes]


def publish(node: ClusterNode, count: int, name: str, ttl_ms: int = TTL_MS, **said: Any) -> None:
    producer = Producer(node, name, "news")
    for number in range(count):
        producer.send(b"%d" % number, header=Header(ttl=ttl_ms), **said)
    node.run()
    assert len(producer.outcomes) == count


def part(cluster: ClusterStage) -> None:
    """Nothing gets through any more, and what stood is lost."""
    cluster.hold_up("a", "b")
    for pipe in cluster.between("a", "b"):
        cluster.cut(pipe)
    cluster.run()


def lose_answers(cluster: ClusterStage, a: ClusterNode, b: ClusterNode, count: int = 3, **said: Any) -> None:
    """The second node has messages, and the first does not know it."""
    cluster.silence(b, is_deaf=False)
    publish(a, count, "first", **said)
    cluster.run()
    part(cluster)
    assert (waiting(a), b.broker.store.queues["kept"].message_count) == (count, count)


def reach(cluster: ClusterStage) -> None:
    cluster.let_through("a", "b")
    cluster.wait(3_000)


def test_what_another_node_has_expires_there_alone() -> None:
    cluster, a, b = pair()
    lose_answers(cluster, a, b)
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), expired(a, b)) == (3, [0, 3])
    reach(cluster)
    assert (waiting(a), expired(a, b)) == (0, [0, 3])
    totals = [node.broker.store.dead_letters.left_totals["expired"] for node in (a, b)]
    assert totals == [0, 3]


def test_what_it_was_sent_and_did_not_get_expires_there_when_it_comes() -> None:
    cluster, a, b = pair()
    cluster.silence(b)  # it hears nothing
    publish(a, 3, "first")
    part(cluster)
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), expired(a, b)) == (3, [0, 0])
    reach(cluster)
    assert (waiting(a), expired(a, b)) == (0, [0, 3])


def test_what_no_other_node_has_expires_here_beside_what_one_may_have() -> None:
    cluster, a, b = pair()
    lose_answers(cluster, a, b)
    publish(a, 4, "second")
    assert waiting(a) == 7
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), expired(a, b)) == (3, [4, 3])
    reach(cluster)
    assert (waiting(a), expired(a, b)) == (0, [4, 3])


def test_of_a_run_that_was_sent_in_part_the_rest_expires_here() -> None:
    cluster, a, b = pair(confirmation_window_size=1)
    cluster.silence(b, is_deaf=False)
    publish(a, 6, "first")
    cluster.run()
    part(cluster)
    assert (waiting(a), b.broker.store.queues["kept"].message_count) == (6, 1)
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), expired(a, b)) == (1, [5, 1])
    reach(cluster)
    assert (waiting(a), expired(a, b)) == (0, [5, 1])


@pytest.mark.parametrize("properties", [None, Properties(group_id="one")])
def test_it_does_not_matter_where_in_a_run_they_are(properties: Properties | None) -> None:
    cluster, a, b = pair()
    part(cluster)
    publish(a, 9, "first", properties=properties)
    (queue,) = a.broker.store.remotes.queues_of(node_id_of("b"))
    first = queue.backlog.head.first_id
    assert queue.handed_over is not None
    for place, count in ((2, 2), (6, 1)):
        queue.handed_over.sent(first + place, count)
    cluster.wait(TTL_MS + 1_000)
    left = [(segment.first_id - first, segment.n) for segment in queue.backlog]
    assert (sum(n for _, n in left), left[0][0], left[-1][0], expired(a)) == (3, 2, 6, [6])
    reach(cluster)
    assert (waiting(a), expired(a, b)) == (0, [6, 3])


def test_what_a_process_before_may_have_sent_is_judged_of_by_the_other_node() -> None:
    cluster, a, b = pair()
    lose_answers(cluster, a, b)
    a.crash()
    a.start()
    publish(a, 2, "second")
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), expired(a, b)) == (3, [2, 3])
    reach(cluster)
    assert (waiting(a), expired(a, b)) == (0, [2, 3])


def test_messages_of_groups_are_handed_out_to_it_too() -> None:
    """They are looked at one by one."""
    cluster, a, b = pair()
    lose_answers(cluster, a, b, properties=Properties(group_id="one"))
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), expired(a, b)) == (3, [0, 3])
    reach(cluster)
    assert (waiting(a), expired(a, b)) == (0, [0, 3])


def test_what_does_not_expire_is_not_in_the_way() -> None:
    cluster, a, b = pair()
    lose_answers(cluster, a, b)
    publish(a, 2, "lasting", ttl_ms=1_000_000)
    publish(a, 2, "second")
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), expired(a, b)) == (5, [2, 3])
    reach(cluster)
    assert (waiting(a), expired(a, b), b.broker.store.queues["kept"].message_count) == (0, [2, 3], 2)


@pytest.mark.parametrize("action", ["reroute", "dead-letter"])
def test_when_the_node_is_given_up_they_have_expired(action: str) -> None:
    """Nobody else judges of them any more."""
    cluster, a, b = pair()
    lose_answers(cluster, a, b)
    b.crash()
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), expired(a)) == (3, [0])
    a.admin("cluster-forget", node_id=node_id_of("b"), action=action)
    cluster.run()
    assert (waiting(a), expired(a)) == (0, [3])


def test_one_that_is_back_before_all_was_routed_anew_judges_of_the_rest() -> None:
    cluster, a, b = pair()
    lose_answers(cluster, a, b)
    (queue,) = a.broker.store.remotes.queues_of(node_id_of("b"))
    a.admin("queue-pause", name=queue.kind.name)  # so that they are still there
    a.admin("cluster-forget", node_id=node_id_of("b"))
    cluster.run()
    assert waiting(a) == 3
    cluster.let_through("a", "b")
    cluster.wait(TTL_MS + 1_000)
    assert (a.state("b"), waiting(a), expired(a, b)) == ("up", 3, [0, 3])
    a.admin("queue-resume", name=queue.kind.name)
    cluster.run()
    assert (waiting(a), expired(a, b)) == (0, [0, 3])


def test_what_the_next_node_refuses_is_not_there_and_expires_here() -> None:
    """It has forgotten the way to a subscription beyond it."""
    cluster = ClusterStage()
    chain = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    for name, static in chain.items():
        cluster.node(name, static, max_hops=3, allow_direct_connections_only=True, options=TO_EXPIRY)
    cluster.run()
    a, b, c = cluster.nodes.values()
    for node in (a, b, c):
        node.admin("queue-create", name="expired")
    c.broker.store.make_address("news", BROKER)
    settings = c.broker.store.settings.of("news")
    c.broker.store.create_queue(kind_of("sub-c", "news", settings, routing=MULTICAST, is_durable=True), BROKER)
    c.step()
    cluster.run()
    cluster.wait(2_000)
    publish(a, 1, "first")
    cluster.run()
    (known,) = [each.binding for each in b.broker.store.remotes.by_name.values() if each.binding.queue == "sub-c"]
    b.broker.store.remotes.by_name[known.cluster_name].via.remove(known)  # without a word
    publish(a, 3, "second")
    cluster.run()
    assert waiting(a) == 3
    cluster.wait(TTL_MS + 1_000)
    assert (waiting(a), expired(a, b, c)) == (0, [3, 0, 1])


def test_what_the_expiry_address_does_not_take_stays_until_it_does() -> None:
    cluster, a, b = pair()
    for node in (a, b):
        node.admin("queue-delete", name="expired")
    cluster.run()
    part(cluster)
    publish(a, 3, "first")
    for _ in range(2):
        cluster.wait(HOLD_MS)
        assert waiting(a) == 3
    assert sum(each["count"] for each in a.events("messages-held")) >= 3
    a.admin("queue-create", name="expired")
    cluster.wait(HOLD_MS)
    assert (waiting(a), expired(a), a.broker.store.dead_letters.left_totals["expired"]) == (0, [3], 3)
