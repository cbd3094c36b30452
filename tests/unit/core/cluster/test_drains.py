"""A queue drains to its namesake at another node: nothing is lost, nothing comes twice, and order stays."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from mqbroker.admin import moves
from mqbroker.amqp import events as told
from mqbroker.node.cluster.forwarding.forwarding_terms import OLDER
from mqbroker.node.cluster.membership import arrival_links
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Modified
from mqbroker.wire.sections import Header, Properties

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import BIG, Consumer, Producer, content, header_of
from tests.unit.node.test_reloads_by_turns import declaring

LIMITS: dict[str, Any] = {"limits": {"link_credit": 100_000}}


def pair(**changes: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """Two nodes that know each other; consumers do not draw messages over."""
    cluster = ClusterStage()
    said = {"options": LIMITS, "message_load_balancing": "OFF", **changes}
    a, b = cluster.node("a", ["b"], **said), cluster.node("b", ["a"], **said)
    cluster.run()
    cluster.wait(600)
    return cluster, a, b


def pair_of_which_b_takes_less() -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """As a pair, but the second one takes no messages above 20,000 bytes."""
    cluster = ClusterStage()
    a = cluster.node("a", ["b"], options=LIMITS, message_load_balancing="OFF")
    low: dict[str, Any] = {"limits": {"link_credit": 100, "max_message_size_bytes": 20_000}}
    b = cluster.node("b", ["a"], options=low, message_load_balancing="OFF")
    cluster.run()
    cluster.wait(600)
    return cluster, a, b


def filled(a: ClusterNode, count: int, cluster: ClusterStage, **said: Any) -> Producer:
    producer = Producer(a)
    for number in range(count):
        producer.send(b"%05d" % number, **said)
    cluster.run()
    assert len(producer.outcomes) == count
    return producer


def drain(a: ClusterNode, cluster: ClusterStage, to: str = "b") -> Any:
    request = a.ask("drain-queue", queue="orders", node=to)
    cluster.run()
    reply = a.replies[request]
    return reply.error if reply.error is not None else reply.result


def begun_in_vain(count: int) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """A drain of so many messages of which nothing gets to the other node, until it is let through."""
    cluster, a, b = pair()
    filled(a, count, cluster)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    return cluster, a, b


def count_at(node: ClusterNode) -> int:
    queue = node.broker.store.queues.get("orders")
    return 0 if queue is None else queue.message_count


def row_of(a: ClusterNode) -> Any:
    (row,) = a.admin("drain-show")["drains"]
    return row


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [b"%05d" % number for number in range(first, first + count)]


def read_at(node: ClusterNode, cluster: ClusterStage, credit: int = 5_000) -> Consumer:
    consumer = Consumer(node, "reader", credit=credit)
    cluster.run()
    return consumer


def test_all_go_in_order_to_a_queue_that_is_made_there_and_stays_after_a_restart() -> None:
    cluster, a, b = pair()
    filled(a, 300, cluster)
    row = drain(a, cluster)
    assert (row["state"], row["left"], row["node_id"]) == ("drains", 300, node_id_of("b"))
    assert (count_at(a), count_at(b)) == (0, 300)
    row = row_of(a)
    assert (row["state"], row["moved"], row["left"], row["why"]) == ("is drained", 300, 0, None)
    runs = {id(segment.run): segment.run.count for segment in b.broker.store.queues["orders"].backlog}
    assert min(runs.values()) >= 100, "runs stay runs on the link"
    b.crash()
    b.start()
    cluster.wait(3_000)
    assert read_at(b, cluster).bodies == bodies(300)


def test_it_goes_behind_what_the_target_has_and_with_what_comes_later() -> None:
    cluster, a, b = pair()
    there = Producer(b)
    there.publish(b"there")
    producer = filled(a, 10, cluster)
    drain(a, cluster)
    producer.publish(b"00010")
    cluster.run()
    assert count_at(a) == 0
    assert read_at(b, cluster).bodies == [b"there", *bodies(11)]
    assert len(producer.outcomes) == 11


def test_the_queue_there_has_the_attributes_of_this_one_and_pauses_too() -> None:
    cluster, a, b = pair()
    a.admin("queue-create", name="orders", max_consumers=3, group_first_key="first", paused=True)
    filled(a, 5, cluster)
    drain(a, cluster)
    made = b.broker.store.queues["orders"]
    assert (made.kind.max_consumers, made.kind.group_first_key, made.is_paused) == (3, "first", True)
    assert not made.kind.is_draining
    assert (count_at(a), count_at(b)) == (0, 5)


def test_what_is_paged_goes_too_also_where_the_queue_is_paused() -> None:
    small: dict[str, Any] = {"limits": {"link_credit": 100_000, "global_max_size_bytes": 20_000}}
    cluster, a, b = pair(options=small)
    a.admin("queue-create", name="orders", paused=True)
    producer = Producer(a)
    for number in range(500):
        producer.publish(b"%05d" % number)
    assert a.broker.store.queues["orders"].paged_count
    drain(a, cluster)
    cluster.wait(1_000)
    assert (count_at(a), count_at(b)) == (0, 500)
    b.admin("queue-resume", name="orders")
    reader = Consumer(b, "reader", credit=5_000)
    for _ in range(20):
        cluster.wait(100)
        for number in range(len(reader.bodies)):
            reader.settle(number)
        if len(reader.bodies) == 500:
            break
    assert reader.bodies == bodies(500)


def test_what_was_sent_later_and_goes_another_way_does_not_overtake() -> None:
    cluster, a, b = pair(message_load_balancing="ON_DEMAND", confirmation_window_size=2_000)
    producer = filled(a, 300, cluster)
    reader = read_at(b, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    for number in range(300, 320):
        producer.send(b"%05d" % number)
    cluster.run()
    assert sum(each.message_count for each in a.broker.store.remotes.queues_of(node_id_of("b"))) == 20
    b.is_disk_held = False
    cluster.run()
    assert reader.bodies == bodies(320)


def test_ids_are_said_although_the_connection_does_without_them() -> None:
    cluster, a, b = pair(use_duplicate_detection=False)
    filled(a, 50, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    assert b.broker.store.arrivals.arrived_total == 50
    handed_over = a.broker.store.queues["orders"].handed_over
    assert handed_over is not None
    assert handed_over.ids.count == 50
    cluster.cut_all(a)
    cluster.run()
    b.is_disk_held = False
    cluster.wait(3_000)
    assert b.broker.store.arrivals.dropped_total == 50
    assert (count_at(a), count_at(b)) == (0, 50)


def test_what_is_larger_than_the_target_takes_stays_and_is_told() -> None:
    cluster, a, b = pair_of_which_b_takes_less()
    producer = Producer(a)
    producer.publish(content(1))
    cluster.run()
    drain(a, cluster)
    assert "takes messages of at most 20000 bytes" in row_of(a)["why"]
    assert (count_at(a), count_at(b)) == (1, 0)
    a.admin("drain-cancel", queue="orders")
    cluster.run()
    assert a.admin("drain-show")["drains"] == []
    assert read_at(a, cluster).bodies == [content(1)]


def test_who_wants_it_gone_deletes_it_when_it_is_drained() -> None:
    cluster, a, b = begun_in_vain(5)
    assert "store-and-forward" in a.admin("queue-delete", name="orders", force=True)["description"]
    cluster.let_through("a", "b")
    cluster.run()
    assert a.admin("queue-delete", name="orders", force=True)["messages"] == 0
    assert a.admin("drain-show")["drains"] == []
    assert count_at(b) == 5
    a.crash()
    a.start()
    assert "orders" not in a.broker.store.queues


def test_unsettled_deliveries_return_first_in_their_place_and_consumers_are_told() -> None:
    cluster, a, b = pair()
    filled(a, 6, cluster)
    consumer = Consumer(a, credit=3)
    cluster.run()
    consumer.settle(1)
    drain(a, cluster)
    (gone,) = [event for event in consumer.talker.events if isinstance(event, told.Detached)]
    assert gone.error is not None
    assert str(gone.error.condition) == "amqp:resource-locked"
    late = Consumer(a, "late")
    (gone,) = [event for event in late.talker.events if isinstance(event, told.Detached)]
    assert gone.error is not None
    assert str(gone.error.condition) == "amqp:resource-locked"
    reader = read_at(b, cluster)
    assert reader.bodies == [b"00000", *bodies(4, 2)]
    assert [header_of(event).delivery_count for event in reader.incoming] == [1] * 2 + [0] * (len(reader.incoming) - 2)


def test_what_a_message_says_goes_with_it() -> None:
    cluster, a, b = pair()
    producer = Producer(a)
    producer.publish(b"low", header=Header(durable=True, priority=1))
    producer.publish(b"high", header=Header(durable=True, priority=9))
    producer.publish(b"brief", header=Header(durable=True, ttl=60_000))
    producer.publish(b"grouped", properties=Properties(group_id="g"))
    producer.publish(content(1), header=Header(durable=True))
    cluster.run()
    drain(a, cluster)
    assert (count_at(a), count_at(b)) == (0, 5)
    reader = read_at(b, cluster)
    assert reader.bodies[0] == b"high"
    assert sorted(map(len, reader.bodies)) == sorted([3, 4, 5, 7, BIG])
    assert len(reader.bodies) == 5
    expiring = [header_of(event).ttl for event in reader.incoming if header_of(event).ttl]
    assert len(expiring) == 1
    assert 0 < expiring[0] <= 60_000


def test_counts_of_deliveries_go_with_messages() -> None:
    cluster, a, b = pair()
    filled(a, 1, cluster)
    consumer = Consumer(a, credit=1)
    consumer.settle(0, Modified(delivery_failed=True))
    consumer.link.detach()
    cluster.run()
    drain(a, cluster)
    reader = read_at(b, cluster)
    assert header_of(reader.incoming[0]).delivery_count == 1


@pytest.mark.parametrize("is_target", [False, True])
def test_a_crash_while_much_is_unanswered_loses_and_doubles_nothing(is_target: bool) -> None:
    cluster, a, b = pair(confirmation_window_size=20_000)
    count = 600
    filled(a, count, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    went = b.broker.store.arrivals.arrived_total
    assert 100 < went < count
    dies = b if is_target else a
    dies.crash()
    cluster.run()
    b.is_disk_held = False
    dies.start()
    cluster.wait(3_000)
    assert (count_at(a), count_at(b)) == (0, count)
    if not is_target:
        assert b.broker.store.arrivals.dropped_total == went
    b.crash()
    b.start()
    cluster.wait(3_000)
    assert count_at(b) == count
    assert read_at(b, cluster, 100_000).bodies == bodies(count)


def test_the_target_has_taken_all_and_the_source_does_not_know() -> None:
    cluster, a, b = pair()
    filled(a, 50, cluster)
    a.is_disk_held = True
    a.ask("drain-queue", queue="orders", node="b")
    cluster.run()
    assert count_at(b) == 0, "nothing leaves before the journal says that it drains"
    a.is_disk_held = False
    cluster.silence(b, is_deaf=False)  # its answers are lost
    cluster.run()
    cluster.cut_all(a)
    cluster.wait(3_000)
    a.crash()
    a.start()
    cluster.wait(3_000)
    assert (count_at(a), count_at(b)) == (0, 50)
    assert read_at(b, cluster).bodies == bodies(50)


def test_marks_that_are_forgotten_are_the_same_after_a_restart() -> None:
    """Messages of starts long before are known at the target by one mark, whichever start sends them."""
    cluster, a, b = pair()
    filled(a, 20, cluster)
    for _ in range(3):
        a.crash()
        a.start()
        cluster.wait(3_000)
    assert a.broker.store.remotes.marks._firsts[0] > 1
    b.is_disk_held = True
    drain(a, cluster)
    assert b.broker.store.arrivals.arrived_total == 20
    a.crash()
    cluster.run()
    b.is_disk_held = False
    a.start()
    cluster.wait(3_000)
    assert b.broker.store.arrivals.dropped_total == 20
    assert (count_at(a), count_at(b)) == (0, 20)


def test_called_off_before_anything_went_it_is_served_here() -> None:
    cluster, a, b = begun_in_vain(5)
    a.admin("drain-cancel", queue="orders")
    cluster.let_through("a", "b")
    cluster.run()
    assert a.admin("drain-show")["drains"] == []
    assert (count_at(a), count_at(b)) == (5, 0)
    assert read_at(a, cluster).bodies == bodies(5)


def test_called_off_it_waits_for_what_is_unanswered() -> None:
    cluster, a, b = pair(confirmation_window_size=200)
    filled(a, 200, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    went = b.broker.store.arrivals.arrived_total
    assert 0 < went < 200
    assert a.admin("drain-cancel", queue="orders")["state"] == "ends"
    late = Consumer(a, "late")
    assert late.incoming == []
    b.is_disk_held = False
    cluster.run()
    cluster.wait(100)
    assert a.admin("drain-show")["drains"] == []
    assert (count_at(a), count_at(b)) == (200 - went, went)
    assert read_at(a, cluster).bodies == bodies(200 - went, went)
    assert not b.broker.store.arrivals._keys, "the target has nothing to remember"
    a.crash()
    a.start()
    cluster.wait(3_000)
    assert not a.broker.store.queues["orders"].kind.is_draining


@pytest.mark.parametrize("kind", [{}, {"non_destructive": True}, {"ring_size": 10}])
def test_called_off_its_link_is_closed_for_good_only_once_it_is_on_disk_what_went(kind: dict[str, Any]) -> None:
    cluster, a, b = pair()
    a.admin("queue-create", name="orders", **kind)
    filled(a, 3, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    a.is_disk_held, b.is_disk_held = True, False
    cluster.run()
    request = a.ask("drain-cancel", queue="orders")
    cluster.run()
    assert a.broker.store.queues["orders"].kind.is_draining
    assert b.broker.store.arrivals._keys, "what comes again is known"
    a.crash()
    a.is_disk_held = False
    a.start()
    cluster.wait(5_000)
    assert request not in a.replies
    assert (count_at(a), count_at(b)) == (0, 3)


def test_called_off_over_a_lost_link_it_ends_when_the_target_has_answered() -> None:
    cluster, a, b = pair(confirmation_window_size=200)
    filled(a, 200, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    went = b.broker.store.arrivals.arrived_total
    b.crash()
    cluster.run()
    assert a.admin("drain-cancel", queue="orders")["state"] == "ends"
    assert a.admin("drain-cancel", queue="orders")["state"] == "ends", "said twice"
    assert row_of(a)["state"] == "ends"
    b.is_disk_held = False
    b.start()
    cluster.wait(3_000)
    assert a.admin("drain-show")["drains"] == []
    assert (count_at(a), count_at(b)) == (200 - went, went)


def test_called_off_by_force_it_is_served_at_once() -> None:
    cluster, a, b = pair(confirmation_window_size=200)
    filled(a, 200, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    a.admin("drain-cancel", queue="orders", force=True)
    cluster.run()
    assert a.admin("drain-show")["drains"] == []
    assert read_at(a, cluster).bodies == bodies(200)


def test_what_is_new_stays_where_a_drain_was_called_off_after_a_restart() -> None:
    cluster, a, b = pair()
    filled(a, 20, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    b.crash()
    a.crash()
    a.start()
    producer = Producer(a)
    producer.publish(b"new", header=Header(durable=True, priority=9))
    a.admin("drain-cancel", queue="orders")
    b.is_disk_held = False
    b.start()
    cluster.wait(4_000)
    assert a.admin("drain-show")["drains"] == []
    assert (count_at(a), count_at(b)) == (1, 20)


def test_called_off_and_empty_at_a_start_it_ends_with_the_link() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    b.crash()
    cluster.run()
    a.admin("drain-cancel", queue="orders")
    assert a.admin("queue-purge", name="orders", store_and_forward=True)["purged"] == 5
    a.crash()
    a.start()
    assert row_of(a)["state"] == "ends"
    b.is_disk_held = False
    b.start()
    cluster.wait(3_000)
    assert a.admin("drain-show")["drains"] == []


def test_consumers_elsewhere_draw_nothing_of_it_and_get_what_is_new() -> None:
    cluster = ClusterStage()
    settings: dict[str, Any] = {"options": LIMITS | {"address_settings": {"#": {"redistribution_delay": 0}}}}
    a, b, c = (cluster.node(each, [*{"a", "b", "c"} - {each}], **settings) for each in "abc")
    cluster.run()
    cluster.wait(600)
    producer = filled(a, 50, cluster)
    b.is_disk_held = True
    drain(a, cluster)
    reader = Consumer(c, "reader", credit=1_000)
    cluster.run()
    for number in range(50, 60):
        producer.publish(b"%05d" % number)
    cluster.run()
    assert reader.bodies == bodies(10, 50)
    b.crash()
    cluster.run()
    cluster.wait(100)
    assert count_at(a) == 50, "b may have them"
    assert len(reader.bodies) == 10


def test_two_nodes_do_not_drain_a_queue_to_each_other() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    filled(b, 5, cluster)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    drain(b, cluster, "a")
    cluster.let_through("a", "b")
    cluster.wait(2_000)
    assert (count_at(a), count_at(b)) == (5, 5)
    assert "drains itself" in row_of(a)["why"]
    b.admin("drain-cancel", queue="orders")
    cluster.wait(2_000)
    assert (count_at(a), count_at(b)) == (0, 10)
    assert row_of(a)["why"] is None


def test_the_queue_is_deleted_there_meanwhile() -> None:
    cluster, a, b = pair()
    producer = filled(a, 5, cluster)
    drain(a, cluster)
    b.admin("queue-delete", name="orders")
    producer.publish(b"00005")
    cluster.wait(2_000)
    assert (count_at(a), count_at(b)) == (0, 1)


def test_a_target_that_may_not_have_the_queue_is_told_of_and_the_messages_stay() -> None:
    cluster, a, b = pair()
    b.admin("queue-create", name="orders", address="elsewhere")
    filled(a, 5, cluster)
    drain(a, cluster)
    assert "address is 'elsewhere' here" in row_of(a)["why"]
    assert (count_at(a), count_at(b)) == (5, 0)


def test_a_target_of_an_older_release_is_told_of_and_gets_nothing() -> None:
    cluster, a, b = pair()
    filled(a, 5, cluster)
    with patch.object(arrival_links, "makes_queues", lambda answer, _, **__: answer):  # it says nothing of queues
        drain(a, cluster)
        cluster.wait(1_000)
        assert row_of(a)["why"] == OLDER
        assert (count_at(a), count_at(b)) == (5, 0)
    cluster.wait(1_000)
    assert row_of(a)["why"] is None, "it was upgraded"
    assert (count_at(a), count_at(b)) == (0, 5)


def test_a_node_that_is_given_up_leaves_the_queue_here() -> None:
    cluster, a, b = begun_in_vain(5)
    b.crash()
    cluster.let_through("a", "b")
    cluster.run()
    cluster.wait(100)
    assert a.admin("cluster-forget", node_id=node_id_of("b"))["messages"] == 5
    assert a.admin("drain-show")["drains"] == []
    assert read_at(a, cluster).bodies == bodies(5)


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"durable": False}, "is not durable"),
    ],
)
def test_what_does_not_drain_yet_is_refused_by_name(attributes: dict[str, Any], why: str) -> None:
    cluster, a, _ = pair()
    a.admin("queue-create", name="orders", **attributes)
    assert f"queue 'orders' {why}" in drain(a, cluster)["description"]


def test_what_cannot_be_meant_is_refused() -> None:
    cluster, a, b = pair()
    filled(a, 1, cluster)
    assert "no other node" in drain(a, cluster, "c")["description"]
    assert "no other node" in drain(a, cluster, "a")["description"]
    assert "does not drain" in a.admin("drain-cancel", queue="orders")["description"]
    drain(a, cluster)
    assert "drains to node" in drain(a, cluster)["description"]
    assert "which may have some" in a.admin("messages-move", queue="orders", address="x")["description"]
    b.crash()
    cluster.run()
    assert "no link" in a.admin("drain-queue", queue="orders", node="b")["description"]


@pytest.mark.parametrize(
    ("operation", "arguments", "gone"),
    [
        ("messages-move", {"queue": "orders", "address": "parked"}, 0),
        ("messages-move", {"queue": "orders", "address": "parked"}, 10),
        ("dead-letters-retry", {"queue": "orders"}, 0),
        ("queue-purge", {"name": "orders", "selector": "TRUE"}, 10),
        ("queue-purge", {"name": "orders"}, 0),
    ],
)
def test_what_takes_messages_out_ends_where_the_queue_begins_to_drain(
    monkeypatch: pytest.MonkeyPatch, operation: str, arguments: dict[str, Any], gone: int
) -> None:
    """What the other node may have by then would be there, and where it was moved to."""
    for kind in (moves.Purge, moves.Move):
        monkeypatch.setattr(kind, "bounds", (10, moves.MOVED_BYTES_MAX))
    cluster, a, b = pair()
    filled(a, 40, cluster)
    a.admin("queue-create", name="parked")
    a.give(given.AdminRequest(901, 1, operation, arguments))
    if gone:
        a.turn()  # a piece
    drain(a, cluster)
    error = a.replies[901].error
    assert error is not None
    assert "holds messages for node" in error["description"]
    assert not gone or f"{gone} messages were" in error["description"]
    assert a.broker.store.queues["parked"].message_count == (gone if operation == "messages-move" else 0)
    assert (count_at(a), count_at(b)) == (0, 40 - gone)


def test_a_queue_that_made_itself_stays_when_it_is_drained_and_has_no_link() -> None:
    cluster, a, _ = pair()
    producer = filled(a, 5, cluster)
    drain(a, cluster)
    cluster.hold_up("a", "b")
    cluster.cut_all(a)
    cluster.wait(1_000)
    assert row_of(a)["state"] == "is drained"
    cluster.let_through("a", "b")
    producer.publish(b"00005")
    cluster.wait(3_000)
    assert row_of(a)["left"] == 0


def test_it_drains_on_where_the_file_declares_it_and_is_read_again() -> None:
    cluster, a, b = pair()
    name = "declared.0"
    a.give(given.OptionsChanged(declaring(a.options, 1)))
    cluster.run()
    request = a.ask("drain-queue", queue=name, node="b")
    cluster.run()
    assert a.replies[request].error is None
    a.give(given.OptionsChanged(declaring(a.options, 1, max_consumers=7)))
    cluster.run()
    kind = a.broker.store.queues[name].kind
    assert (kind.is_draining, kind.max_consumers) == (True, 7)
    a.admin("send", address=name, messages=[{"body": "x", "durable": True}])
    cluster.run()
    assert b.broker.store.queues[name].message_count == 1


def test_what_expired_while_the_target_might_have_had_it_goes_when_that_is_given_up() -> None:
    cluster, a, _ = begun_in_vain(0)
    filled(a, 1, cluster, header=Header(durable=True, ttl=2_000))
    a.crash()
    a.start()
    cluster.wait(3_000)
    assert count_at(a) == 1, "the other node may have it, as far as is known after a start"
    a.admin("drain-cancel", queue="orders", force=True)
    cluster.run()
    cluster.wait(10)
    assert count_at(a) == 0


def test_a_target_that_never_came_back_is_lost_after_a_start_as_well() -> None:
    cluster, a, b = pair(on_node_lost="reroute", node_lost_grace=5_000)
    filled(a, 5, cluster)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    b.crash()
    a.crash()
    a.start()
    cluster.wait(4_000)
    assert row_of(a)["left"] == 5
    cluster.wait(3_000)
    assert a.admin("drain-show")["drains"] == []
    assert read_at(a, cluster).bodies == bodies(5)


def test_a_namesake_that_would_not_keep_all_is_told_of_and_the_messages_stay() -> None:
    for attributes, why in (({"ring_size": 10}, "ring-size is 10"), ({"last_value": True}, "last-value is True")):
        cluster, a, b = pair()
        b.admin("queue-create", name="orders", **attributes)
        filled(a, 300, cluster)
        drain(a, cluster)
        assert why in (row_of(a)["why"] or "")
        assert (count_at(a), count_at(b)) == (300, 0)


def test_what_an_address_of_the_target_keeps_for_later_queues_does_not_come_once_more() -> None:
    keeps: dict[str, Any] = {"address_settings": {"orders": {"retroactive_message_count": 3}}}
    cluster, a, b = pair(options=LIMITS | keeps)
    there = Producer(b)
    for number in range(3):
        there.publish(b"there %d" % number)
    reader = read_at(b, cluster)
    for number in range(3):
        reader.settle(number)
    reader.link.detach()
    cluster.run()
    b.admin("queue-delete", name="orders", force=True)
    filled(a, 5, cluster)
    drain(a, cluster)
    assert read_at(b, cluster).bodies == bodies(5)


def test_called_off_after_a_restart_what_is_paged_goes_although_something_new_lies_before_it() -> None:
    small: dict[str, Any] = {"limits": {"link_credit": 100_000, "global_max_size_bytes": 20_000}}
    cluster, a, b = pair(options=small, confirmation_window_size=500)
    producer = Producer(a)
    for number in range(500):
        producer.publish(b"%05d" % number)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    a.crash()
    a.start()
    cluster.run()
    a.admin("drain-cancel", queue="orders")
    Producer(a).publish(b"new", header=Header(durable=True, priority=9))
    assert a.broker.store.queues["orders"].paged_count
    cluster.let_through("a", "b")
    for _ in range(40):
        cluster.wait(500)
    assert a.admin("drain-show")["drains"] == []
    assert (count_at(a), count_at(b)) == (1, 500)


def test_two_queues_that_drain_to_each_other_and_are_called_off_after_a_crash_are_served_again() -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    filled(b, 10, cluster)
    cluster.hold_up("a", "b")
    drain(a, cluster)
    drain(b, cluster, "a")
    for node in (a, b):
        node.crash()
        node.start()
    cluster.let_through("a", "b")
    for node in (a, b):
        node.admin("drain-cancel", queue="orders")
    cluster.wait(5_000)
    assert [node.admin("drain-show")["drains"] for node in (a, b)] == [[], []], "neither waits for the other for ever"
    assert count_at(a) + count_at(b) == 20
