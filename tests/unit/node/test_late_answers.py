"""A node answers for a queue that has gone to another one by then."""

from __future__ import annotations

from tests.support.cluster_stage import ClusterStage
from tests.unit.core.cluster.test_drains import count_at, filled
from tests.unit.node.cluster.departure.test_next_heir import Heirs
from tests.unit.node.test_scale_down import begin, moved


def until_asked(cluster: ClusterStage, of: Heirs) -> None:
    """Until a link is asked for, of which the answer is still to come."""
    queue = of.a.broker.store.queues["orders"]
    for _ in range(40):
        if queue.arriving_count:
            return
        cluster.wait(100)
    raise AssertionError("no link was asked for")


def test_who_answers_when_the_next_one_has_the_queue_gets_nothing_of_it() -> None:
    of = Heirs(bound_ms=-1)
    filled(of.a, 10, of.cluster)
    begin(of.a, of.cluster)
    of.cluster.hold_up("a", "b")
    until_asked(of.cluster, of)
    of.cluster.hold_up("a", "c")
    of.a.admin("scale-down", node="c")
    until_asked(of.cluster, of)
    of.cluster.let_through("a", "b")
    of.cluster.run()
    queue = of.a.broker.store.queues["orders"]
    assert (list(queue.consumers), queue.arriving_count) == ([], 1), "that of c is still to come"
    of.cluster.let_through("a", "c")
    said = moved(of.a, of.cluster)
    assert (said["node"], said["receipt"]["balances"]) == ("c", True)
    assert (count_at(of.a), count_at(of.b), count_at(of.c)) == (0, 0, 10)


def test_the_end_of_a_link_that_was_let_go_takes_no_later_one_out_of_the_list() -> None:
    of = Heirs(bound_ms=-1)
    filled(of.a, 10, of.cluster)
    begin(of.a, of.cluster)
    of.cluster.hold_up("a", "b")
    until_asked(of.cluster, of)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(1_000)
    of.a.admin("scale-down", node="b")
    until_asked(of.cluster, of)
    of.cluster.let_through("a", "b")
    of.cluster.run()
    queue = of.a.broker.store.queues["orders"]
    (bridge,) = [
        each
        for each in of.a.broker.cluster.connections["cluster"].bridges.values()
        if each.node_id == queue.kind.forwards_to
    ]
    assert bridge.peer is not None
    assert [bridge.peer.forwards.consumers.get(queue)] == list(queue.consumers)
