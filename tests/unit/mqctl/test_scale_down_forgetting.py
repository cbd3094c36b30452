"""Who waits for an answer of a node that leaves: what it may have is routed anew once it is forgotten."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl.errors import CommandError
from mqctl.nodes import Node
from mqctl.scaledown.forgetting import still_unanswered, wait_for_answers
from mqctl.world import World, real_world
from rich.console import Console

from tests.support.admin_stage import AdminStage
from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer

pytestmark = pytest.mark.slow


@pytest.fixture
def world() -> World:
    """In which time goes by when somebody sleeps."""
    slept_s: list[float] = []
    return replace(
        real_world(), err=Console(file=io.StringIO()), monotonic_s=lambda: sum(slept_s),
        sleep_s=lambda each: slept_s.append(each * 20),
    )  # fmt: skip


def linked(**options: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode, Producer]:
    """`a`, which leaves, has a consumer that gets nothing, and somebody sends to it at `c`, which has sent already."""
    cluster = ClusterStage()
    a, c = cluster.node("a", ["c"]), cluster.node("c", ["a"], **options)
    cluster.run()
    cluster.wait(600)
    Consumer(a, credit=0)
    cluster.run()
    producer = Producer(c)
    producer.publish(b"before")
    cluster.run()
    return cluster, a, c, producer


def lose_the_link(cluster: ClusterStage, c: ClusterNode) -> None:
    cluster.unreachable.add("a")
    cluster.cut_all(c)
    cluster.run()


def waiting(c: ClusterNode) -> list[tuple[int, int]]:
    """At its links to the node that leaves."""
    rows = [row for row in c.admin("topology")["links"] if row["node_id"] == node_id_of("a")]
    return [(row["unanswered"], row["depth"]) for row in rows]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_went_out_over_a_link_that_is_lost_is_waited_for(
    tmp_path: Path, world: World, *, is_restarted: bool
) -> None:
    cluster, a, c, producer = linked()
    cluster.silence(a, is_deaf=False)
    producer.publish(b"once")
    cluster.run()
    assert a.broker.store.queues["orders"].message_count == 2
    lose_the_link(cluster, c)
    if is_restarted:
        c.crash()
        c.start()
        cluster.run()
    assert waiting(c) == [(1, 1)]
    node = Node("c", "default", socket=str(tmp_path / "c" / "admin.sock"))
    with AdminStage(tmp_path, "c", c):
        with pytest.raises(CommandError, match="c waits for the answer to 1 message that it sent to"):
            wait_for_answers(world, [node], [node_id_of("a")])
        (said,) = still_unanswered(world, [node], [node_id_of("a")])
        assert said.startswith("c waits for the answer to 1 message")
        cluster.unreachable.clear()
        cluster.wait(2_500)
        assert still_unanswered(world, [node], [node_id_of("a")]) == []


def test_what_never_went_out_is_not_waited_for() -> None:
    """It is routed anew, and nobody else has it."""
    cluster, a, c, producer = linked(confirmation_window_size=1)
    cluster.silence(a, is_deaf=False)
    for body in (b"once", b"later", b"later still"):
        producer.publish(body)
    cluster.run()
    assert waiting(c) == [(1, 3)]
    lose_the_link(cluster, c)
    assert waiting(c) == [(1, 3)]


def test_who_does_not_say_may_have_something(tmp_path: Path, world: World) -> None:
    node = Node("c", "default", socket=str(tmp_path / "nobody"))
    with pytest.raises(CommandError, match="no broker answers"):
        wait_for_answers(world, [node], [node_id_of("a")])
    assert len(still_unanswered(world, [node], [node_id_of("a")])) == 1
