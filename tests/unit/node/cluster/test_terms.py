"""A node says the term of its journal wherever nodes compare, and nothing where it has none."""

from __future__ import annotations

from mqbroker.cluster.notices import Version

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of

SMALL = {"journal": {"journal_file_size_bytes": 16384}}


def given(node: ClusterNode, term: int) -> None:
    """Its journal has files of this term, and it is down."""
    node.disk.term = term
    before = node.broker.journal.segments_count
    while node.broker.journal.segments_count == before:
        node.admin("send", address="orders", messages=[{"body": "x" * 3000, "durable": True}])
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
    assert len(a.events("cluster-links-stopped")) == 1
    (member,) = [each for each in b.admin("topology")["members"] if each["node_id"] == node_id_of("a")]
    assert member["boot_id"] == c.broker.boot_id
