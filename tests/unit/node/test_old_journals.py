"""A journal that is wiped, cut, or an old copy that was put back: nothing that is accepted from then on is dropped.

Other nodes know messages by numbers that come from the journal, and what this node says of itself by a version that
does so too: both are given out once more then.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.support.old_journals import Files, damaged


class Pair:
    """Two nodes, or three, and a consumer at b that gets everything."""

    def __init__(self, *others: str) -> None:
        self.cluster = cluster = ClusterStage()
        names = ("a", "b", *others)
        settings = {"address_settings": {"#": {"redistribution_delay": 0, "auto_delete_queues": False}}}
        self.nodes = [cluster.node(name, [each for each in names if each != name], options=settings) for name in names]
        self.a, self.b = self.nodes[:2]
        cluster.run()
        cluster.wait(600)
        self.consumer = Consumer(self.b, credit=1000)
        cluster.run()
        self.sent: list[bytes] = []

    def send(self, count: int = 10, node: ClusterNode | None = None) -> None:
        """Durable messages at a, each accepted."""
        producer = Producer(node or self.a)
        for _ in range(count):
            self.sent.append(b"%d" % len(self.sent))
            producer.publish(self.sent[-1])
        self.cluster.run()
        assert len(producer.outcomes) == count

    def restart(self, put_back: Files | None = None, wait_ms: int = 3_000) -> None:
        """a is killed, and begins again with what its disk holds, or with these files."""
        self.a.crash()
        if put_back is not None:
            self.a.disk.stable = deepcopy(put_back)
        self.a.start()
        if wait_ms:
            self.cluster.run()
            self.cluster.wait(wait_ms)

    def check(self) -> None:
        """All that was accepted came to b, and nobody takes a for two."""
        self.cluster.wait(10_000)
        assert sorted(map(int, self.consumer.bodies)) == list(range(len(self.sent)))
        assert [node.events("cluster-split-brain") for node in self.nodes] == [[] for _ in self.nodes]
        for node in self.nodes:
            members = node.broker.cluster.connections["cluster"].topology.members
            assert {each.boot_id for each in members} == {each.broker.boot_id for each in self.nodes}


def wiped(_: Pair, __: Files) -> Files:
    return {}


def put_back(_: Pair, cold: Files) -> Files:
    return cold


def cut_short(pair: Pair, cold: Files) -> Files:
    journal = replace(pair.a.options.journal, journal_on_damage="truncate")
    pair.a.options = replace(pair.a.options, journal=journal)
    return damaged(pair.a.disk.stable, cold)


Old = Callable[[Pair, Files], Files]
EACH = pytest.mark.parametrize("old", [wiped, put_back, cut_short])


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("starts", [1, 3])
def test_what_is_accepted_after_it_arrives(old: Old, starts: int) -> None:
    """As many starts as there were before bring the same numbers, without a link between them."""
    pair = Pair()
    pair.send(3)
    cold = deepcopy(pair.a.disk.stable)
    for _ in range(starts - (old is wiped)):
        pair.restart()
    pair.send(10)
    pair.restart(old(pair, cold), 0)
    for _ in range(starts - 1):
        pair.restart(None, 0)
    pair.cluster.wait(3_000)
    pair.send(10)
    pair.check()


@pytest.mark.slow
@EACH
def test_what_is_accepted_before_the_link_is_up_arrives(old: Old) -> None:
    pair = Pair()
    pair.send(3)
    cold = deepcopy(pair.a.disk.stable)
    pair.restart()
    pair.restart()
    pair.send(10)
    pair.a.crash()
    pair.cluster.unreachable = {"a", "b"}
    pair.restart(old(pair, cold), 100)
    pair.send(5)
    pair.restart(None, 100)
    pair.send(5)
    pair.cluster.unreachable = set()
    pair.cluster.wait(10_000)
    pair.check()


def test_the_copy_is_put_back_again_and_again() -> None:
    pair = Pair()
    pair.send(3)
    cold = deepcopy(pair.a.disk.stable)
    for _ in range(3):
        pair.restart(cold)
        pair.send(4)
    pair.check()


def test_what_was_waiting_in_the_copy_comes_once_where_it_is_still_known() -> None:
    pair = Pair()
    pair.send(3)
    pair.b.is_disk_held = True
    pair.send(5)  # b has them and has not answered
    cold = deepcopy(pair.a.disk.stable)
    pair.b.is_disk_held = False
    pair.cluster.run()
    pair.restart()
    pair.send(5)
    pair.restart(cold)
    pair.send(5)
    pair.check()
    assert pair.b.broker.store.arrivals.dropped_total == 5


def test_what_waits_over_many_starts_is_known_when_it_is_sent_again() -> None:
    """Messages of four starts are with b, which has not answered any of them: all are sent again after each start."""
    pair = Pair()
    pair.send(2)
    pair.b.is_disk_held = True
    for _ in range(4):
        pair.send(5)
        pair.restart()
    known = pair.b.broker.store.arrivals
    assert (known.arrived_total, known.dropped_total) == (22, 5 + 10 + 15 + 20)
    pair.b.is_disk_held = False
    pair.check()
    assert not any(queue.message_count for queue in pair.a.broker.store.queues.values())


@pytest.mark.slow
def test_a_node_is_a_member_again_however_old_what_it_says_is() -> None:
    pair = Pair("c")
    for _ in range(6):
        pair.restart()
    pair.restart({})
    pair.check()
    pair.restart()  # the third node hears of it from the second one
    pair.check()


@pytest.mark.slow
def test_a_node_that_has_stopped_in_order_and_was_wiped_is_a_member_again() -> None:
    pair = Pair("c")
    for _ in range(3):
        pair.restart()
    pair.a.stop()
    pair.cluster.wait(1_000)
    pair.restart({})
    pair.check()
    pair.send()
    pair.check()
