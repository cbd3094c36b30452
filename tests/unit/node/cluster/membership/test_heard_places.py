"""Nodes that live, and that nobody would tell of again: after they were forgotten, or their end came late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cluster_stage import PORT, ClusterNode, ClusterStage, options_for

SLOW_MS = 31_000
GROUP = {"name": "lan", "group-address": "231.7.7.7", "group-port": 9876}


def discovered(cluster: ClusterStage, name: str, **changes: Any) -> ClusterNode:
    """A node that hears others, and is heard."""
    groups = {
        "broadcast-groups": [{**GROUP, "connector-ref": "own", "broadcast-period": 500}],
        "discovery-groups": [{**GROUP, "refresh-timeout": 2_000}],
    }
    return cluster.node(name, groups=groups, discovery_group_ref="lan", **changes)


def forgotten(cluster: ClusterStage, node: ClusterNode, other: ClusterNode) -> None:
    """A person gives one node up at another one."""
    request = node.ask("cluster-forget", node_id=other.identity["node_id"])
    cluster.run()
    assert node.replies[request].error is None


def linked(cluster: ClusterStage) -> tuple[ClusterNode, ClusterNode]:
    a, b = discovered(cluster, "a"), discovered(cluster, "b")
    cluster.wait(1_000)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    return a, b


def test_nodes_that_forgot_each_other_and_hear_each_other_are_linked_again() -> None:
    """Connections are cut and datagrams are not, so discovery never loses anybody."""
    cluster = ClusterStage()
    a, b = linked(cluster)
    cluster.unreachable = {"a", "b"}
    cluster.cut_all(a)
    cluster.run()
    forgotten(cluster, a, b)
    forgotten(cluster, b, a)
    cluster.unreachable = set()
    cluster.wait(SLOW_MS)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    assert len(a.events("discovery-node-found")) == 1


def test_a_node_that_was_forgotten_where_its_own_link_stands_is_linked_again() -> None:
    """It was told of when it dialled, and does not dial again."""
    cluster = ClusterStage()
    b = cluster.node("b")
    a = cluster.node("a", ["b"])
    cluster.wait(1_000)
    cluster.unreachable = {"a"}
    (back,) = [pipe for pipe in cluster.between("a", "b") if pipe.ends[0][0] is b]
    cluster.cut(back)
    cluster.run()
    forgotten(cluster, b, a)
    cluster.unreachable = set()
    cluster.wait(SLOW_MS)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    assert len(a.events("bridge-connected")) == 1


def test_the_end_of_a_process_that_comes_after_the_news_of_the_next_one_is_not_the_last_word() -> None:
    cluster = ClusterStage()
    a, b = linked(cluster)
    cluster.hold_up("a", "b")
    b.stop()
    cluster.run()
    cluster.unreachable = {"a"}  # it does not tell of itself by dialling
    b.start()
    cluster.wait(1_000)
    assert len(a.events("discovery-node-restarted")) == 1
    cluster.let_through("a", "b")
    cluster.run()
    assert a.state("b") == "gone"
    cluster.wait(SLOW_MS)
    assert a.state("b") == "up"
    b.stop()
    before = len(a.dials)
    cluster.wait(10 * SLOW_MS)
    assert (a.state("b"), len(a.dials)) == ("gone", before), "nobody has listed it"


@pytest.mark.parametrize("end", [ClusterNode.stop, ClusterNode.crash])
def test_a_node_that_is_gone_and_forgotten_leaves_no_link(end: Callable[[ClusterNode], None]) -> None:
    cluster = ClusterStage()
    a, b = linked(cluster)
    end(b)
    cluster.run()
    forgotten(cluster, a, b)
    before = len(a.dials)
    cluster.wait(10 * SLOW_MS)
    assert (a.state("b"), len(a.dials)) == ("", before)
    assert a.admin("topology")["links"] == []


def test_a_place_that_does_not_answer_is_tried_every_half_minute_and_no_member_is_missed() -> None:
    cluster = ClusterStage()
    a, b = linked(cluster)
    cluster.unreachable = {"a", "b"}
    cluster.cut_all(a)
    cluster.run()
    forgotten(cluster, a, b)
    forgotten(cluster, b, a)
    before = len(a.dials)
    cluster.wait(10 * SLOW_MS)
    assert len(a.dials) - before in (10, 11)
    assert a.admin("topology")["links"] == []
    (told,) = a.events("bridge-failed")
    assert (told["connector"], told["retry_ms"]) == ("amqp://b:5673", 30_000), "once, however often it is tried"


@pytest.mark.parametrize(("attempts", "state"), [(3, "gone"), (-1, "up")])
def test_attempts_that_are_bounded_are_not_made_again_for_a_node_that_is_heard(attempts: int, state: str) -> None:
    cluster = ClusterStage()
    a, b = discovered(cluster, "a", reconnect_attempts=attempts), discovered(cluster, "b", reconnect_attempts=attempts)
    cluster.wait(1_000)
    cluster.unreachable = {"a", "b"}
    cluster.cut_all(a)
    cluster.wait(10_000)
    cluster.unreachable = set()
    cluster.wait(2 * SLOW_MS)
    assert (a.state("b"), b.state("a")) == (state, state)


def test_a_place_that_leads_to_another_node_whose_link_stands_is_not_tried() -> None:
    """Two nodes say one connector of themselves."""
    cluster = ClusterStage()
    a = cluster.node("a")
    b, c = cluster.node("b", ["a"]), cluster.make("c", options_for("b", ["a"], {}), {})
    cluster.wait(1_000)
    assert (b.state("a"), c.state("a"), a.state("c")) == ("up", "up", "gone")
    before = len(a.dials)
    cluster.wait(4 * SLOW_MS)
    assert len(a.dials) == before


def test_a_node_that_is_linked_here_and_is_not_listed_is_not_tried_where_only_listed_ones_are_wanted() -> None:
    cluster = ClusterStage()
    b = cluster.node("b", ["nowhere"], allow_direct_connections_only=True)
    a = cluster.node("a", ["b"])
    cluster.wait(2 * SLOW_MS)
    assert (a.state("b"), b.state("a")) == ("up", "")
    assert {each.host for each in b.dials} == {"nowhere"}


def test_a_node_is_passed_over_where_there_are_as_many_bridges_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqbroker.node.cluster.membership.cluster_connection.BRIDGES_MAX", 1)
    cluster = ClusterStage()
    a, _ = linked(cluster)
    c = discovered(cluster, "c")
    cluster.wait(SLOW_MS)
    assert (a.state("c"), len(a.events("bridges-full"))) == ("", 1)
    monkeypatch.setattr("mqbroker.node.cluster.membership.cluster_connection.BRIDGES_MAX", 2)
    cluster.wait(SLOW_MS)
    assert (a.state("c"), a.bridge("c").connector.place) == ("up", ("amqp", "c", PORT))
    assert c.state("a") == "up"
