"""A node that hands over at its stop: its heir leaves too, or refuses some of what it is to have."""

from __future__ import annotations

import pytest
from mqbroker.base.errors import Bug
from mqbroker.node.cluster.departure.scale_down_at_stop import STUCK

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.unit.core.cluster.test_drains import bodies, count_at, filled, read_at
from tests.unit.node.test_moving_subscriptions import RED, left_behind
from tests.unit.node.test_scale_down_at_stop import COUNT, cluster_of, start, stop, why_of


def read_all(cluster: ClusterStage, *nodes: ClusterNode) -> list[bytes]:
    return sorted(body for node in nodes for body in read_at(node, cluster).bodies)


def test_nodes_that_stop_together_leave_everything_to_the_one_that_stays() -> None:
    cluster, (a, b, c) = cluster_of("abc", a={}, b={})
    for node in (a, b):
        filled(node, COUNT, cluster)
    for pair in ("ab", "ac", "bc"):
        cluster.hold_up(*pair)
    for node in (a, b):
        stop(node, cluster)
    assert a.broker.store.remotes.scale_down.target == b.broker.node_id
    assert b.broker.store.remotes.scale_down.target == a.broker.node_id
    for pair in ("ab", "ac", "bc"):
        cluster.let_through(*pair)
    cluster.wait(8_000)
    assert ([node.halted for node in (a, b)], count_at(c)) == ([0, 0], 2 * COUNT)
    assert len(a.events("scale-down-moved")) == len(b.events("scale-down-moved")) == 1
    for node in (a, b):
        start(node, cluster)
        assert (node.admin("scale-down-show")["state"], count_at(node)) == ("none", 0)
    assert read_all(cluster, c) == sorted(bodies(COUNT) * 2)


@pytest.mark.parametrize("answers", [True, False])
def test_an_heir_that_leaves_in_the_middle_is_left_once_it_has_answered(answers: bool) -> None:
    cluster, (a, b, c) = cluster_of("abc", a={"timeout": 20_000})
    filled(a, COUNT, cluster)
    cluster.on_sent = lambda _: cluster.hold_up("a", "b") if COUNT // 3 < count_at(b) < COUNT else None
    stop(a, cluster, 1_500)
    cluster.on_sent = lambda _: None
    assert 0 < count_at(b) < COUNT
    b.admin("scale-down", node="c", force=True)  # a hears of it over c
    cluster.wait(500)
    assert (len(a.events("scale-down-turns")), a.broker.store.remotes.scale_down.is_ending) == (1, True)
    if answers:
        cluster.let_through("a", "b")
    cluster.wait(8_000)
    assert a.halted == 0
    assert len(a.events("scale-down-moved")) == (1 if answers else 0)
    if not answers:
        assert "did not answer" in why_of(a, "scale-down-unfinished")
        cluster.let_through("a", "b")
    start(a, cluster)
    cluster.wait(5_000)
    assert read_all(cluster, a, c) == bodies(COUNT)
    assert (count_at(a), answers or count_at(b)) == (0, answers or 0)


def with_another() -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """A node with two queues, of which the other one is at the heir on other terms."""
    cluster, (a, b) = cluster_of()
    filled(a, COUNT, cluster)
    a.admin("queue-create", name="other", address="other")
    b.admin("queue-create", name="other", address="other", ring_size=3)
    return cluster, a, b


def test_what_the_heir_refuses_holds_up_the_stop_for_two_seconds_and_is_told() -> None:
    cluster, a, b = with_another()
    a.admin("send", address="other", messages=[{"body": "x", "durable": True}])
    stop(a, cluster, 3_000)
    assert (a.halted, count_at(b)) == (None, COUNT)
    cluster.wait(2_000)
    assert a.halted == 0
    (said,) = a.events("scale-down-unfinished")
    assert (said["why"], said["left"]) == (STUCK, 1)
    assert "ring-size" in str(said["stays"])
    start(a, cluster)
    assert a.broker.store.queues["other"].message_count == 1


def test_an_empty_subscription_that_the_heir_refuses_hinders_nothing() -> None:
    cluster, a, b = with_another()
    left_behind(a)
    left_behind(b, filter=RED)
    stop(a, cluster, 2_500)
    assert (a.halted, count_at(b), len(a.events("scale-down-moved"))) == (0, COUNT, 1)


def test_a_stop_while_one_that_was_called_off_is_not_over_moves_nothing() -> None:
    cluster, (a, b) = cluster_of()
    filled(a, COUNT, cluster)
    cluster.on_sent = lambda _: cluster.hold_up("a", "b") if COUNT // 3 < count_at(b) < COUNT else None
    a.admin("scale-down", node="b")
    cluster.wait(1_500)
    cluster.on_sent = lambda _: None
    a.admin("scale-down-cancel")
    assert a.admin("scale-down-show")["state"] == "ends"
    stop(a, cluster, 100)
    assert a.halted == 0
    assert "is not over" in why_of(a, "scale-down-passed-over")
    cluster.let_through("a", "b")
    start(a, cluster)
    cluster.wait(5_000)
    assert a.admin("scale-down-show")["state"] == "none"
    assert read_all(cluster, a, b) == bodies(COUNT)


def test_a_scale_down_that_is_on_cannot_begin() -> None:
    _, (a, _, c) = cluster_of("abc")
    a.admin("scale-down", node="b")
    with pytest.raises(Bug, match="before that is over"):
        a.broker.store.remotes.scale_down.begin("cluster", c.broker.node_id, is_forced=False)


def test_force_on_one_that_is_being_called_off_is_answered_when_it_is_on_disk() -> None:
    cluster, (a, b) = cluster_of()
    filled(a, COUNT, cluster)
    cluster.on_sent = lambda _: cluster.hold_up("a", "b") if COUNT // 3 < count_at(b) < COUNT else None
    a.admin("scale-down", node="b")
    cluster.wait(1_500)
    cluster.on_sent = lambda _: None
    a.admin("scale-down-cancel")
    b.crash()
    for pipe in cluster.between("a", "b"):
        cluster.cut(pipe)
    cluster.wait(100)
    assert a.admin("scale-down-show")["state"] == "ends"
    a.is_disk_held = True
    request = a.ask("scale-down-cancel", force=True)
    cluster.run()
    assert request not in a.replies
    a.is_disk_held = False
    cluster.run()
    assert request in a.replies
    a.crash()
    start(a, cluster)
    assert (a.admin("scale-down-show")["state"], a.admin("drain-show")["drains"]) == ("none", [])
