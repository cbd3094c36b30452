"""Clients of a node that is about to send them away get nothing more, and may settle what they have."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.performatives import Released

from tests.support import frames
from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer, header_of
from tests.unit.node.amqp.test_coordinator import Client
from tests.unit.node.test_drains import LIMITS, bodies, count_at, filled, read_at
from tests.unit.node.test_next_heir import Heirs
from tests.unit.node.test_scale_down import begin, moved, sent_to, shown, that_say_where

OPERATIONS = {"cordon": {}, "scale-down": {"node": "b"}}
BACK = {"cordon": "uncordon", "scale-down": "scale-down-cancel"}
WHY = {"cordon": "this node is cordoned", "scale-down": "this node scales down"}
leaving = pytest.mark.parametrize("operation", OPERATIONS)


def with_three_taken(operation: str, **fields: Any) -> tuple[ClusterStage, ClusterNode, Producer, Consumer]:
    """A node that was told to send its clients away, when one had three messages and credit for seven more."""
    cluster, a, _ = that_say_where()
    producer = filled(a, 3, cluster)
    consumer = Consumer(a, **fields)
    assert consumer.bodies == bodies(3)
    a.admin(operation, **OPERATIONS[operation])
    return cluster, a, producer, consumer


def publish(producer: Producer, cluster: ClusterStage, *numbers: int) -> None:
    for number in numbers:
        producer.publish(b"%05d" % number)
    cluster.run()


@leaving
def test_they_get_nothing_more_and_none_of_what_they_settle_comes_again(operation: str) -> None:
    cluster, a, producer, consumer = with_three_taken(operation)
    publish(producer, cluster, 3, 4)
    assert len(producer.outcomes) == 5, "who sends may go on for a while"
    cluster.wait(4_000)
    assert (consumer.bodies, consumer.talker.is_closed, producer.talker.is_closed) == (bodies(3), False, True)
    for number in range(3):
        consumer.settle(number)
    cluster.wait(1_000)
    assert sent_to(consumer.talker) is not None
    assert not a.events("messages-not-settled")
    heir = cluster.nodes["b"]
    if operation == "cordon":
        heir = a
        a.admin("uncordon")
    else:
        assert moved(a, cluster)["moved"] == 2
    late = read_at(heir, cluster)
    assert late.bodies == bodies(5)[3:]
    assert [header_of(event).delivery_count for event in late.incoming] == [0] * len(late.incoming)


@leaving
def test_who_never_settles_is_named_and_sent_away_in_the_end(operation: str) -> None:
    cluster, a, _, consumer = with_three_taken(operation)
    cluster.wait(3_000)
    (row,) = shown(a)["staying"]
    assert (row["conn"], row["why"]) == (consumer.talker.conn, "has not settled all messages that it took")
    assert (row["peer"], row["for_s"]) == (a.broker.peers[consumer.talker.conn].far, 3)
    assert (shown(a)["connections"], shown(a)["left"]) == (1, 3)
    cluster.wait(8_500)
    assert sent_to(consumer.talker) is not None
    (told,) = a.events("messages-not-settled")
    assert (told["conn"], told["peer"], told["why"]) == (row["conn"], row["peer"], WHY[operation])
    assert (shown(a)["staying"], shown(a)["connections"]) == ([], 0)
    if operation == "scale-down":
        assert moved(a, cluster)["moved"] == count_at(cluster.nodes["b"]) == 3


@leaving
def test_called_off_they_get_what_waits(operation: str) -> None:
    cluster, a, producer, consumer = with_three_taken(operation)
    publish(producer, cluster, 3, 4)
    cluster.wait(3_000)
    assert consumer.bodies == bodies(3)
    a.admin(BACK[operation])
    cluster.run()
    assert consumer.bodies == bodies(5)
    cluster.wait(20_000)
    assert not consumer.talker.is_closed


@leaving
def test_copies_hold_nobody_here(operation: str) -> None:
    cluster, a, _, consumer = with_three_taken(operation, source={"distribution_mode": "copy"})
    cluster.wait(1_500)
    assert sent_to(consumer.talker) is not None
    assert not a.events("messages-not-settled")


@leaving
def test_what_is_settled_beforehand_is_not_sent_any_more(operation: str) -> None:
    """Nobody would hear that it did not arrive."""
    cluster, a, producer, consumer = with_three_taken(operation, snd_settle_mode=1)
    publish(producer, cluster, 3)
    assert consumer.bodies == bodies(3)
    cluster.wait(1_500)
    assert sent_to(consumer.talker) is not None
    assert count_at(a) + count_at(cluster.nodes["b"]) == 1


@leaving
def test_nobody_is_told_that_a_queue_is_empty_which_is_not(operation: str) -> None:
    """A drain is answered once all was sent that is there; here the end of the connection answers it."""
    cluster, _, producer, consumer = with_three_taken(operation)
    publish(producer, cluster, 3)
    consumer.talker.connection.out.append(frames.flow(0, 7, delivery_count=3, drain=True))
    cluster.run()
    assert (consumer.link.credit, consumer.bodies) == (7, bodies(3))


@leaving
def test_what_comes_back_meanwhile_goes_to_nobody_here(operation: str) -> None:
    cluster, _, _, consumer = with_three_taken(operation)
    consumer.settle(0, Released())
    cluster.run()
    assert consumer.bodies == bodies(3)


def test_a_queue_whose_messages_are_settled_still_does_not_drain_before_that() -> None:
    cluster, a, _, consumer = with_three_taken("scale-down")
    filled_elsewhere = a.admin("send", address="other", messages=[{"body": "x", "durable": True}])
    assert filled_elsewhere == {"accepted": 1}
    cluster.wait(4_000)
    queues = a.broker.store.queues
    assert (queues["orders"].kind.is_draining, queues["other"].kind.is_draining) == (False, True)
    for number in range(3):
        consumer.settle(number)
    row = next(each for each in moved(a, cluster)["receipt"]["queues"] if each["queue"] == "orders")
    assert (row["before"]["messages"], row["moved"]) == (0, 0)
    assert shown(a)["receipt"]["balances"]


def test_a_transaction_gets_nothing_more_and_may_commit_what_it_has() -> None:
    cluster, a, _ = that_say_where()
    producer = filled(a, 2, cluster)
    client = Client(a, "c")
    client.receiver("orders", credit=10)
    txn_id = client.declare()
    client.retire(0, 1, txn_id, settled=True)
    a.admin("scale-down", node="b")
    publish(producer, cluster, 2)
    cluster.wait(3_000)
    (row,) = shown(a)["staying"]
    assert row["why"] == "has a transaction open"
    client.discharge(txn_id)
    said = moved(a, cluster)
    assert (said["moved"], said["receipt"]["balances"]) == (1, True)
    late = read_at(cluster.nodes["b"], cluster)
    assert [header_of(event).delivery_count for event in late.incoming] == [0]


@leaving
def test_a_reply_that_comes_in_time_is_delivered_as_its_queue_ends_with_the_connection(operation: str) -> None:
    cluster, a, _ = that_say_where()
    asker = Consumer(a, "asker", address=None, source={"dynamic": True})
    (queue,) = a.broker.store.queues
    service = Producer(a, "service", queue)
    a.admin(operation, **OPERATIONS[operation])
    service.publish(b"reply")
    cluster.run()
    assert (len(service.outcomes), asker.bodies) == (1, [b"reply"])
    asker.settle(0)
    cluster.wait(1_500)
    assert sent_to(asker.talker) is not None


@leaving
def test_who_is_waited_for_is_no_slow_consumer(operation: str) -> None:
    slow = {"slow_consumer_threshold": 1, "slow_consumer_policy": "KILL", "slow_consumer_check_period": 2}
    cluster, a, _ = that_say_where(options={**LIMITS, "address_settings": {"#": slow}})
    producer = filled(a, 3, cluster)
    consumer = Consumer(a)
    a.admin(operation, **OPERATIONS[operation])
    publish(producer, cluster, 3, 4)
    cluster.wait(9_000)
    assert (a.events("consumer-slow"), consumer.talker.is_closed) == ([], False)
    cluster.wait(3_000)
    assert sent_to(consumer.talker) is not None


@leaving
def test_who_has_not_settled_is_named_once_although_the_disk_is_waited_for(operation: str) -> None:
    cluster, a, _, consumer = with_three_taken(operation)
    cluster.wait(10_500)
    a.is_disk_held = True
    a.ask("send", address="elsewhere", messages=[{"body": "x", "durable": True}])
    cluster.wait(6_000)
    assert not consumer.talker.is_closed, "what was taken in is answered first"
    assert len(a.events("messages-not-settled")) == 1


def test_whoever_stays_does_not_do_so_twice_as_another_node_takes_over() -> None:
    of = Heirs(bound_ms=-1)
    filled(of.a, 3, of.cluster)
    consumer = Consumer(of.a)
    begin(of.a, of.cluster)
    of.cluster.wait(9_000)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(2_500)
    assert consumer.talker.is_closed
