"""Formats of journal files that all nodes of a cluster read, as each node says it to administrators."""

from __future__ import annotations

from dataclasses import replace

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer
from tests.unit.core.cluster.test_drains import LIMITS, count_at, drain, filled
from tests.unit.node.cluster.departure.test_next_heir import Heirs

FIRST, BOTH = [1], [1, 2]


def formats(node: ClusterNode) -> list[int]:
    found: list[int] = node.admin("topology")["journal_formats"]
    return found


def says_none(node: ClusterNode) -> None:
    """As a release does that was before they were told."""
    topology = node.broker.cluster.connections["cluster"].topology
    topology.own = replace(topology.own, journal_formats=())


def test_a_node_that_is_alone_speaks_for_itself() -> None:
    cluster = ClusterStage()
    a = cluster.node("a")
    cluster.run()
    assert formats(a) == BOTH


def test_a_later_format_is_read_by_all_once_every_node_that_is_listed_says_so() -> None:
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b", "c"]), cluster.node("b", ["a", "c"])
    cluster.run()
    assert (formats(a), formats(b)) == (FIRST, FIRST)
    c = cluster.node("c", ["a", "b"])
    cluster.run()
    cluster.wait(10_000)
    assert [formats(node) for node in (a, b, c)] == [BOTH] * 3


def test_it_comes_over_nodes_between() -> None:
    cluster = ClusterStage()
    ends, middle = (cluster.node("a", ["b"]), cluster.node("c", ["b"])), cluster.node("b", ["a", "c"])
    says_none(ends[1])
    cluster.run()
    cluster.wait(10_000)
    assert [formats(node) for node in (*ends, middle)] == [FIRST] * 3
    said = {row["node"]: row["journal_formats"] for row in ends[0].admin("topology")["members"]}
    assert said == {"a": BOTH, "b": BOTH, "c": FIRST}


def test_a_node_that_comes_back_with_a_release_that_says_none_reads_the_first() -> None:
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"]), cluster.node("b", ["a"])
    cluster.run()
    assert formats(a) == BOTH
    b.crash()
    b.start()
    says_none(b)
    cluster.run()
    cluster.wait(10_000)
    assert a.state("b") == "up"
    assert formats(a) == FIRST


def test_a_node_that_only_messages_wait_for_is_not_known_to_read_more() -> None:
    cluster = ClusterStage()
    a, b = cluster.node("a"), cluster.node("b", ["a"])
    Consumer(b, credit=0)
    cluster.run()
    cluster.silence(b)
    Producer(a).publish(b"waits for it")
    cluster.run()
    for node in (b, a):
        node.crash()
    a.start()
    cluster.run()
    found = a.admin("topology")
    assert [row["node"] for row in found["members"]] == ["a"]
    assert [(row["node_id"], row["depth"]) for row in found["links"]] == [(node_id_of("b"), 1)]
    assert formats(a) == FIRST


def restarted_alone(cluster: ClusterStage, a: ClusterNode, *others: ClusterNode) -> None:
    """Nobody but its journal tells it of others."""
    for node in (*others, a):
        node.crash()
    a.start()
    cluster.run()


def waited_for(a: ClusterNode) -> set[str]:
    found = a.admin("topology")
    assert [row["node"] for row in found["members"]] == ["a"]
    return {row["node_id"] for row in found["links"]}


def test_a_node_that_only_a_queue_that_drains_waits_for_is_not_known_to_read_more() -> None:
    cluster = ClusterStage()
    a, b = (cluster.node(name, listed, options=LIMITS, message_load_balancing="OFF") for name, listed in
            (("a", ""), ("b", "a")))  # fmt: skip
    cluster.run()
    cluster.wait(600)
    filled(a, 3, cluster)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    restarted_alone(cluster, a, b)
    assert count_at(a) == 3
    assert waited_for(a) == {node_id_of("b")}
    assert formats(a) == FIRST


def test_a_node_that_has_to_answer_for_what_drains_elsewhere_by_now_is_not_known_to_read_more() -> None:
    of = Heirs(bare="a")
    of.begin_half(has_it=True)
    of.lose(of.b)
    of.cluster.hold_up("a", "c")
    of.a.admin("scale-down", node="c")
    of.cluster.wait(2_000)
    restarted_alone(of.cluster, of.a, of.c)
    (held,) = of.a.broker.store.remotes.scale_down.held
    assert held.kind.forwards_to == node_id_of("b")
    assert waited_for(of.a) == {node_id_of("b"), node_id_of("c")}
    assert formats(of.a) == FIRST


def test_a_neighbour_that_stopped_reads_the_first_until_it_is_forgotten_and_one_further_on_is_not_counted() -> None:
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"], allow_direct_connections_only=True), cluster.node("b", ["a"])
    c = cluster.node("c", ["b"], allow_direct_connections_only=True)
    cluster.run()
    cluster.wait(10_000)
    assert [formats(node) for node in (a, b, c)] == [BOTH] * 3
    c.stop()
    cluster.run()
    cluster.wait(60_000)
    assert [row["node"] for row in a.admin("topology")["members"]] == ["a", "b"]
    assert (formats(a), formats(b)) == (BOTH, FIRST)
    b.admin("cluster-forget", node_id=node_id_of("c"))
    cluster.run()
    assert (formats(a), formats(b)) == (BOTH, BOTH)
