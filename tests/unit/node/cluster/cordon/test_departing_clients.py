"""Clients of a node that is about to send them away get nothing more, and may settle what they have."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp.events import Incoming
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted, Attach, Released, Source, Target

from tests.support import frames, transactions
from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer, content, header_of
from tests.unit.core.cluster.test_drains import LIMITS, bodies, count_at, filled, read_at
from tests.unit.node.amqp.peers.test_coordinator import Client, condition
from tests.unit.node.cluster.departure.test_next_heir import Heirs
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


# -- a disk that is slow -----------------------------------------------------------------------------------------------


def sync_one(node: ClusterNode, cluster: ClusterStage) -> None:
    """The disk has the oldest append, and no other one."""
    node.give(given.Synced(node.disk.commit([node.pending.pop(0)])))
    cluster.run()


def answered_in_the_end(node: ClusterNode, cluster: ClusterStage, producer: Producer) -> int:
    """How much of somebody is answered, who is sent away; all that is kept is of him."""
    while node.pending:
        sync_one(node, cluster)
    node.is_disk_held = False
    cluster.wait(3_000)
    assert sent_to(producer.talker) is not None
    answered = len(producer.outcomes)
    assert count_at(node) + count_at(cluster.nodes["b"]) == answered, "else it is said again where nobody knows it"
    return answered


@leaving
def test_a_close_that_waits_for_the_disk_takes_nobody_who_is_held_later(operation: str) -> None:
    cluster, a, _ = that_say_where()
    other, producer, seed = Producer(a, "o", "elsewhere"), Producer(a, "p"), Producer(a, "seed", "work")
    seed.publish(b"taken")
    assert producer.talker.session is not None
    link = producer.talker.session.attach_receiver(
        Attach(name="work", handle=1, role=True, source=Source(address="work"), target=Target())
    )
    cluster.run()
    link.grant(1)
    cluster.run()
    a.admin(operation, **OPERATIONS[operation])
    cluster.wait(950)
    a.is_disk_held = True
    other.publish(b"first")
    cluster.wait(100)
    producer.publish(b"second")
    cluster.wait(500)
    sync_one(a, cluster)
    assert (other.talker.is_closed, producer.talker.is_closed) == (True, False), "it has not settled what it took"
    producer.publish(b"third")
    (taken,) = [event for event in producer.talker.events if isinstance(event, Incoming)]
    link.session.dispose(taken.delivery_id, taken.delivery_id, Accepted(), as_receiver=True)
    cluster.run()
    cluster.wait(500)
    assert len(a.pending) > 1
    assert answered_in_the_end(a, cluster, producer) == 2


@leaving
def test_nor_anybody_who_may_go_on_and_is_held_once_more(operation: str) -> None:
    cluster, a, _ = that_say_where()
    producer = Producer(a, "p")
    cluster.run()
    a.admin(operation, **OPERATIONS[operation])
    cluster.wait(950)
    a.is_disk_held = True
    producer.publish(b"first")
    cluster.wait(100)
    a.ask(BACK[operation])
    producer.publish(b"second")
    cluster.run()
    a.ask(operation, **OPERATIONS[operation])
    cluster.wait(1_050)
    sync_one(a, cluster)
    assert (producer.talker.is_closed, len(a.pending) > 0) == (False, True)
    assert answered_in_the_end(a, cluster, producer) == 2


@pytest.mark.parametrize("wait_ms", [100, 700])
def test_what_waits_for_the_disk_begins_no_drain_of_a_scale_down_that_comes_later(wait_ms: int) -> None:
    cluster, a, _ = that_say_where()
    producer = Producer(a, "p")
    cluster.run()
    begin(a, cluster)
    cluster.wait(950)
    a.is_disk_held = True
    producer.publish(b"first")
    cluster.wait(wait_ms)
    a.ask("scale-down-cancel")
    a.ask("scale-down", node="b")
    cluster.run()
    sync_one(a, cluster)
    assert not a.broker.scaling_down.is_moving, "its clients may go on for a while"
    assert answered_in_the_end(a, cluster, producer) == 1


# -- what is on its way in as their time is over -----------------------------------------------------------------------

LARGE = {
    **LIMITS,
    "limits": {
        **LIMITS["limits"],
        "amqp_min_large_message_size_bytes": 2000,
        "large_message_in_memory_max_size_bytes": 0,
    },
}


def with_a_large_one_coming(operation: str, wait_ms: int) -> tuple[ClusterStage, ClusterNode, Producer]:
    """A node of which the time of its clients is over, perhaps also that of those that stay: its disk is at work, and a
    large message of one of them is whole, but not in its file."""
    cluster, a, _ = that_say_where(options=LARGE)
    producer = Producer(a, "large")
    cluster.run()
    a.admin(operation, **OPERATIONS[operation])
    cluster.wait(900)
    a.is_large_held = True
    producer.publish(content(1))
    cluster.wait(wait_ms)
    a.is_disk_held = True
    a.ask("send", address="elsewhere", messages=[{"body": "x", "durable": True}])
    cluster.wait(500)
    assert not producer.talker.is_closed
    return cluster, a, producer


@leaving
def test_a_large_message_that_is_not_in_its_file_is_waited_for_and_answered(operation: str) -> None:
    cluster, a, producer = with_a_large_one_coming(operation, 0)
    (row,) = [each for each in shown(a)["staying"] if each["conn"] == producer.talker.conn]
    assert row["why"] == "has sent a message that is not taken in yet"
    a.is_large_held = False
    cluster.run()
    producer.publish(b"behind")
    a.is_disk_held = False
    cluster.wait(3_000)
    assert (len(producer.outcomes), sent_to(producer.talker) is not None) == (2, True)
    assert count_at(a) + count_at(cluster.nodes["b"]) == 2


@leaving
@pytest.mark.parametrize("is_called_off", [False, True])
def test_one_that_is_late_comes_in_if_it_stays_and_else_not_at_all(operation: str, is_called_off: bool) -> None:
    cluster, a, producer = with_a_large_one_coming(operation, 9_900)
    a.is_large_held = False
    cluster.run()
    producer.publish(b"behind")
    assert (producer.talker.is_closed, count_at(a)) == (False, 0), "nobody could answer it in time"
    if is_called_off:
        a.admin(BACK[operation])
    a.is_disk_held = False
    cluster.wait(3_000)
    taken = 2 if is_called_off else 0
    assert (len(producer.outcomes), producer.talker.is_closed) == (taken, not is_called_off)
    assert count_at(a) + count_at(cluster.nodes["b"]) == taken
    assert len(a.large_files.sizes) == taken // 2


@leaving
def test_called_off_what_comes_behind_one_that_is_late_stays_behind_it(operation: str) -> None:
    """Its file is whole only then."""
    cluster, a, producer = with_a_large_one_coming(operation, 9_900)
    producer.publish(b"behind")
    a.ask(BACK[operation])
    a.is_disk_held = False
    cluster.run()
    assert (producer.outcomes, count_at(a)) == ([], 0)
    a.is_large_held = False
    cluster.wait(1_000)
    assert Consumer(a).bodies == [content(1), b"behind"]


def commit_in_time(operation: str, wait_ms: int) -> tuple[ClusterStage, ClusterNode, Client]:
    """Somebody asks for a commit of many parts in the step in which somebody else's time is over."""
    cluster, a, _ = that_say_where()
    client = Client(a, "c")
    links = [client.sender("orders"), client.sender("other")]
    txn_id = client.declare()
    for number in range(30):
        client.post(links[number % 2], txn_id)
    Producer(a, "before")
    a.admin(operation, **OPERATIONS[operation])
    cluster.wait(wait_ms)
    a.is_disk_held = True
    transactions.discharge(client.control, txn_id, "discharge")
    a.give(given.BytesReceived(client.talker.conn, client.talker.take_out()))
    due = a.broker.cordoning if operation == "cordon" else a.broker.scaling_down
    a.now_ns = max(a.now_ns, due.due_ns)
    a.turn()
    assert a.broker.peers[client.talker.conn].transactions.open_count == (wait_ms < 10_000)
    a.step()
    a.is_disk_held = False
    cluster.wait(3_000)
    assert sent_to(client.talker) is not None
    return cluster, a, client


def both_counts(cluster: ClusterStage) -> int:
    """Messages of both queues at both nodes."""
    every = [node.broker.store.queues.get(name) for node in cluster.nodes.values() for name in ("orders", "other")]
    return sum(queue.message_count for queue in every if queue is not None)


@leaving
def test_a_commit_in_time_is_waited_for_and_answered(operation: str) -> None:
    cluster, _, client = commit_in_time(operation, 900)
    assert client.outcomes("discharge") == [Accepted()]
    assert both_counts(cluster) == 30


@leaving
def test_one_that_is_late_is_none_and_answered(operation: str) -> None:
    cluster, a, client = commit_in_time(operation, 10_900)
    (outcome,) = client.outcomes("discharge")
    assert condition(outcome) == "amqp:connection:forced"
    assert both_counts(cluster) == 0
    (said,) = a.events("transactions-rolled-back")
    assert said["count"] == 1
