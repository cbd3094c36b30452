"""Nodes that are given up: what is left of them once all that waited has gone elsewhere."""

from __future__ import annotations

import pytest
from mqbroker.node.cluster.forwarding import abandoned_messages
from mqbroker.node.cluster.forwarding.abandoned_messages import LOOK_MS

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer
from tests.unit.node.cluster.membership.test_forwards import pair, waiting


def lost(count: int = 5, queues: int = 1) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """A node is gone with messages on their way to it."""
    cluster, a, b = pair()
    for number in range(queues):
        Consumer(b, f"c{number}", f"orders{number}", credit=0)
    cluster.run()
    b.is_disk_held = True
    for number in range(queues):
        producer = Producer(a, f"p{number}", f"orders{number}")
        for each in range(count):
            producer.publish(b"%d" % each)
    cluster.run()
    b.crash()
    b.is_disk_held = False
    cluster.wait(1_000)
    assert waiting(a, "b") == count * queues
    return cluster, a, b


@pytest.mark.parametrize(("is_restarted", "is_said_again"), [(False, False), (True, False), (True, True)])
def test_no_queue_is_left_of_a_node_that_was_forgotten(*, is_restarted: bool, is_said_again: bool) -> None:
    """Also where this one ends in the middle of that, whether or not a person says so once more."""
    cluster, a, _ = lost()
    assert a.admin("cluster-forget", node_id=node_id_of("b"))["messages"] == 5
    cluster.run()
    if is_restarted:
        a.crash()
        a.start()
        assert len(a.broker.store.remotes.queues) == 1
    if is_said_again:
        assert a.admin("cluster-forget", node_id=node_id_of("b"))["messages"] == 0
    cluster.wait(LOOK_MS)
    assert a.broker.store.queues["orders0"].message_count == 5
    assert list(a.broker.store.remotes.queues) == []
    assert a.broker.cluster.connections["cluster"]._abandoned._consumers == {}


def test_what_is_done_with_goes_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandoned_messages, "TIDIED_MAX", 2)
    cluster, a, _ = lost(1, 5)
    a.admin("cluster-forget", node_id=node_id_of("b"))
    cluster.run()
    a.broker.cluster.connections["cluster"]._abandoned.on_time(0)
    assert len(a.broker.store.remotes.queues) == 3
    cluster.wait(1)
    assert list(a.broker.store.remotes.queues) == []


def test_empty_queues_for_nodes_that_nobody_tells_of_go_some_at_a_time_after_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(abandoned_messages, "TIDIED_MAX", 2)
    cluster, a, _ = lost(1, 5)
    a.admin("cluster-forget", node_id=node_id_of("b"))
    cluster.run()
    a.crash()
    a.start()
    cluster.wait(LOOK_MS - 1)
    assert len(a.broker.store.remotes.queues) == 5
    a.broker.cluster.connections["cluster"]._abandoned.on_time(0)
    assert len(a.broker.store.remotes.queues) == 3
    cluster.wait(1)
    assert list(a.broker.store.remotes.queues) == []


def test_after_a_start_an_empty_queue_for_a_node_that_is_there_stays_and_one_that_went_is_made_again() -> None:
    cluster, a, b = pair()
    Consumer(b, "c", "orders0", credit=100)
    cluster.run()
    Producer(a, "p", "orders0").publish(b"1")
    cluster.run()
    a.crash()
    a.start()
    cluster.wait(2 * LOOK_MS)
    assert (a.state("b"), len(a.broker.store.remotes.queues)) == ("up", 1)
    b.crash()
    a.crash()
    a.start()
    cluster.wait(2 * LOOK_MS)
    assert list(a.broker.store.remotes.queues) == []
    b.start()
    cluster.wait(2_000)
    there = Consumer(b, "again", "orders0", credit=100)
    cluster.run()
    for body in (b"2", b"3"):
        Producer(a, f"p{body!r}", "orders0").publish(body)
    cluster.wait(1_000)
    assert there.bodies == [b"1", b"2", b"3"], "the first was not settled"


def test_a_queue_that_holds_something_stays_until_it_is_taken() -> None:
    cluster, a, _ = lost()
    (queue,) = a.broker.store.remotes.queues.values()
    a.admin("queue-pause", name=queue.kind.name)
    a.admin("cluster-forget", node_id=node_id_of("b"))
    cluster.wait(10 * LOOK_MS)
    assert waiting(a, "b") == 5
    a.admin("queue-resume", name=queue.kind.name)
    cluster.wait(LOOK_MS)
    assert (waiting(a, "b"), list(a.broker.store.remotes.queues)) == (0, [])


def test_one_that_is_back_before_the_look_is_served_again() -> None:
    cluster, a, b = lost()
    a.admin("cluster-forget", node_id=node_id_of("b"))
    cluster.run()
    b.start()
    cluster.wait(2_000)
    there = Consumer(b, "there", "orders0", credit=10)
    cluster.run()
    Producer(a, "later", "orders0").publish(b"later")
    cluster.wait(2 * LOOK_MS)
    assert (there.bodies, waiting(a, "b")) == ([b"later"], 0)


def test_who_was_forgotten_is_not_given_up_again_by_itself() -> None:
    cluster, a, b = pair(on_node_lost="reroute", node_lost_grace=5_000)
    Consumer(b, credit=0)
    cluster.run()
    b.crash()
    cluster.wait(1_000)
    a.admin("cluster-forget", node_id=node_id_of("b"))
    cluster.wait(20_000)
    assert a.events("node-abandoned") == []
    b.start()
    cluster.wait(3_000)
    assert a.state("b") == "up"
    b.crash()
    cluster.wait(6_000)
    assert len(a.events("node-abandoned")) == 1


def test_who_is_back_within_its_grace_is_not_given_up_while_it_is_connected() -> None:
    cluster, a, b = pair(on_node_lost="reroute", node_lost_grace=5_000)
    Consumer(b, credit=0)
    cluster.run()
    b.crash()
    cluster.wait(1_000)
    b.start()
    cluster.wait(20_000)
    assert (a.state("b"), a.events("node-abandoned")) == ("up", [])
    b.crash()
    cluster.wait(4_000)
    assert a.events("node-abandoned") == [], "its grace begins anew"
    cluster.wait(2_000)
    assert len(a.events("node-abandoned")) == 1
