"""Nodes that all have links with each other and tell each other of ways (max-hops 2): nobody goes in circles."""

from __future__ import annotations

import pytest
from mqbroker.cluster.remote_table import CIRCLES_MAX

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Producer

BACK_MS = 40_000
EMPTY_FRAME_BYTES = 8


def mesh(names: str, queues: int) -> tuple[ClusterStage, dict[str, ClusterNode]]:
    """The last one has durable subscriptions."""
    cluster = ClusterStage()
    nodes = {name: cluster.node(name, [each for each in names if each != name], max_hops=2) for name in names}
    cluster.wait(2_000)
    for number in range(queues):
        owner = nodes[names[-1]]
        owner.admin("queue-create", name=f"s{number}", address="news", routing_type="multicast", durable=True)
    cluster.wait(1_500)
    return cluster, nodes


def publish(node: ClusterNode, name: str) -> None:
    producer = Producer(node, name, "news")
    producer.publish(b"x")
    assert len(producer.outcomes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "crash"])
@pytest.mark.parametrize("names", ["abc", "abcd"])
@pytest.mark.parametrize("queues", [1, 3])
def test_neighbours_of_one_that_is_away_fall_silent(how: str, names: str, queues: int) -> None:
    """Each would take the way over another one, which withdraws that by doing so."""
    cluster, nodes = mesh(names, queues)
    *others, away = nodes.values()
    away.stop() if how == "stop" else away.crash()
    cluster.run()
    for node in others:
        publish(node, "first")
    cluster.wait(1_000)
    for node in others:
        publish(node, "second")
    away.start()
    cluster.wait(BACK_MS)
    for node in others:
        publish(node, "third")
    cluster.run()
    found = {away.broker.store.queues[f"s{number}"].message_count for number in range(queues)}
    assert found == {3 * len(others)}
    for node in others:
        around = node.broker.cluster.connections["cluster"]._around
        assert not around.withdrawn, "the link stands again, so what was counted is forgotten"


@pytest.mark.parametrize("name", ["a", "b"])
def test_who_has_lost_one_link_alone_takes_the_other_way(name: str) -> None:
    cluster, nodes = mesh("abc", 1)
    cluster.hold_up(name, "c")
    for pipe in cluster.between(name, "c"):
        cluster.cut(pipe)
    for number in range(4):
        cluster.wait(1_000)
        publish(nodes[name], f"p{number}")
    cluster.run()
    assert nodes["c"].broker.store.queues["s0"].message_count == 4


def lose(cluster: ClusterStage, one: str, other: str) -> None:
    cluster.hold_up(one, other)
    for pipe in cluster.between(one, other):
        cluster.cut(pipe)


@pytest.mark.slow
@pytest.mark.parametrize("rest_ms", [0, BACK_MS])
def test_neighbours_whose_own_link_comes_and_goes_are_no_circle(rest_ms: int) -> None:
    """One has lost its own for long. Those of the others fail again and again, and then they stand."""
    cluster, nodes = mesh("abcd", 1)
    lose(cluster, "a", "d")
    cluster.wait(1_000)
    for _ in range(CIRCLES_MAX + 1):
        for name in "bc":
            lose(cluster, name, "d")
            cluster.wait(1_000)
            cluster.let_through(name, "d")
            cluster.wait(3_000 + rest_ms)
    cluster.wait(2 * BACK_MS)
    publish(nodes["a"], "p")
    cluster.run()
    assert nodes["d"].broker.store.queues["s0"].message_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("names", ["abc", "abcd", "abcde"])
def test_neighbours_of_one_that_is_away_for_long_tell_nothing_of_ways(names: str) -> None:
    cluster, nodes = mesh(names, 2)
    *others, away = nodes.values()
    away.crash()
    cluster.wait(BACK_MS)
    told: list[int] = []
    cluster.on_sent = told.append
    cluster.wait(10 * BACK_MS)
    assert set(told) == {EMPTY_FRAME_BYTES}, "that they are alive, and nothing of ways"
    away.start()
    cluster.wait(2 * BACK_MS)
    for node in others:
        publish(node, "p")
    cluster.run()
    assert {away.broker.store.queues[f"s{number}"].message_count for number in range(2)} == {len(others)}
