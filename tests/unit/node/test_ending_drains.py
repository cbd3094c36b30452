"""A drain that ends is served again, whatever the node that has some of it has become meanwhile."""

from __future__ import annotations

import pytest
from mqbroker.node.cluster.forwarding import forwarding_terms
from mqbroker.wire.types import Symbol

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.unit.core.cluster.test_drains import LIMITS, bodies, count_at, filled, read_at

COUNT = 300


def state_of(a: ClusterNode) -> str:
    drains = a.admin("drain-show")["drains"]
    return str(drains[0]["state"]) if drains else "serves"


def ending_without_an_answer(arrived: int) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """A drain that was called off when so many messages had arrived and others were on the way, as the other node died:
    nobody has answered for them."""
    cluster = ClusterStage()
    said = {"options": LIMITS, "message_load_balancing": "OFF", "confirmation_window_size": 2_000}
    a, b, _ = (cluster.node(name, [each for each in "abc" if each != name], **said) for name in "abc")
    cluster.run()
    cluster.wait(600)
    filled(a, COUNT, cluster)

    def look(_: int) -> None:
        handed_over = a.broker.store.queues["orders"].handed_over
        if handed_over is not None and handed_over.ids.count and count_at(b) >= arrived:
            cluster.hold_up("a", "b")

    cluster.on_sent = look
    a.admin("drain-queue", queue="orders", node="b")
    cluster.wait(100)
    cluster.on_sent = lambda _: None
    a.admin("drain-cancel", queue="orders")
    for pipe in cluster.between("a", "b"):
        pipe.held.clear()
    b.crash()
    cluster.wait(600)
    b.start()
    cluster.wait(100)
    assert (count_at(b) > 0, count_at(b) < COUNT, state_of(a)) == (arrived > 0, True, "ends")
    return cluster, a, b


def all_are_there_once(cluster: ClusterStage, *nodes: ClusterNode) -> None:
    found = [read_at(node, cluster).bodies for node in nodes if "orders" in node.broker.store.queues]
    assert sorted(body for each in found for body in each) == bodies(COUNT)


@pytest.mark.parametrize(("arrived", "is_older"), [(0, False), (100, False), (100, True)])
@pytest.mark.parametrize("leaves", [False, True])
def test_who_takes_nothing_new_answers_for_what_it_may_have(
    arrived: int, is_older: bool, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_older`: the source is of a release that does not say that it ends."""
    if is_older:
        monkeypatch.setattr(forwarding_terms, "DRAIN_ENDS", Symbol("mq:not-known"))
    cluster, a, b = ending_without_an_answer(arrived)
    if leaves:
        b.admin("scale-down", node="c")
        cluster.wait(3_000)
    else:
        b.admin("cordon")
    cluster.let_through("a", "b")
    cluster.wait(10_000)
    assert state_of(a) == "serves"
    if leaves:
        assert b.admin("scale-down-show")["receipt"]["balances"]
    else:
        b.admin("uncordon")
    all_are_there_once(cluster, a, cluster.nodes["c"] if leaves else b)
