"""A node says the term of its journal wherever nodes compare, and nothing where it has none."""

from __future__ import annotations

import pytest
from mqbroker.cluster.node_id_conflict import DEPOSED
from mqbroker.cluster.notices import Version
from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer

SMALL = {"journal": {"journal_file_size_bytes": 16384}}


def given(node: ClusterNode, term: int) -> None:
    """Its journal has files of this term, and it is down."""
    node.disk.term = term
    before = node.broker.journal.segments_count
    while node.broker.journal.segments_count == before:
        node.admin("send", address="ledger", messages=[{"body": "x" * 3000, "durable": True}])
    node.crash()


def test_what_a_node_says_of_its_term() -> None:
    node = ClusterStage().node("a", options=SMALL)
    connection = node.broker.cluster.connections["cluster"]
    assert (node.broker.term, connection.hello.term, connection.topology.own.version.term) == (0, 0, 0)
    given(node, 7)
    node.start()
    connection = node.broker.cluster.connections["cluster"]
    assert (node.broker.term, connection.hello.term, connection.topology.own.version) == (7, 7, Version(2, 0, 7))
    assert node.broker.node_id_conflict.own.term == 7


def test_who_has_the_higher_term_goes_on_though_it_was_started_later() -> None:
    """A backup that takes over is the later process, and may have started less often."""
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"]), cluster.node("b", ["a"])
    for _ in range(3):
        a.crash()
        a.start()
    c = cluster.node("c", ["b", "a"], options=SMALL)
    given(c, 1)
    c.identity["node_id"] = node_id_of("a")
    cluster.run()
    cluster.wait(5_000)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    c.start()
    cluster.run()
    cluster.wait(20_000)
    assert c.broker.epoch < a.broker.epoch
    assert [each.admin("health")["has_yielded"] for each in (a, b, c)] == [True, False, False]
    (stopped,) = a.events("cluster-links-stopped")
    assert stopped["why"] == a.admin("health")["yielded_why"] == DEPOSED
    (member,) = [each for each in b.admin("topology")["members"] if each["node_id"] == node_id_of("a")]
    assert member["boot_id"] == c.broker.boot_id


def successor(cluster: ClusterStage, *static: str) -> ClusterNode:
    """A process with the id of node a that takes over from it in term 1, once it is started."""
    c = cluster.node("c", list(static), options=SMALL)
    given(c, 1)
    c.identity["node_id"] = node_id_of("a")
    cluster.run()
    cluster.wait(5_000)
    return c


def led_to(node: ClusterNode) -> tuple[str, str]:
    """The state of a node's bridge to node a, and the process at its end."""
    bridge = node.broker.cluster.connections["cluster"].bridges[node_id_of("a")]
    return bridge.state.value, bridge.boot_id


@pytest.mark.slow
def test_third_nodes_turn_to_who_took_over_though_the_deposed_one_goes_on() -> None:
    """It meets nobody who would make it yield: b has dialled neither of them by chance, and tells d."""
    cluster = ClusterStage()
    a, b, d = cluster.node("a", ["b", "d"]), cluster.node("b", ["a", "d"]), cluster.node("d", ["a", "b"])
    c = successor(cluster, "b")
    for third in (b, d):
        assert led_to(third) == ("up", a.broker.boot_id)
    c.start()
    cluster.run()
    for _ in range(4):
        for third in (b, d):
            assert led_to(third) == ("up", c.broker.boot_id)
            peers = [each for each in third.broker.peers.values() if isinstance(each, AcceptedPeer)]
            assert {each.hello.boot_id for each in peers if each.hello} >= {c.broker.boot_id}
            assert a.broker.boot_id not in {each.hello.boot_id for each in peers if each.hello}
            (member,) = [each for each in third.admin("topology")["members"] if each["node_id"] == node_id_of("a")]
            assert member["boot_id"] == c.broker.boot_id
        assert "up" not in (a.state("b"), a.state("d"))
        cluster.wait(60_000)  # listed places of b and d lead to a still


def test_what_is_sent_goes_to_who_took_over() -> None:
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"]), cluster.node("b", ["a"])
    c = successor(cluster, "b")
    before, producer = Consumer(a, credit=100), Producer(b)
    cluster.run()
    producer.publish(b"first")
    cluster.run()
    c.start()
    cluster.run()
    after = Consumer(c, credit=100)
    cluster.run()
    for number in range(10):
        producer.publish(b"%d" % number)
    cluster.run()
    assert before.bodies == [b"first"]
    assert after.bodies == [b"%d" % number for number in range(10)]


def test_who_was_restarted_learns_of_the_term_anew() -> None:
    """Terms are not on the disk of others: who was deposed has links until somebody tells of the one that took over."""
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"]), cluster.node("b", ["a"])
    c = successor(cluster, "b")
    c.start()
    cluster.run()
    c.crash()
    b.crash()
    b.start()
    cluster.run()
    cluster.wait(5_000)
    assert led_to(b) == ("up", a.broker.boot_id)
    c.start()
    cluster.run()
    assert led_to(b) == ("up", c.broker.boot_id)
