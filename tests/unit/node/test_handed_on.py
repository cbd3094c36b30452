"""What waits at a node that leaves for a third one goes over the heir, but for what that may have, and comes once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.core.cluster import held_back

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of, options_for
from tests.support.large_messages import Producer
from tests.unit.core.cluster.test_drains import LIMITS, bodies
from tests.unit.node.test_scale_down import begin, shown
from tests.unit.node.test_scale_down_at_stop import stop


class Third:
    """Node a leaves to b; c has a durable subscription, and copies for it wait at a."""

    def __init__(self, **changes: Any) -> None:
        self.cluster = ClusterStage()
        said = {"options": LIMITS, **changes}
        self.a, self.b, self.c = (
            self.cluster.node(name, [each for each in "abc" if each != name], **said) for name in "abc"
        )
        self.cluster.run()
        self.c.admin("queue-create", name="kept", address="news", routing_type="multicast")
        self.cluster.wait(1_000)
        self.count = 0

    def publish(self, count: int) -> None:
        producer = Producer(self.a, f"producer-{self.count}", "news")
        for body in bodies(count, self.count):
            producer.publish(body)
        self.cluster.run()
        assert len(producer.outcomes) == count
        self.count += count

    def lose_c(self, *, unanswered: int, has_them: bool) -> None:
        """With so many without an answer: c has them on its disk, or has lost them."""
        if has_them:
            self.cluster.silence(self.c, is_deaf=False)
        else:
            self.c.is_disk_held = True
        if unanswered:
            self.publish(unanswered)
        self.c.is_disk_held = False
        self.c.crash()
        self.cluster.wait(1_000)

    def waits(self, node: ClusterNode) -> int:
        return sum(queue.message_count for queue in node.broker.store.remotes.queues.values())

    def back(self) -> None:
        self.c.start()
        self.cluster.wait(40_000)

    @property
    def kept(self) -> list[str]:
        """Bodies of what the subscription has."""
        said = self.c.admin("browse", queue="kept", limit=1_000)["messages"]
        return sorted(str(row["body"]) for row in said)


@pytest.mark.parametrize("has_them", [False, True])
def test_it_goes_over_the_heir_but_for_what_the_third_one_may_have(has_them: bool) -> None:
    of = Third()
    of.publish(5)
    of.lose_c(unanswered=3, has_them=has_them)
    of.publish(20)
    assert of.waits(of.a) == 23
    plan = begin(of.a, of.cluster, dry_run=True)
    (hindrance,) = plan["hindrances"]
    assert hindrance["why"].endswith("it may have 3 of them")
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(5_000)
    (told,) = of.a.events("scale-down-hands-on")
    assert (told["messages"], told["apart"]) == (20, 3)
    assert (of.waits(of.a), of.waits(of.b)) == (3, 20)
    assert any("3 messages of it may be at node" in each["why"] for each in shown(of.a)["hindrances"])
    for node in (of.a, of.b):
        node.crash()
        node.start()
        of.cluster.wait(5_000)
    assert (of.waits(of.a), of.waits(of.b)) == (3, 20)
    (owed,) = shown(of.a)["receipt"]["others"]
    assert (owed["node_id"], owed["before"], owed["left"]) == (node_id_of("c"), 23, 3), "also after a crash"
    of.back()
    assert (of.waits(of.a), of.waits(of.b)) == (0, 0)
    assert of.kept == [each.decode() for each in bodies(28)]
    assert of.c.broker.store.arrivals.dropped_total == (3 if has_them else 0)
    assert (shown(of.a)["state"], shown(of.a)["hindrances"]) == ("moved", [])
    (owed,) = shown(of.a)["receipt"]["others"]
    assert (owed["before"], owed["left"]) == (23, 0)


def test_where_nothing_is_unanswered_it_hinders_nothing() -> None:
    of = Third()
    of.publish(5)
    of.lose_c(unanswered=0, has_them=False)
    of.publish(20)
    assert begin(of.a, of.cluster, dry_run=True)["hindrances"] == []
    begin(of.a, of.cluster)
    of.cluster.wait(5_000)
    assert shown(of.a)["state"] == "moved"
    of.back()
    assert of.kept == [each.decode() for each in bodies(25)]


def test_a_third_one_that_is_linked_gets_it_from_the_node_that_leaves() -> None:
    of = Third(confirmation_window_size=200)
    of.c.is_disk_held = True
    of.publish(10)
    assert 0 < sum(queue.unanswered_count for queue in of.a.broker.store.remotes.queues.values()) < 10
    begin(of.a, of.cluster)
    of.cluster.wait(5_000)
    assert of.a.events("scale-down-hands-on") == []
    of.c.is_disk_held = False
    of.cluster.wait(5_000)
    assert of.kept == [each.decode() for each in bodies(10)]
    assert shown(of.a)["state"] == "moved"


def of_a_chain() -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """Nodes c - a - b, in which b knows the way to c over a alone: the cluster, a, and c, which is down while five
    copies for its subscription wait at a, and a leaves to b."""
    cluster = ClusterStage()
    said: dict[str, Any] = {"options": LIMITS, "allow_direct_connections_only": True, "max_hops": 2}
    a, _, c = (cluster.node(name, far, **said) for name, far in (("a", "bc"), ("b", "a"), ("c", "a")))
    cluster.run()
    c.admin("queue-create", name="kept", address="news", routing_type="multicast")
    cluster.wait(1_000)
    c.crash()
    cluster.wait(1_000)
    producer = Producer(a, "producer", "news")
    for body in bodies(5):
        producer.publish(body)
    begin(a, cluster, force=True)
    cluster.wait(5_000)
    return cluster, a, c


def kept_at(node: ClusterNode) -> list[str]:
    return sorted(str(row["body"]) for row in node.admin("browse", queue="kept", limit=1_000)["messages"])


@pytest.mark.parametrize("then", ["c is back", "called off", "a starts again"])
def test_what_the_heir_refuses_waits_for_its_owner_again(then: str) -> None:
    cluster, a, c = of_a_chain()
    queue = next(iter(a.broker.store.remotes.queues.values()))
    assert (queue.message_count, queue.kind.forwards_to) == (5, node_id_of("c"))
    assert any("knows no way" in each["why"] for each in shown(a)["hindrances"])
    assert len(a.events("scale-down-hands-on")) == len(a.events("scale-down-takes-back")) == 1
    if then == "called off":
        a.admin("scale-down-cancel")
        cluster.wait(5_000)
        assert shown(a)["state"] == "none"
    elif then == "a starts again":
        a.crash()
        a.start()
        cluster.wait(5_000)
    c.start()
    cluster.wait(40_000)
    assert kept_at(c) == [each.decode() for each in bodies(5)]
    assert sum(each.message_count for each in a.broker.store.remotes.queues.values()) == 0


def test_what_the_heir_may_have_when_the_owner_is_back_waits_for_its_answer() -> None:
    of = Third()
    of.publish(5)
    of.lose_c(unanswered=2, has_them=True)
    of.publish(20)
    of.b.is_disk_held = True
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(5_000)
    assert of.a.events("scale-down-hands-on")
    of.c.start()
    of.cluster.wait(20_000)
    (back,) = of.a.events("scale-down-takes-back")
    assert back["apart"] > 0
    of.a.crash()
    of.a.start()
    of.cluster.wait(5_000)
    of.b.is_disk_held = False
    of.cluster.wait(40_000)
    assert of.kept == [each.decode() for each in bodies(27)]
    assert (of.waits(of.a), of.waits(of.b), shown(of.a)["state"]) == (0, 0, "moved")
    of.a.admin("scale-down-cancel")
    of.cluster.wait(5_000)
    assert shown(of.a)["state"] == "none"


def test_what_each_of_two_nodes_may_have_is_kept_apart_in_however_many_stretches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = Third()
    of.lose_c(unanswered=0, has_them=False)
    of.publish(12)
    (queue,) = [each for each in of.a.broker.store.remotes.queues.values() if each.message_count]
    handed_over, first_id = queue.handed_over, next(iter(queue.backlog)).first_id
    assert handed_over is not None
    for message_id in range(first_id, first_id + 12, 2):
        handed_over.sent(message_id, 1)  # as where these had the higher priority
    of.b.is_disk_held = True
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(5_000)
    (told,) = of.a.events("scale-down-hands-on")
    assert (told["messages"], told["apart"]) == (6, 6)
    monkeypatch.setattr(held_back, "STRETCHES_MAX", 2)
    monkeypatch.setattr(held_back, "STRETCHES_SAID_MAX", 4)
    of.c.start()
    of.c.is_disk_held = True
    of.cluster.wait(20_000)
    (back,) = of.a.events("scale-down-takes-back")
    assert back["apart"] == 6
    of.a.crash()
    of.a.start()
    of.cluster.wait(5_000)
    assert sum(each.message_count for each in of.a.broker.store.remotes.scale_down.held) == 6
    of.b.is_disk_held = of.c.is_disk_held = False
    of.cluster.wait(40_000)
    assert of.kept == [each.decode() for each in bodies(12)]
    assert (of.waits(of.a), of.waits(of.b), shown(of.a)["state"]) == (0, 0, "moved")


def test_at_a_stop_nothing_is_handed_on() -> None:
    cluster = ClusterStage()
    for name in "abc":
        base = options_for(name, [each for each in "abc" if each != name], {"options": LIMITS})
        cluster.make(name, replace(base, scale_down=replace(base.scale_down, enabled=name == "a")), {})
    cluster.run()
    a, b, c = cluster.nodes.values()
    c.admin("queue-create", name="kept", address="news", routing_type="multicast")
    a.admin("queue-create", name="own", address="own", routing_type="anycast")
    cluster.wait(1_000)
    c.crash()
    cluster.wait(1_000)
    for address in ("news", "own"):
        a.admin("send", address=address, messages=[{"body": "one"}])
    cluster.run()
    b.is_disk_held = True
    stop(a, cluster, 5_000)
    assert a.events("scale-down-begun")
    assert sum(each.message_count for each in a.broker.store.remotes.queues.values()) == 1
    assert a.events("scale-down-hands-on") == []


@pytest.mark.parametrize("is_forced", [False, True])
def test_called_off_it_goes_to_its_owner_again(is_forced: bool) -> None:
    of = Third()
    of.lose_c(unanswered=2, has_them=True)
    of.publish(5)
    of.b.is_disk_held = True
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(5_000)
    assert of.a.events("scale-down-hands-on")
    of.a.admin("scale-down-cancel", force=is_forced)
    of.cluster.wait(5_000)
    assert shown(of.a)["state"] == ("none" if is_forced else "ends")
    of.b.is_disk_held = False
    of.back()
    assert sorted(set(of.kept)) == [each.decode() for each in bodies(7)]
    assert len(of.kept) == 7 or is_forced
    assert (of.waits(of.a), of.waits(of.b), shown(of.a)["state"]) == (0, 0, "none")


def test_by_force_it_has_moved_only_when_all_that_can_go_is_there() -> None:
    of = Third()
    of.lose_c(unanswered=0, has_them=False)
    of.publish(20)
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(900)
    of.b.is_disk_held = True
    of.cluster.wait(5_000)
    assert of.waits(of.a) == 20
    assert shown(of.a)["state"] == "moving"
    of.b.is_disk_held = False
    of.cluster.wait(5_000)
    assert (of.waits(of.a), shown(of.a)["state"]) == (0, "moved")


def test_what_is_owed_later_goes_over_the_heir_too() -> None:
    of = Third()
    of.lose_c(unanswered=0, has_them=False)
    of.publish(5)
    begin(of.a, of.cluster)
    of.cluster.wait(5_000)
    of.a.admin("send", address="news", messages=[{"body": "late"}])
    of.cluster.wait(5_000)
    assert (of.waits(of.a), of.waits(of.b), shown(of.a)["state"]) == (0, 6, "moved")
    of.back()
    assert of.kept == [*(each.decode() for each in bodies(5)), "late"]


def test_what_is_for_several_queues_is_named_and_stays() -> None:
    of = Third()
    of.c.admin("queue-create", name="kept-too", address="news", routing_type="multicast")
    of.cluster.wait(1_000)
    of.lose_c(unanswered=0, has_them=False)
    of.publish(5)
    (hindrance,) = begin(of.a, of.cluster, dry_run=True)["hindrances"]
    assert hindrance["why"].endswith("they go over no other one, as they are for several queues")
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(5_000)
    assert (of.waits(of.a), of.waits(of.b)) == (5, 0)
    of.back()
    assert of.kept == [each.decode() for each in bodies(5)]
    assert of.waits(of.a) == 0


def test_a_shared_queue_of_which_the_heir_knows_nothing_loses_none() -> None:
    cluster = ClusterStage()
    said: dict[str, Any] = {"allow_direct_connections_only": True, "max_hops": 2, "confirmation_window_size": 200}
    said["options"] = LIMITS | {"address_settings": {"work": {"auto_create_queues": False}}}
    a, _, c = (cluster.node(name, far, **said) for name, far in (("a", "bc"), ("b", "a"), ("c", "a")))
    cluster.run()
    c.admin("queue-create", name="work", address="work", routing_type="anycast")
    cluster.wait(1_000)
    c.is_disk_held = True
    producer = Producer(a, "producer", "work")
    for body in bodies(20):
        producer.publish(body)
    cluster.run()
    c.is_disk_held = False
    c.crash()
    cluster.wait(1_000)
    assert sum(each.message_count for each in a.broker.store.remotes.queues.values()) == 20
    begin(a, cluster, force=True)
    cluster.wait(5_000)
    assert len(a.events("scale-down-takes-back")) == 1
    assert sum(each.message_count for each in a.broker.store.remotes.queues.values()) == 20
    c.start()
    cluster.wait(40_000)
    said_of = c.admin("browse", queue="work", limit=100)["messages"]
    assert sorted(str(row["body"]) for row in said_of) == [each.decode() for each in bodies(20)]


def test_what_comes_when_its_owner_is_back_goes_the_same_way() -> None:
    of = Third()
    of.lose_c(unanswered=2, has_them=True)
    of.publish(5)
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(900)
    of.b.is_disk_held = True
    of.cluster.wait(5_000)
    of.a.crash()
    of.a.start()
    of.cluster.wait(3_000)
    assert of.waits(of.a) == 7
    of.back()
    of.c.is_disk_held = True
    of.a.admin("send", address="news", messages=[{"body": "late"}])
    of.cluster.wait(3_000)
    (queue,) = of.a.broker.store.remotes.queues.values()
    assert queue.kind.forwards_to == node_id_of("c")
    of.b.is_disk_held = of.c.is_disk_held = False
    of.cluster.wait(5_000)
    assert of.kept == [*(each.decode() for each in bodies(7)), "late"]


def test_given_up_it_goes_over_the_heir_as_well() -> None:
    of = Third()
    of.lose_c(unanswered=2, has_them=False)
    of.publish(5)
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(5_000)
    of.a.admin("cluster-forget", node_id=node_id_of("c"))
    of.cluster.wait(5_000)
    assert (of.waits(of.a), of.waits(of.b)) == (0, 7)
    of.back()
    assert of.kept == [each.decode() for each in bodies(7)]


def test_a_subscription_that_has_ended_by_then_takes_its_copies_with_it() -> None:
    of = Third()
    of.lose_c(unanswered=2, has_them=False)
    of.publish(5)
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(5_000)
    of.c.start()
    of.c.admin("queue-delete", name="kept")
    of.cluster.wait(40_000)
    assert (of.waits(of.a), of.waits(of.b)) == (0, 0)
    assert not list(of.a.broker.store.remotes.scale_down.held)
    assert (shown(of.a)["state"], of.a.halted) == ("moved", None)
