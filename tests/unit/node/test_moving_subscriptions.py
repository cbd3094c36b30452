"""A node leaves that has durable subscriptions: they are at its heir with all that waited, each copy once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp.events import Detached
from mqbroker.config.declarations.options import BrokerFile, to_slices
from mqbroker.core.cluster.drains import COME_PREFIX
from mqbroker.wire.performatives import Attach, Target
from mqbroker.wire.types import Described, Symbol

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer
from tests.unit.core.cluster.test_drains import LIMITS, bodies, pair
from tests.unit.node.test_scale_down import begin, moved, shown

DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never"), "capabilities": (Symbol("topic"),)}
SHARED = (Symbol("topic"), Symbol("shared"), Symbol("global"))
RED = {Symbol("colour"): Described(Symbol("apache.org:selector-filter:string"), "colour = 'red'")}
Four = tuple[ClusterStage, ClusterNode, ClusterNode, ClusterNode]
ASKS = Attach(name="news", handle=0, role=True, source=None, target=Target())


def subscribe(node: ClusterNode, name: str = "news", credit: int = 0, **said: Any) -> Consumer:
    source = {**DURABLE, **said.pop("source", {})}
    consumer = Consumer(node, name, said.pop("address", "topic"), credit, source=source, **said)
    node.cluster.run()
    return consumer


def is_told(consumer: Consumer) -> str:
    """The condition with which its link ended, empty where it stands."""
    ends = [event for event in consumer.talker.events if isinstance(event, Detached)]
    return str(ends[-1].error.condition) if ends and ends[-1].error is not None else ""


def left_behind(node: ClusterNode, name: str = "news", **said: Any) -> None:
    """A subscription whose subscriber is away."""
    consumer = subscribe(node, name, **said)
    assert not is_told(consumer)
    consumer.talker.connection.close()
    node.cluster.run()


def published(node: ClusterNode, count: int, first: int = 0, **said: Any) -> None:
    producer = Producer(node, f"publisher {first}", "topic")
    for body in bodies(count, first):
        producer.send(body, **said)
    node.cluster.run()
    assert len(producer.outcomes) == count


def waits(node: ClusterNode, name: str = "news.news") -> int:
    queue = node.broker.store.queues.get(name)
    return -1 if queue is None else queue.message_count


def three(mode: str = "ON_DEMAND") -> tuple[ClusterStage, ClusterNode, ClusterNode, ClusterNode]:
    cluster = ClusterStage()
    names = ("a", "b", "c")
    said: dict[str, Any] = {"options": LIMITS, "message_load_balancing": mode}
    a, b, c = (cluster.node(name, [each for each in names if each != name], **said) for name in names)
    cluster.run()
    cluster.wait(600)
    return cluster, a, b, c


def test_what_waited_is_there_in_order_with_the_terms_of_the_subscription() -> None:
    cluster, a, b = pair()
    left_behind(a)
    left_behind(a, "shared", source={"capabilities": SHARED})
    left_behind(a, "picky", filter=RED)
    published(a, 100, application_properties={"colour": "red"})
    published(a, 100, 100)
    before = {name: queue.kind.attributes() | {"maker": ""} for name, queue in a.broker.store.queues.items()}
    begin(a, cluster)
    said = moved(a, cluster)
    assert said["receipt"]["balances"], said["receipt"]
    assert {row["queue"]: row["moved"] for row in said["receipt"]["queues"]} == {
        "news.news": 200, "picky.picky": 100, "shared:global": 200,
    }  # fmt: skip
    there = {name: queue.kind.attributes() | {"maker": ""} for name, queue in b.broker.store.queues.items()}
    assert there == before
    assert subscribe(b, credit=500).bodies == bodies(200)
    assert subscribe(b, "picky", 500, filter=RED).bodies == bodies(100)
    assert subscribe(b, "shared", 500, source={"capabilities": SHARED}).bodies == bodies(200)
    assert waits(a) == 0


def test_who_comes_to_the_heir_too_early_is_refused_and_makes_nothing() -> None:
    cluster, a, b = pair()
    left_behind(a)
    published(a, 100)
    begin(a, cluster)
    early = subscribe(b, credit=500)
    assert (is_told(early), waits(b)) == ("amqp:resource-locked", -1), "its queue does not drain yet"
    asking = b.connect("news")
    assert asking.session is not None
    link = asking.session.attach_receiver(ASKS)
    cluster.run()
    ends = [event for event in asking.events if isinstance(event, Detached) and event.link is link]
    assert [str(each.error.condition) for each in ends] == ["amqp:resource-locked"], "it cannot be ended yet"
    assert subscribe(b, "other").bodies == [], "one of another name may begin"
    cluster.hold_up("a", "b")
    cluster.wait(1_600)
    assert waits(a) == 100
    cluster.let_through("a", "b")
    moved(a, cluster)
    assert subscribe(b, credit=500).bodies == bodies(100)


def test_what_a_third_node_publishes_comes_once_all_the_while() -> None:
    cluster, a, b, c = three()
    left_behind(a)
    published(c, 50)
    cluster.wait(100)
    begin(a, cluster)
    for first in range(50, 150, 10):
        published(c, 10, first)
        published(b, 10, first + 1_000)
        cluster.wait(300)
    moved(a, cluster)
    found = subscribe(b, credit=500).bodies
    assert sorted(found) == sorted([*bodies(150), *bodies(100, 1_050)])
    assert found[:50] == bodies(50), "what waited there comes first"


def test_nobody_is_served_before_all_that_waited_is_there() -> None:
    cluster, a, b = pair(confirmation_window_size=2_000)
    left_behind(a)
    published(a, 200)
    begin(a, cluster)
    cluster.wait(500)
    b.is_disk_held = True  # so nothing of it is answered
    cluster.wait(1_100)
    assert min(waits(a), waits(b)) > 0
    assert is_told(subscribe(b, credit=500)) == "amqp:resource-locked"
    b.is_disk_held = False
    moved(a, cluster)
    assert subscribe(b, credit=500).bodies == bodies(200)


def test_others_send_nothing_to_a_node_that_leaves_where_another_has_the_queue() -> None:
    cluster, a, b, c = three("STRICT")
    for node in (a, b, c):
        node.admin("queue-create", name="orders")
    cluster.run()
    begin(a, cluster)
    producer = Producer(c)
    for body in bodies(10):
        producer.publish(body)
        cluster.run()
    assert [waits(node, "orders") for node in (a, b, c)] == [0, 5, 5], "it is told before its queues drain"
    a.admin("scale-down-cancel")
    cluster.wait(2_000)
    for body in bodies(10):
        producer.publish(body)
        cluster.run()
    assert waits(a, "orders") in (3, 4)


def test_copies_owed_to_a_node_that_is_given_up_are_anothers_of_the_same_subscription() -> None:
    cluster, a, b, c = three()
    left_behind(a)
    cluster.hold_up("a", "c")
    published(c, 7)
    a.crash()
    cluster.let_through("a", "c")
    left_behind(b)
    assert c.admin("cluster-forget", node_id=node_id_of("a")) is not None
    cluster.wait(3_000)
    assert subscribe(b, credit=50).bodies == bodies(7)


@pytest.mark.parametrize("count", [0, 3])
def test_a_subscription_of_that_name_with_other_terms_hinders(count: int) -> None:
    cluster, a, b = pair()
    left_behind(a)
    published(a, count)
    left_behind(b, filter=RED)
    begin(a, cluster, force=True)
    cluster.wait(10_000)  # it is asked again and again
    said = shown(a)
    assert said["state"] == "failed"
    assert [row["name"] for row in said["hindrances"]] == ["news.news"]
    assert "selector is" in said["hindrances"][0]["why"]
    assert waits(a) == count


def test_both_nodes_may_die_half_way() -> None:
    cluster, a, b = pair(confirmation_window_size=2_000)
    left_behind(a)
    published(a, 200)
    begin(a, cluster)
    for node in (a, b, a):
        cluster.wait(1_100)
        node.crash()
        node.start()
        cluster.run()
        cluster.wait(200)
        assert b.broker.store.remotes.awaited.leaving == {node_id_of("a"): node_id_of("b")}
    assert moved(a, cluster)["receipt"]["balances"]
    assert subscribe(b, credit=500).bodies == bodies(200)


def test_called_off_it_is_served_where_it_was_and_who_leaves_is_asked_no_more() -> None:
    cluster, a, b = pair()
    left_behind(a)
    published(a, 10)
    cluster.hold_up("a", "b")
    begin(a, cluster)
    cluster.wait(1_600)
    a.admin("scale-down-cancel")
    cluster.let_through("a", "b")
    cluster.wait(5_000)
    assert shown(a)["state"] == "none"
    here = subscribe(a, credit=50).bodies
    there = subscribe(b, credit=50)
    assert is_told(there) == ""
    assert sorted([*here, *there.bodies]) == bodies(10)


def test_the_heir_is_told_that_all_is_there_also_where_nothing_durable_went_last() -> None:
    cluster, a, b = pair()
    left_behind(a)
    published(a, 10, durable=False)
    begin(a, cluster)
    moved(a, cluster)
    assert (waits(a), waits(b)) == (0, 10)
    there = subscribe(b, credit=50)
    assert (is_told(there), there.bodies) == ("", bodies(10))


def test_copies_that_are_handed_on_are_those_that_the_other_subscription_takes() -> None:
    cluster, a, b, c = three()
    left_behind(a)
    cluster.hold_up("a", "c")
    published(c, 7)
    published(c, 3, 7, application_properties={"colour": "red"})
    a.crash()
    cluster.let_through("a", "c")
    left_behind(b, filter=RED)
    c.admin("cluster-forget", node_id=node_id_of("a"))
    cluster.wait(3_000)
    assert subscribe(b, credit=50, filter=RED).bodies == bodies(3, 7)


def in_a_row() -> tuple[ClusterStage, ClusterNode, ClusterNode, ClusterNode, ClusterNode]:
    """Of a, b and c only d is a neighbour of all; a and b are of each other."""
    cluster = ClusterStage()
    said: dict[str, Any] = {"options": LIMITS, "message_load_balancing": "ON_DEMAND", "max_hops": 2}
    for one, other in (("c", "a"), ("c", "b")):
        cluster.held_up.add(frozenset((one, other)))
    rows = {"c": ["d"], "d": ["a", "b", "c"], "a": ["d", "b"], "b": ["d", "a"]}
    a, b, c, d = (cluster.node(name, rows[name], **said) for name in "abcd")
    cluster.run()
    cluster.wait(3_000)
    return cluster, a, b, c, d


def test_copies_owed_beyond_a_neighbour_are_anothers_when_the_subscription_is_deleted() -> None:
    cluster, a, b, c, _ = in_a_row()
    left_behind(a)
    cluster.wait(500)
    cluster.hold_up("c", "d")
    published(c, 7)
    begin(a, cluster)
    moved(a, cluster)
    assert a.ask("queue-delete", name="news.news", force=True)
    cluster.run()
    cluster.wait(500)
    cluster.let_through("c", "d")
    cluster.wait(20_000)
    assert subscribe(b, credit=50).bodies == bodies(7)


def test_copies_owed_beyond_a_neighbour_are_anothers_when_their_node_is_forgotten() -> None:
    cluster, a, b, c, d = in_a_row()
    left_behind(a)
    cluster.wait(500)
    cluster.hold_up("c", "d")
    published(c, 7)
    begin(a, cluster)
    moved(a, cluster)
    a.crash()
    cluster.wait(1_000)
    for node in (b, d):
        node.admin("cluster-forget", node_id=node_id_of("a"))
    assert c.admin("cluster-forget", node_id=node_id_of("a"))["messages"] == 7
    cluster.let_through("c", "d")
    cluster.wait(60_000)
    assert subscribe(b, credit=50).bodies == bodies(7)


def test_of_two_subscriptions_in_one_route_neither_loses_its_copy_when_one_is_gone() -> None:
    cluster, a, b, c = three()
    left_behind(a, filter=RED)
    left_behind(a, "two")
    cluster.hold_up("a", "c")
    published(c, 3, application_properties={"colour": "red"})
    begin(a, cluster)
    moved(a, cluster)
    a.ask("queue-delete", name="news.news", force=True)
    cluster.run()
    cluster.let_through("a", "c")
    cluster.wait(10_000)
    assert (waits(b), waits(b, "two.two")) == (3, 3)


def test_nothing_goes_to_a_node_that_leaves_itself() -> None:
    cluster, a, _, c = three()
    left_behind(c)
    begin(a, cluster)
    cluster.wait(1_000)
    asked = {
        name: c.ask(name, node="a", **said)
        for name, said in (("scale-down", {}), ("drain-queue", {"queue": "news.news"}))
    }
    cluster.run()
    for request in asked.values():
        error = c.replies[request].error
        assert error is not None
        assert "leaves itself" in str(error)


def test_who_comes_too_early_is_refused_also_where_only_the_way_from_the_leaver_stands() -> None:
    cluster, a, b = pair(confirmation_window_size=2_000)
    left_behind(a)
    published(a, 200)
    begin(a, cluster)
    cluster.wait(500)
    b.is_disk_held = True
    cluster.wait(1_100)
    cluster.unreachable.add("a")
    for pipe in cluster.between("a", "b"):
        if pipe.ends[0][0] is b:
            cluster.cut(pipe)
    cluster.run()
    assert min(waits(a), waits(b)) > 0
    assert is_told(subscribe(b, credit=500)) == "amqp:resource-locked"
    b.is_disk_held = False
    moved(a, cluster)
    assert subscribe(b, credit=500).bodies == bodies(200)


def test_that_all_is_there_holds_no_longer_than_the_link_that_said_so() -> None:
    cluster, a, b = pair()
    left_behind(a)
    a.ask("drain-queue", queue="news.news", node="b")
    cluster.run()
    a.ask("drain-cancel", queue="news.news")
    cluster.run()
    cluster.wait(2_000)
    b.ask("queue-delete", name="news.news")
    cluster.run()
    published(a, 100)
    begin(a, cluster)
    assert is_told(subscribe(b, credit=500)) == "amqp:resource-locked"
    moved(a, cluster)
    assert subscribe(b, credit=500).bodies == bodies(100)


def ended(node: ClusterNode, name: str = "news") -> None:
    """Its subscriber closes it for good."""
    consumer = subscribe(node, name)
    consumer.link.detach()
    node.cluster.run()
    assert waits(node, f"{name}.{name}") == -1


def handed_over() -> tuple[ClusterStage, ClusterNode, ClusterNode, ClusterNode]:
    """To b, where all of it was read."""
    cluster, a, b, c = three()
    left_behind(a)
    published(a, 10)
    begin(a, cluster)
    moved(a, cluster)
    reader = subscribe(b, credit=50)
    assert reader.bodies == bodies(10)
    reader.talker.connection.close()
    cluster.run()
    return cluster, a, b, c


def parted(cluster: ClusterStage) -> None:
    """Links of a and b come anew."""
    for pipe in cluster.between("a", "b"):
        cluster.cut(pipe)
    cluster.wait(6_000)


def restarted(cluster: ClusterStage, node: ClusterNode) -> None:
    """One of them, and all is linked again."""
    node.crash()
    node.start()
    cluster.wait(6_000)


@pytest.mark.parametrize("how", ["messages", "link", "start of the leaver", "start of the heir"])
def test_a_subscription_that_was_ended_at_the_heir_is_over(how: str) -> None:
    cluster, a, b, c = handed_over()
    ended(b)
    if how == "messages":
        published(c, 5, 100)
        cluster.wait(6_000)
    elif how == "link":
        parted(cluster)
    else:
        restarted(cluster, a if how == "start of the leaver" else b)
    assert (waits(a), waits(b)) == (-1, -1)
    assert shown(a)["state"] == "moved"
    assert shown(a)["receipt"]["balances"]
    assert subscribe(b, credit=50).bodies == []


def drained_alone(count: int = 10) -> tuple[ClusterStage, ClusterNode, ClusterNode, ClusterNode]:
    """One subscription of a node that stays is at b, where all of it was read."""
    cluster, a, b, c = three("OFF")
    left_behind(a)
    for first in range(0, count, 10):
        published(a, 10, first)
    a.ask("drain-queue", queue="news.news", node="b")
    cluster.run()
    cluster.wait(2_000)
    assert (waits(a), waits(b)) == (0, count)
    reader = subscribe(b, credit=50)
    for number in range(count):
        reader.settle(number)
    reader.talker.connection.close()
    cluster.run()
    return cluster, a, b, c


@pytest.mark.parametrize("count", [0, 10])
@pytest.mark.parametrize("how", ["messages", "link", "start of the source", "start of the target"])
def test_a_subscription_that_drained_alone_and_was_ended_there_is_over(how: str, count: int) -> None:
    cluster, a, b, c = drained_alone(count)
    ended(b)
    if how == "messages":
        published(a, 5, 100)
        published(c, 5, 200)
        cluster.wait(6_000)
    elif how == "link":
        parted(cluster)
    else:
        restarted(cluster, a if how == "start of the source" else b)
    assert (waits(a), waits(b)) == (-1, -1), "neither stuck here, nor made there again and again"
    assert a.admin("drain-show")["drains"] == []
    published(c, 5, 300)
    cluster.wait(1_000)
    assert (waits(a), waits(b)) == (-1, -1)
    left_behind(a)
    a.crash()
    a.start()
    cluster.wait(1_000)
    assert waits(a) == 0, "a later one of that name is another"


def test_what_is_under_way_to_a_subscription_that_was_ended_before_all_had_come_is_not_lost() -> None:
    cluster, a, b, _ = three("OFF")
    left_behind(a)
    published(a, 10)
    a.ask("drain-queue", queue="news.news", node="b")
    cluster.hold_up("a", "b")
    cluster.run()
    cluster.wait(1_000)
    left_behind(b)
    ended(b)
    cluster.let_through("a", "b")
    cluster.wait(6_000)
    assert (waits(a), waits(b)) == (0, 10), "who ended it had not had what was still here"


@pytest.mark.parametrize("is_there", [False, True])
def test_that_all_had_come_of_a_queue_that_is_gone_or_serves_says_nothing_of_a_later_one(is_there: bool) -> None:
    cluster, a, _, _ = drained_alone()
    link = a.broker.store.queues["news.news"].kind.drains_as
    assert a.broker.store.remotes.drains.has_come(a.broker.store.queues["news.news"])
    a.crash()
    a.start()
    cluster.wait(1_000)
    assert a.broker.store.remotes.drains.has_come(a.broker.store.queues["news.news"])
    a.ask("queue-delete", name="news.news", force=True)
    cluster.run()
    assert waits(a) == -1
    if is_there:
        left_behind(a)
    a.broker.store.journal.duplicates.add(COME_PREFIX + "news.news", 1, link.encode(), 1)  # it was left over
    published(a, 1)
    a.crash()
    a.start()
    cluster.wait(1_000)
    if not is_there:
        left_behind(a)
    queue = a.broker.store.queues["news.news"]
    a.broker.store.remotes.begin_drain(queue, "cluster", node_id_of("b"), link)  # numbers of links begin anew
    assert not a.broker.store.remotes.drains.has_come(queue)


def declares(node: ClusterNode) -> None:
    """An operator's file has it with another filter, from this start on."""
    queue = {"name": "news.news", "filter": "colour = 'red'"}
    said = to_slices(BrokerFile.model_validate({"addresses": [{"name": "topic", "multicast": [queue]}]}))
    node.crash()
    node.options = replace(node.options, addresses=said.addresses)
    node.start()


@pytest.mark.parametrize("begun", [drained_alone, handed_over])
def test_what_an_operator_declares_on_other_terms_ends_no_subscription(begun: Callable[[], Four]) -> None:
    cluster, a, b, c = begun()
    cluster.hold_up("a", "b")
    published(c if begun is handed_over else a, 7, 500)
    cluster.wait(1_000)
    before = waits(a)
    declares(b)
    cluster.let_through("a", "b")
    cluster.wait(8_000)
    assert b.broker.store.queues["news.news"].kind.configured
    assert waits(a) == before, "nobody has ended it"
    if begun is drained_alone:
        assert before == 7
        assert ["selector is" in fields["why"] for fields in a.events("drain-stuck")][-1:] == [True]
    assert a.events("subscription-ended-elsewhere") == []


def test_what_goes_with_a_subscription_that_was_ended_elsewhere_is_counted_in_the_log() -> None:
    cluster, a, b, _ = drained_alone()
    cluster.hold_up("a", "b")
    published(a, 7, 500)
    ended(b)
    cluster.let_through("a", "b")
    cluster.wait(8_000)
    assert waits(a) == -1
    assert [(each["queue"], each["messages"]) for each in a.events("subscription-ended-elsewhere")] == [
        ("news.news", 7)
    ]


@pytest.mark.parametrize("said", [{"filter": RED}, {"address": "other"}])
def test_a_subscription_that_was_changed_at_the_heir_gets_what_it_asks_for_alone(said: dict[str, Any]) -> None:
    cluster, a, b, c = handed_over()
    left_behind(b, **said)
    published(c, 5, 100)
    cluster.wait(1_000)
    parted(cluster)
    published(c, 5, 200)
    published(c, 5, 300, application_properties={"colour": "red"})
    cluster.wait(6_000)
    assert (waits(a), shown(a)["state"], shown(a)["hindrances"]) == (-1, "moved", [])
    assert subscribe(b, credit=50, **said).bodies == (bodies(5, 300) if "filter" in said else [])


def test_a_subscription_that_came_empty_may_be_ended_at_the_heir() -> None:
    cluster, a, b = pair()
    left_behind(a)
    begin(a, cluster)
    moved(a, cluster)
    ended(b)
    for node in (b, a):
        node.crash()
        node.start()
        cluster.wait(6_000)
    assert (waits(a), waits(b)) == (-1, -1)


def test_a_subscription_whose_heir_lost_it_in_a_crash_is_made_again() -> None:
    cluster, a, b = pair()
    left_behind(a)
    begin(a, cluster)
    cluster.wait(900)
    b.is_disk_held = True
    cluster.wait(3_000)
    b.crash()
    b.is_disk_held = False
    b.start()
    moved(a, cluster)
    assert waits(b) == 0


def test_an_heir_keeps_nobody_out_of_what_is_never_handed_over() -> None:
    cluster, a, b = pair()
    volatile = {"durable": 0, "expiry_policy": None, "capabilities": SHARED}
    subscribe(a, "volatile", source=volatile)
    left_behind(a)
    published(a, 3)
    left_behind(b, filter=RED)
    begin(a, cluster, force=True)
    assert is_told(subscribe(b, "volatile", source=volatile)) == ""
    cluster.wait(5_000)
    assert shown(a)["state"] == "failed"
    assert is_told(subscribe(b, credit=5, filter=RED)) == ""
