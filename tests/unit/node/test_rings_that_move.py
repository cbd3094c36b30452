"""What addresses keep for later queues goes to the heir of a node that leaves: who comes there then gets it."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.queue.kinds import NODE_ID_SIZE, RING_OF_PREFIX, RING_PREFIX
from mqbroker.core.queue.queue import Queue
from mqbroker.wire.sections import Header

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import BIG, Producer, content
from tests.unit.core.cluster.test_drains import pair
from tests.unit.node.cluster.departure.test_next_heir import BOUND_MS, Heirs
from tests.unit.node.test_scale_down import begin, moved, shown

OWN = f"{RING_PREFIX}news"
OF_A = f"{RING_OF_PREFIX}{node_id_of('a')}"


def keeping(count: int = 3, **changes: Any) -> dict[str, Any]:
    """What a node has of options whose addresses keep so many messages."""
    topics = {"default_address_routing_type": "MULTICAST", "retroactive_message_count": count, **changes}
    return {"limits": {"link_credit": 100_000}, "address_settings": {"#": topics}}


def two(here: int = 3, there: int = 3, **changes: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """Nodes that keep so many messages of each address."""
    cluster = ClusterStage()
    a, b = (
        cluster.node(name, [other], options=keeping(count, **changes), message_load_balancing="OFF")
        for name, other, count in (("a", "b", here), ("b", "a", there))
    )
    cluster.run()
    cluster.wait(600)
    return cluster, a, b


def sent(node: ClusterNode, *texts: str, **said: Any) -> None:
    producer = Producer(node, f"publisher of {texts[0][:20]}", "news")
    for text in texts:
        producer.publish(text.encode(), **said)
    node.cluster.run()
    assert len(producer.outcomes) == len(texts)
    producer.talker.connection.close()
    node.cluster.wait(10)  # so that no two come at one time


def gets(node: ClusterNode, name: str, **kind: Any) -> list[str]:
    """What a queue begins with that is made now, in order."""
    made = node.admin("queue-create", name=name, address="news", routing_type="multicast", **kind)
    assert "condition" not in made, made
    return [row["body"] for row in node.admin("browse", queue=name, limit=100)["messages"]]


def rings(node: ClusterNode) -> dict[str, int]:
    """How many messages it keeps: of its own, and by node what came of its rings."""
    found: dict[str, int] = {}
    for queue in node.broker.store.queues.values():
        if queue.kind.is_ring:
            name = _short(queue)
            found[name] = found.get(name, 0) + queue.message_count
    return found


def _short(queue: Queue) -> str:
    name = queue.kind.name
    return name if name == OWN else name[: len(RING_OF_PREFIX) + NODE_ID_SIZE]


def ring_of_a(node: ClusterNode) -> Queue:
    (ring,) = [each for each in node.broker.store.queues.values() if each.kind.is_ring and _short(each) == OF_A]
    return ring


def test_who_comes_to_the_heir_gets_what_it_would_have_got_here() -> None:
    cluster, a, b = two()
    sent(a, "1", "2", "3", "4")
    assert gets(a, "before") == ["2", "3", "4"]
    begin(a, cluster)
    said = moved(a, cluster)
    assert (said["hindrances"], said["receipt"]["balances"], said["left"]) == ([], True, 0)
    assert rings(b) == {OF_A: 3}
    assert gets(b, "later") == ["2", "3", "4"]
    queue = b.broker.store.queues["before"]
    assert queue.message_count == 3, "the subscription that moved has them once"
    b.crash()
    b.start()
    cluster.wait(1_000)
    assert gets(b, "after a crash") == ["2", "3", "4"]


def test_what_an_address_keeps_does_not_pause_at_the_heir_though_the_address_does() -> None:
    cluster, a, b = two()
    sent(a, "1", "2")
    a.admin("address-pause", name="news")
    begin(a, cluster)
    moved(a, cluster)
    assert not ring_of_a(b).kind.paused
    assert not any(a.events(event) for event in ("drain-paused", "drain-unpaused"))
    assert gets(b, "later") == ["1", "2"]


@pytest.mark.parametrize("there", [1, 3, 5, 20])
def test_where_both_have_some_the_newest_of_both_are_kept_as_many_as_the_heir_keeps(there: int) -> None:
    cluster, a, b = two(20, there)
    for number in (1, 2, 3):
        sent(a, f"a {number}")
        sent(b, f"b {number}")
    sent(b, "b 4")
    all_of_them = ["a 1", "b 1", "a 2", "b 2", "a 3", "b 3", "b 4"]
    begin(a, cluster)
    moved(a, cluster)
    assert gets(b, "later") == all_of_them[-there:]
    assert sum(rings(b).values()) <= 2 * there, "what nobody would get any more is dropped"
    sent(b, "new")
    assert gets(b, "last") == [*all_of_them, "new"][-there:]


def test_a_heir_that_keeps_nothing_takes_it_and_drops_it() -> None:
    cluster, a, b = two(3, 0)
    sent(a, "1", "2")
    begin(a, cluster)
    said = moved(a, cluster)
    assert (said["hindrances"], said["receipt"]["balances"]) == ([], True)
    assert gets(b, "later") == []
    a.crash()
    cluster.wait(2_000)
    assert rings(b) == {}, "nothing of it stays at a node that keeps nothing"


@pytest.mark.parametrize("fault", ["source", "heir", "link", "answers"])
def test_nothing_is_lost_or_there_twice_where_a_node_or_a_link_fails_half_way(fault: str) -> None:
    cluster, a, b = two(300, 300)
    texts = [f"{number:03}" for number in range(300)]
    sent(a, *texts)
    begin(a, cluster)
    cluster.hold_up("b", "a")
    cluster.wait(1_500)
    if fault == "link":
        for pipe in cluster.between("a", "b"):
            cluster.cut(pipe)
    cluster.let_through("b", "a")
    for node, name in ((a, "source"), (b, "heir")):
        if fault == name:
            node.crash()
            node.start()
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]
    assert rings(b) == {OF_A: 300}
    assert [row["body"] for row in b.admin("browse", queue=ring_of_a(b).kind.name, limit=300)["messages"]] == texts


def test_called_off_and_begun_once_more_nothing_is_there_twice() -> None:
    cluster, a, b = two(10, 10)
    sent(a, "1", "2")
    begin(a, cluster)
    moved(a, cluster)
    a.admin("scale-down-cancel")
    cluster.wait(2_000)
    assert shown(a)["state"] == "none"
    sent(a, "3")
    assert gets(a, "between") == ["3"], "what has moved is the heir's"
    begin(a, cluster)
    assert moved(a, cluster)["receipt"]["balances"]
    assert gets(b, "later") == ["1", "2", "3"]


def three() -> tuple[ClusterStage, ClusterNode, ClusterNode, ClusterNode]:
    """Nodes that keep three messages of each address."""
    cluster, names = ClusterStage(), ("a", "b", "c")
    a, b, c = (
        cluster.node(name, [each for each in names if each != name], options=keeping(), message_load_balancing="OFF")
        for name in names
    )
    cluster.run()
    cluster.wait(600)
    return cluster, a, b, c


def moves_to(node: ClusterNode, heir: str) -> None:
    request = node.ask("scale-down", node=heir)
    node.cluster.run()
    assert node.replies[request].error is None
    assert moved(node, node.cluster)["receipt"]["balances"]


def comes_back(node: ClusterNode) -> None:
    node.admin("scale-down-cancel")
    node.cluster.wait(3_000)
    assert shown(node)["state"] == "none"


def test_what_left_before_pushes_out_nothing_newer_where_it_comes_over_another_node() -> None:
    cluster, a, b, c = three()
    sent(a, "old 1", "old 2", "old 3")
    moves_to(a, "b")
    comes_back(a)
    sent(a, "new 1", "new 2", "new 3")
    moves_to(a, "c")
    assert gets(c, "before") == ["new 1", "new 2", "new 3"]
    moves_to(b, "c")
    assert gets(c, "later") == ["new 1", "new 2", "new 3"]
    cluster.wait(1_000)
    assert sum(rings(c).values()) == 3, "what nobody would get any more is dropped"


def test_what_came_back_pushes_out_nothing_newer_where_it_leaves_once_more() -> None:
    _, a, b = two()
    sent(a, "old 1", "old 2", "old 3")
    moves_to(a, "b")
    comes_back(a)
    moves_to(b, "a")
    comes_back(b)
    sent(a, "new 1", "new 2", "new 3")
    assert gets(a, "before") == ["new 1", "new 2", "new 3"]
    moves_to(a, "b")
    assert gets(b, "later") == ["new 1", "new 2", "new 3"]


def test_what_came_behind_something_is_no_older_where_a_clock_was_set_back() -> None:
    cluster, a, b = two(2, 2)
    sent(b, "older than both")
    sent(a, "1")
    a.clock_ms -= 60_000
    sent(a, "2")
    begin(a, cluster)
    moved(a, cluster)
    assert gets(b, "later") == ["1", "2"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_where_the_heir_is_lost_half_way_each_is_at_it_or_at_the_next_one(is_restarted: bool) -> None:
    of = Heirs(options=keeping(1_000))
    texts = [f"{number:03}" for number in range(300)]
    sent(of.a, *texts[:100])
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    assert rings(of.b) == {OF_A: 100}
    of.cluster.silence(of.b, is_deaf=False)  # it takes what comes, and its answers are lost
    of.a.admin("send", address="news", messages=[{"body": each, "durable": True} for each in texts[100:]])
    of.cluster.run()
    assert rings(of.b)[OF_A] > 100
    of.lose(of.b)
    if is_restarted:
        of.a.crash()
        of.a.start()
    of.cluster.wait(BOUND_MS + 5_000)
    of.bring_back(of.b)
    assert moved(of.a, of.cluster)["receipt"]["balances"]
    kept = [row["body"] for node in (of.b, of.c) if rings(node).get(OF_A)
            for row in node.admin("browse", queue=ring_of_a(node).kind.name, limit=300)["messages"]]  # fmt: skip
    assert sorted(kept) == texts
    assert is_restarted or rings(of.c)[OF_A] > 0, "but for what the first one may have, all goes to the next one"


def test_what_came_of_a_node_goes_on_with_its_heir() -> None:
    cluster = ClusterStage()
    names = ("a", "b", "c")
    a, b, c = (
        cluster.node(name, [each for each in names if each != name], options=keeping(9), message_load_balancing="OFF")
        for name in names
    )
    cluster.run()
    cluster.wait(600)
    for node, text in ((a, "a 1"), (b, "b 1"), (c, "c 1"), (a, "a 2"), (b, "b 2")):
        sent(node, text)
    begin(a, cluster)
    moved(a, cluster)
    a.crash()
    request = b.ask("scale-down", node="c", force=True)
    cluster.run()
    assert b.replies[request].error is None
    moved(b, cluster)
    assert gets(c, "later") == ["a 1", "b 1", "c 1", "a 2", "b 2"]


def test_large_ones_and_such_as_expire_or_are_not_durable_move_as_they_are() -> None:
    cluster, a, b = two(9, 9)
    sent(a, "soon over", header=Header(durable=True, ttl=3_000))
    sent(a, "stays a while", header=Header(durable=True, ttl=100_000))
    sent(a, "volatile", header=Header(durable=False))
    sent(a, content(BIG).decode("latin-1"))
    begin(a, cluster)
    moved(a, cluster)
    cluster.wait(4_000)
    ring = ring_of_a(b)
    assert ring.message_count == 3
    assert len(gets(b, "later")) == 3
    left = [each.run.expires_ms - b.broker.store.at.wall_ms for each in ring.backlog if each.run.expires_ms]
    assert len(left) == 1
    assert 80_000 < left[0] < 100_000


def test_it_waits_for_no_room_at_its_address() -> None:
    cluster, a, b = two(3, 3, max_size_messages=2, address_full_policy="BLOCK")
    sent(a, "3")
    assert gets(b, "full") == []
    sent(b, "1", "2")
    begin(a, cluster)
    assert moved(a, cluster)["receipt"]["balances"]
    assert rings(b) == {OWN: 2, OF_A: 1}


def test_an_address_is_deleted_with_what_has_come_for_it() -> None:
    cluster, a, b = two()
    sent(a, "1")
    begin(a, cluster)
    moved(a, cluster)
    a.crash()
    cluster.wait(2_000)
    assert "condition" not in b.admin("address-delete", name="news")
    assert rings(b) == {}


def test_a_reload_with_a_smaller_number_drops_what_is_beyond_it() -> None:
    cluster, a, b = two(5, 5)
    sent(a, "1", "2", "3")
    begin(a, cluster)
    moved(a, cluster)
    b.crash()
    b.options = two(5, 2)[2].options
    b.start()
    cluster.wait(1_000)
    assert gets(b, "later") == ["2", "3"]


def test_nobody_drains_a_ring_alone() -> None:
    cluster, a, _ = pair(options=keeping())
    sent(a, "1")
    request = a.ask("drain-queue", queue=OWN, node="b")
    cluster.run()
    assert "made later" in str(a.replies[request].error)
