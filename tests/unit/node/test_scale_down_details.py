"""What a node that leaves counts, remembers and waits for, where nothing else would show that it did not."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.cluster.drains import KEPT_BY
from mqbroker.core.cluster.id_digest import NO_IDS, IdDigest

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Producer, content
from tests.unit.core.cluster.test_drains import LIMITS, bodies, count_at, drain, filled, pair, read_at
from tests.unit.node.test_scale_down import (
    answered_before_it_is_sent_away,
    begin,
    given_to,
    moved,
    shown,
    that_say_where,
    with_id,
)


@pytest.mark.parametrize("memory_bytes", [100_000_000, 20_000])
def test_what_was_there_is_counted_with_what_is_paged_or_large_and_without_what_is_not_durable(
    memory_bytes: int,
) -> None:
    small = {"link_credit": 100_000, "global_max_size_bytes": memory_bytes, "amqp_min_large_message_size_bytes": 10_000}
    cluster, a, b = pair(options={"limits": {**small, "large_message_in_memory_max_size_bytes": 0}})
    producer = filled(a, 1, cluster)
    producer.publish(content(1, 15_000))
    for number in range(20):
        producer.publish(content(number, 1_500), durable=bool(number % 2))
    (plan,) = begin(a, cluster, dry_run=True)["queues"]
    begin(a, cluster)
    cluster.wait(1_100)
    (row,) = shown(a)["receipt"]["queues"]
    before = row["before"]
    assert {name: plan[name] for name in ("bytes", "paged", "large", "scheduled")} == {
        name: before[name] for name in ("bytes", "paged", "large", "scheduled")
    }, "the plan says the same before"
    assert (before["messages"], before["large"]) == (12, 1)
    assert before["bytes"] // 1_000 == 30, "whatever is paged; of a large one what lies in its file is not counted"
    assert bool(before["paged"]) == (memory_bytes == 20_000)
    said = moved(a, cluster)
    assert (said["receipt"]["balances"], count_at(b)) == (True, 22)


def test_the_plan_says_the_terms_of_queues_as_the_other_node_shows_those_of_its_own() -> None:
    """So whoever asks both finds out what would be refused, by the words of the refusal."""
    cluster, a, b = pair()
    for node, selector in ((a, ""), (b, "color = 'red'")):
        node.admin("queue-create", name="orders", selector=selector)
    filled(a, 3, cluster)
    (row,) = begin(a, cluster, dry_run=True)["queues"]
    there = b.admin("queue-show", name="orders")
    assert row["terms"].keys() <= there.keys()
    assert len(row["terms"]) == len(KEPT_BY)
    assert [name for name, value in row["terms"].items() if there[name] != value] == ["selector"]
    begin(a, cluster)
    cluster.wait(5_000)
    (moving,) = shown(a)["queues"]
    assert "is here on other terms" in moving["why"]
    assert moving["why"].endswith("selector is \"color = 'red'\" here")


def test_nothing_goes_before_it_is_on_disk_what_had_arrived_before() -> None:
    cluster, a, b = pair()
    filled(a, 20, cluster)
    begin(a, cluster)
    cluster.hold_up("a", "b")
    cluster.wait(3_000)
    a.is_disk_held = True
    cluster.let_through("a", "b")
    cluster.run()
    assert count_at(b) == 0
    a.is_disk_held = False
    assert moved(a, cluster)["receipt"]["balances"]
    assert count_at(b) == 20


def test_a_second_time_has_nothing_of_the_first_also_after_a_crash() -> None:
    cluster, a, _ = pair()
    given_to(a, "first", 3)
    begin(a, cluster)
    moved(a, cluster)
    a.admin("scale-down-cancel")
    cluster.wait(3_000)
    assert shown(a)["state"] == "none"
    a.admin("queue-delete", name="first", force=True)
    given_to(a, "second", 2)
    begin(a, cluster)
    moved(a, cluster)
    a.crash()
    a.start()
    cluster.wait(3_000)
    assert [row["queue"] for row in moved(a, cluster)["receipt"]["queues"]] == ["second"]


def test_the_link_of_a_queue_that_is_gone_is_no_other_ones_after_a_crash() -> None:
    cluster, a, b = pair()
    for name in ("first", "second"):
        given_to(a, name, 1)
    begin(a, cluster)
    moved(a, cluster)
    a.admin("queue-delete", name="second", force=True)
    a.crash()
    a.start()
    cluster.wait(3_000)
    given_to(a, "third", 2)
    cluster.wait(2_000)
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]["difference"]
    assert a.broker.store.queues["third"].kind.drains_as.endswith(".3")
    assert b.broker.store.queues["third"].message_count == 2


def test_another_heir_is_told_all_ids_too() -> None:
    cluster = ClusterStage()
    said: dict[str, Any] = {"options": LIMITS, "message_load_balancing": "OFF"}
    a, _, c = (cluster.node(name, [each for each in "abc" if each != name], **said) for name in "abc")
    cluster.run()
    cluster.wait(600)
    filled(a, 1, cluster).publish(b"x", **with_id("once"))
    begin(a, cluster)
    cluster.wait(3_000)
    a.admin("scale-down-cancel")
    cluster.wait(3_000)
    assert shown(a)["state"] == "none"
    a.ask("scale-down", node="c")
    cluster.wait(3_000)
    Producer(c).publish(b"again", **with_id("once"))
    assert count_at(c) == 0


def test_whoever_was_held_back_is_read_again_when_it_is_called_off() -> None:
    cluster, a, _ = that_say_where()
    producer = filled(a, 1, cluster)
    begin(a, cluster)
    cluster.wait(500)
    producer.publish(b"late", **with_id("late"))
    cluster.hold_up("a", "b")
    cluster.wait(700)
    assert a.paused[producer.talker.conn]
    a.admin("scale-down-cancel")
    assert not a.paused[producer.talker.conn]


def test_what_was_taken_in_is_answered_before_its_client_is_sent_away() -> None:
    cluster, a, _ = that_say_where()
    producer = filled(a, 1, cluster)
    begin(a, cluster)
    cluster.wait(500)
    answered_before_it_is_sent_away(cluster, a, producer)


def test_what_drained_by_hand_before_drains_on_when_it_is_called_off() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    given_to(a, "other", 1)
    drain(a, cluster)
    begin(a, cluster, force=True)
    cluster.wait(3_000)
    a.admin("scale-down-cancel")
    cluster.wait(3_000)
    assert shown(a)["state"] == "none"
    assert [(row["queue"], row["state"]) for row in a.admin("drain-show")["drains"]] == [("orders", "is drained")]
    filled(a, 1, cluster)
    assert (count_at(a), read_at(b, cluster).bodies) == (0, [*bodies(5), *bodies(1)])


def test_a_drained_queue_stays_while_its_target_is_away() -> None:
    cluster, a, b = pair()
    producer = filled(a, 5, cluster)
    drain(a, cluster)
    a.drop(producer.talker)
    b.crash()
    cluster.wait(120_000)
    assert a.broker.store.queues["orders"].kind.is_draining


def test_what_came_since_is_told_where_sums_have_gone_round() -> None:
    earlier = IdDigest(1, (1 << 64) - 3, (1 << 64) - 3)
    assert earlier.plus(7, 2).since(earlier) == NO_IDS.plus(7, 2)


def that_cannot_move(node: ClusterNode) -> None:
    node.admin("queue-create", name="latest", durable=False)
    node.admin("send", address="latest", messages=[{"body": "x", "durable": True}])


def test_what_cannot_move_may_stay_by_force_that_is_said_later() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    begin(a, cluster)
    moved(a, cluster)
    that_cannot_move(a)
    cluster.wait(5_000)
    assert (shown(a)["state"], begin(a, cluster)["state"]) == ("failed", "failed")
    begin(a, cluster, force=True, dry_run=True)
    assert shown(a)["state"] == "failed"
    b.crash()
    cluster.wait(1_000)
    assert begin(a, cluster, force=True)["hindrances"] != [], "nor does it need a link"
    a.crash()
    a.start()
    b.start()
    said = moved(a, cluster)
    assert (said["moved"], said["receipt"]["balances"], count_at(b)) == (5, True, 5)
    that_cannot_move(a)
    cluster.wait(5_000)
    assert [row["name"] for row in shown(a)["hindrances"]] == ["latest"]
    assert begin(a, cluster, force=True)["state"] == "moved", "again it changes nothing"


def test_who_goes_on_to_another_node_by_force_leaves_what_cannot_move() -> None:
    cluster = ClusterStage()
    said: dict[str, Any] = {"options": LIMITS, "message_load_balancing": "OFF"}
    a, *_ = (cluster.node(name, [each for each in "abc" if each != name], **said) for name in "abc")
    cluster.run()
    cluster.wait(600)
    filled(a, 5, cluster)
    begin(a, cluster)
    moved(a, cluster)
    that_cannot_move(a)
    cluster.wait(5_000)
    assert shown(a)["state"] == "failed"
    a.admin("scale-down", node="c", force=True)
    cluster.wait(5_000)
    assert (shown(a)["state"], shown(a)["node"], shown(a)["left"]) == ("moved", "c", 1)


@pytest.mark.parametrize(("own", "is_named"), [("east", True), ("west", False), ("", False)])
def test_a_node_of_another_group_takes_what_one_has_only_by_force(own: str, *, is_named: bool) -> None:
    cluster = ClusterStage()
    for name, group in {"a": own, "b": own, "c": "west"}.items():
        others = [each for each in "abc" if each != name]
        options = {**LIMITS, "scale_down": {"group_name": group}}
        cluster.node(name, others, options=options, message_load_balancing="OFF")
    a = cluster.nodes["a"]
    cluster.run()
    cluster.wait(600)
    filled(a, 5, cluster)
    members = {row["node"]: row["scale_down_group"] for row in a.admin("topology")["members"]}
    assert members == {"a": own, "b": own, "c": "west"}
    assert begin(a, cluster, dry_run=True)["hindrances"] == []
    why = f"is of scale-down group 'west', and this node of {own!r}"
    hindrances = a.admin("scale-down", node="c", dry_run=True)["hindrances"]
    assert [row["why"] for row in hindrances if row["kind"] == "node"] == ([why] if is_named else [])
    if is_named:
        refused = a.ask("scale-down", node="c")
        cluster.run()
        assert a.replies[refused].error["description"].endswith(f"{why}; with force it begins all the same")
    begin(a, cluster)
    moved(a, cluster)
    turned = a.ask("scale-down", node="c")
    cluster.run()
    assert (why in str(a.replies[turned].error)) is is_named
    a.admin("scale-down", node="c", force=True)
    said = moved(a, cluster)
    assert (said["node"], said["hindrances"]) == ("c", [])
