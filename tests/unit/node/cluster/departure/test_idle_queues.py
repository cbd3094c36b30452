"""A queue of a node that leaves, of which nothing goes for long although its node is linked, is named, whatever the
cause, and another node takes over where it may."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.base.time import NS_PER_MS

from tests.support.cluster_stage import ClusterStage, node_id_of
from tests.unit.core.cluster.test_drains import LIMITS, count_at, filled
from tests.unit.node.cluster.departure.test_next_heir import BOUND_MS, Heirs
from tests.unit.node.test_handed_on import Third
from tests.unit.node.test_scale_down import begin, moved, shown


def full_at(count: int) -> dict[str, Any]:
    return {"max_size_messages": count, "address_full_policy": "BLOCK"}


class ThirdThatIsFull(Third):
    """The subscription at c has room for ten messages."""

    def __init__(self) -> None:
        self.cluster = ClusterStage()
        self.count = 0
        tables = {**LIMITS, "scale_down": {"heir_timeout": BOUND_MS}}
        own = {"c": {"address_settings": {"#": full_at(10)}}}
        self.a, self.b, self.c = (
            self.cluster.node(name, [each for each in "abc" if each != name], options={**tables, **own.get(name, {})})
            for name in "abc"
        )
        self.cluster.run()
        self.c.admin("queue-create", name="kept", address="news", routing_type="multicast")
        self.cluster.wait(1_000)


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_third_node_that_is_linked_and_takes_nothing_is_named(is_forced: bool) -> None:
    of = ThirdThatIsFull()
    of.publish(40)
    begin(of.a, of.cluster, force=is_forced)
    of.cluster.wait(BOUND_MS - 5_000)
    assert (shown(of.a)["state"], shown(of.a)["hindrances"]) == ("moving", []), "there may be room soon"
    of.cluster.wait(10_000)
    said = shown(of.a)
    (hindrance,) = said["hindrances"]
    assert f"node {node_id_of('c')} gives its link no credit" in hindrance["why"]
    assert (said["state"], said["left"]) == ("moved" if is_forced else "failed", of.waits(of.a))
    of.c.admin("queue-purge", name="kept")
    of.cluster.wait(1_000)
    assert of.waits(of.a) < said["left"]


def test_what_goes_to_a_third_node_is_progress_as_it_is_shown() -> None:
    """The heir has all that is for it, so nothing goes there any more."""
    of = ThirdThatIsFull()
    of.publish(40)
    begin(of.a, of.cluster)
    of.cluster.wait(30_000)
    assert shown(of.a)["stands_s"] > 20
    of.c.admin("queue-purge", name="kept")
    of.cluster.wait(2_000)
    assert 0 < of.waits(of.a) < 40
    assert shown(of.a)["stands_s"] <= 2


@pytest.mark.parametrize("is_forced", [False, True])
def test_an_heir_before_that_is_back_and_takes_nothing_is_named(is_forced: bool) -> None:
    of = Heirs(of_b={"address_settings": {"#": full_at(310)}})
    filled(of.a, 300, of.cluster)
    begin(of.a, of.cluster, force=is_forced)
    of.cluster.wait(3_000)
    of.b.is_disk_held = True
    of.a.admin("send", address="orders", messages=[{"body": f"{each}"} for each in range(300)])
    of.cluster.run()
    of.lose(of.b)
    of.cluster.wait(BOUND_MS + 10_000)
    assert shown(of.a)["node"] == "c"
    of.b.start()
    of.b.admin("send", address="orders", messages=[{"body": "x"}] * 10)
    of.cluster.wait(BOUND_MS + 40_000)
    said = shown(of.a)
    (hindrance,) = said["hindrances"]
    assert f"{said['left']} messages of it wait: node {node_id_of('b')} gives its link no credit" in hindrance["why"]
    assert (said["state"], said["left"] > 0) == ("moved" if is_forced else "failed", True)
    of.b.admin("queue-purge", name="orders")
    assert moved(of.a, of.cluster)["left"] == 0


@pytest.mark.parametrize("is_forced", [False, True])
def test_an_heir_that_gives_credit_and_never_answers_is_named(is_forced: bool) -> None:
    of = Heirs(names="ab")
    filled(of.a, 30, of.cluster)
    begin(of.a, of.cluster, force=is_forced)
    of.cluster.wait(3_000)
    of.b.is_disk_held = True
    of.a.admin("send", address="orders", messages=[{"body": "x"}] * 10)
    of.cluster.wait(BOUND_MS - 5_000)
    assert (shown(of.a)["state"], shown(of.a)["hindrances"]) == ("moving", [])
    of.cluster.wait(10_000)
    said = shown(of.a)
    (hindrance,) = said["hindrances"]
    assert f"10 messages of it wait: node {node_id_of('b')} has answered for none for" in hindrance["why"]
    assert (said["state"], said["left"]) == ("failed", 10)
    of.b.is_disk_held = False
    of.cluster.wait(2_000)
    assert moved(of.a, of.cluster)["left"] == 0


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_a_queue_that_is_full_at_the_heir_is_seen_while_others_go(names: str) -> None:
    of = Heirs(names=names, of_b={"address_settings": {"orders": full_at(100)}})
    filled(of.a, 90, of.cluster)
    of.a.admin("queue-create", name="other", address="other", routing_type="anycast")
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    of.a.admin("send", address="orders", messages=[{"body": "x"}] * 50)
    for _ in range(5):
        of.cluster.wait(BOUND_MS // 4)
        of.a.admin("send", address="other", messages=[{"body": "y", "durable": True}])
    of.cluster.wait(5_000)
    said = shown(of.a)
    if names == "ab":
        (hindrance,) = said["hindrances"]
        assert (said["state"], said["node"], hindrance["name"]) == ("failed", "b", "orders")
        assert f"{count_at(of.a)} messages of it wait" in hindrance["why"]
    else:
        assert (said["node"], moved(of.a, of.cluster)["left"]) == ("c", 0)
        assert count_at(of.b) + count_at(of.c) == 140


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_node_that_stood_still_itself_does_not_count_that(is_forced: bool) -> None:
    """Answers have come meanwhile, and it is asked how far it is before it has heard them."""
    of = Third()
    of.c.is_disk_held = True
    of.publish(40)
    begin(of.a, of.cluster, force=is_forced)
    of.cluster.wait(3_000)
    of.a.now_ns += 2 * BOUND_MS * NS_PER_MS
    assert (shown(of.a)["state"], shown(of.a)["hindrances"]) == ("moving", [])
    of.a.step()
    assert shown(of.a)["state"] == "moving", "after a look as well, by which links have not been heard for too long"
    of.c.is_disk_held = False
    of.cluster.run()
    of.cluster.wait(5_000)
    assert (shown(of.a)["state"], of.waits(of.a)) == ("moved", 0)


def test_the_heir_stays_one_as_the_node_that_leaves_stands_still() -> None:
    of = Heirs()
    of.b.is_disk_held = True
    filled(of.a, 300, of.cluster)
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    assert shown(of.a)["state"] == "moving"
    of.a.now_ns += 2 * BOUND_MS * NS_PER_MS
    of.a.step()
    assert of.a.events("scale-down-goes-on") == []
    of.b.is_disk_held = False
    of.cluster.run()
    of.cluster.wait(1_000)
    assert (shown(of.a)["state"], shown(of.a)["node"]) == ("moved", "b")
