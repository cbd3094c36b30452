"""Whoever is closed by this node in good order is answered, or what he says is not taken in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mqbroker.amqp.events import Incoming
from mqbroker.amqp.sasl import SaslClient
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted, Attach, Source, Target
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.support import transactions
from tests.support.large_messages import SIZE_MIN, Consumer, Producer, content, is_clean
from tests.support.stage import Stage, Talker, options_with
from tests.unit.core.cluster.test_drains import count_at, drain, filled, pair
from tests.unit.node.amqp.listeners.test_revocations import LISTENER, user
from tests.unit.node.amqp.peers.test_coordinator import Client, condition
from tests.unit.node.cluster.grouping.test_grouping import Site, grouped

IDLE_MS = 30_000
LIMITS = {"amqp_min_large_message_size_bytes": SIZE_MIN, "large_message_in_memory_max_size_bytes": 0}
SLOW = {"slow_consumer_threshold": 2, "slow_consumer_policy": "KILL", "slow_consumer_check_period": 5}
POSTS = 30  # so many that their commit has a turn of its own
LATE_NS = 60_000 * NS_PER_MS
MANY_POSTS = 400  # and that to give them up takes several


class AppStage(Stage):
    """Everybody logs in as the same user."""

    def __init__(self) -> None:
        listener = {**LISTENER, "max_frame_size_bytes": 1024, "idle_timeout_ms": IDLE_MS}
        options = options_with(listener, limits=LIMITS, address_settings={"slow": SLOW})
        super().__init__(options, {"app": user()})

    def connect(self, name: str, login: Any = None, open_: Any = None) -> Talker:
        return super().connect(name, login or SaslClient("app", "right", b"n" * 32), open_)


def close(stage: Stage, talker: Talker) -> None:
    assert stage.admin("connection-close", connection=talker.conn) == {"closed": 1}


def close_in_turn(stage: Stage, talker: Talker) -> None:
    stage.give(given.AdminRequest(1_000_000, 1, "connection-close", {"connection": talker.conn}))


def remove(stage: Stage, _: Talker) -> None:
    stage.give(given.UsersChanged({"another": user()}))
    stage.run()


def be_silent(stage: Stage, _: Talker) -> None:
    stage.wait(IDLE_MS + 1_000)


def be_slow(stage: Stage, _: Talker) -> None:
    stage.admin("send", address="slow", messages=[{"body": "x", "durable": False}] * 100)
    stage.wait(11_000)


WAYS: dict[str, Callable[[Stage, Talker], None]] = {
    "an administrator closes it": close,
    "its user is removed": remove,
    "nothing is heard of it": be_silent,
    "it consumes too slowly": be_slow,
}


def producer_at(stage: Stage) -> Producer:
    """One that consumes from another queue, too."""
    producer = Producer(stage)
    assert producer.talker.session is not None
    link = producer.talker.session.attach_receiver(
        Attach(name="slow", handle=0, role=True, source=Source(address="slow"), target=Target())
    )
    stage.run()
    link.grant(1)
    stage.run()
    return producer


def count(stage: Stage, name: str = "orders") -> int:
    queue = stage.broker.store.queues.get(name)
    return 0 if queue is None else queue.message_count


@pytest.mark.parametrize("way", WAYS)
def test_what_was_taken_in_is_answered_and_nothing_more_is_taken_in(way: str) -> None:
    stage = AppStage()
    producer = producer_at(stage)
    stage.is_disk_held = True
    producer.publish(b"before")
    WAYS[way](stage, producer.talker)
    assert (producer.talker.is_closed, stage.paused[producer.talker.conn]) == (False, True)
    producer.publish(b"behind")
    stage.wait(1_000)
    due_ns = stage.broker.timers.wake_at_ns
    assert due_ns is None or due_ns > stage.now_ns, "only the disk is waited for"
    stage.is_disk_held = False
    stage.run()
    assert (producer.outcomes, producer.talker.is_closed) == ([Accepted()], True)
    assert count(stage) == 1, "who sent the other one sends it again"
    assert not stage.broker.peers


@pytest.mark.parametrize("way", WAYS)
def test_who_waits_for_nothing_is_closed_at_once(way: str) -> None:
    stage = AppStage()
    producer = producer_at(stage)
    producer.publish(b"before")
    WAYS[way](stage, producer.talker)
    assert (producer.talker.is_closed, count(stage)) == (True, 1)
    assert not stage.broker.peers


def test_nothing_is_delivered_to_it_any_more() -> None:
    stage = AppStage()
    consumer, producer = Consumer(stage), Producer(stage)
    stage.is_disk_held = True
    Producer(stage, "other", "elsewhere").publish(b"before")
    close(stage, consumer.talker)
    producer.publish(b"x", durable=False)
    stage.is_disk_held = False
    stage.run()
    assert (consumer.bodies, consumer.talker.is_closed, count(stage)) == ([], True, 1)
    assert not stage.broker.store.queues["orders"].delivering_count


def with_a_disk_at_work(stage: Stage) -> Producer:
    """Somebody else has sent what is not on disk yet."""
    stage.is_disk_held = True
    other = Producer(stage, "other", "elsewhere")
    other.publish(b"before")
    return other


def test_whoever_is_owed_no_answer_is_closed_at_once_whatever_the_disk_does() -> None:
    """What it would settle until then came again."""
    stage = AppStage()
    consumer, own = Consumer(stage, credit=1), Consumer(stage, "asker", address=None, source={"dynamic": True})
    stage.admin("send", address="orders", messages=[{"body": "x", "durable": True}])
    assert len(consumer.incoming) == 1
    other = with_a_disk_at_work(stage)
    close(stage, consumer.talker)
    close(stage, own.talker)
    assert (consumer.talker.is_closed, own.talker.is_closed) == (True, True)
    assert list(stage.broker.peers) == [other.talker.conn]


def test_so_is_another_node_of_which_is_known_what_comes_again() -> None:
    cluster, b, a = pair()
    filled(b, 3, cluster)
    drain(b, cluster)
    assert count_at(a) == 3, "the other node sends to this one"
    a.is_disk_held = True
    Producer(a, "before", "elsewhere").publish(b"x")
    links = [peer for peer in a.broker.peers.values() if peer.is_known_again]
    assert len(links) == 2, "one that each of both has made"
    assert any(peer.producers for peer in links)
    for peer in links:
        peer.close("amqp:resource-limit-exceeded", "nothing was heard")
    assert [peer.connection.is_dead for peer in links] == [True, True]


def test_a_client_that_only_consumes_in_transactions_is_owed_their_outcome() -> None:
    stage = AppStage()
    stage.admin("send", address="orders", messages=[{"body": "x", "durable": True}])
    client = Client(stage)
    client.receiver("orders", 1)
    txn_id = client.declare()
    client.retire(0, 0, txn_id, settled=True)
    stage.is_disk_held = True
    transactions.discharge(client.control, txn_id, "discharge")
    stage.run()
    close(stage, client.talker)
    assert (client.talker.is_closed, client.outcomes("discharge")) == (False, [])
    (row,) = stage.admin("connections")["connections"]
    assert row["closing"], "it is listed until the disk has what it is to hear of"
    stage.is_disk_held = False
    stage.run()
    assert (client.talker.is_closed, client.outcomes("discharge"), count(stage)) == (True, [Accepted()], 0)


def with_a_temporary_queue(stage: Stage) -> tuple[Producer, Producer, str]:
    """One that sends, and has a queue for replies, by name."""
    asker = Producer(stage, "asker")
    assert asker.talker.session is not None
    link = asker.talker.session.attach_receiver(
        Attach(name="replies", handle=1, role=True, source=Source(dynamic=True), target=Target())
    )
    stage.run()
    link.grant(10)
    stage.run()
    (name,) = [name for name in stage.broker.store.queues if name not in ("orders", "elsewhere")]
    return asker, Producer(stage, "service", name), name


@pytest.mark.parametrize("way", [close, remove])
def test_nor_is_what_is_in_its_temporary_queue(way: Callable[[Stage, Talker], None]) -> None:
    """Nobody who was removed gets one more message."""
    stage = AppStage()
    asker, _, name = with_a_temporary_queue(stage)
    stage.is_disk_held = True
    asker.publish(b"before")
    way(stage, asker.talker)
    store = stage.broker.store
    store.publish(store.addresses[name], single(build_message(b"secret")))
    stage.run()
    stage.step()
    stage.is_disk_held = False
    stage.run()
    assert asker.talker.is_closed
    assert not [event for event in asker.talker.events if isinstance(event, Incoming)]


def test_a_large_message_that_is_on_its_way_to_its_file_is_none() -> None:
    stage = AppStage()
    producer, other = Producer(stage, "p"), Producer(stage, "other")
    stage.is_disk_held = stage.is_large_held = True
    other.publish(b"before")
    producer.publish(content(1))
    close(stage, producer.talker)
    stage.is_large_held = False
    stage.run()
    assert (count(stage), producer.talker.is_closed) == (1, False), "its file is whole before it is closed"
    stage.is_disk_held = False
    stage.run()
    assert (count(stage), producer.talker.is_closed, producer.outcomes) == (1, True, [])
    assert is_clean(stage)


def test_nor_is_it_of_one_that_is_gone_by_then() -> None:
    stage = AppStage()
    producer, other = Producer(stage, "p"), Producer(stage, "other")
    stage.is_disk_held = stage.is_large_held = True
    other.publish(b"before")
    producer.publish(content(1))
    close(stage, producer.talker)
    stage.is_large_held = False
    stage.run()
    producer.talker.connection.close()
    stage.run()
    stage.drop(producer.talker)
    stage.sync()
    stage.step()
    assert list(stage.broker.peers) == [other.talker.conn], "nobody tells once more that it is gone"
    stage.is_disk_held = False
    stage.run()
    assert count(stage) == 1
    assert is_clean(stage)


def asks_to_commit(stage: Stage) -> Client:
    """A client whose commit was taken in, and has its turn in the next step; the disk is at work."""
    client = Client(stage)
    links = [client.sender("orders"), client.sender("other")]
    txn_id = client.declare()
    for number in range(POSTS):
        client.post(links[number % 2], txn_id)
    stage.is_disk_held = True
    Producer(stage).publish(b"before")
    transactions.discharge(client.control, txn_id, "discharge")
    stage.give(given.BytesReceived(client.talker.conn, client.talker.take_out()))
    stage.turn()
    assert stage.broker.peers[client.talker.conn].transactions.open_count == 1
    return client


def test_a_commit_that_has_not_had_its_turn_is_rolled_back_and_answered() -> None:
    stage = AppStage()
    client = asks_to_commit(stage)
    close(stage, client.talker)
    stage.is_disk_held = False
    stage.run()
    (outcome,) = client.outcomes("discharge")
    assert condition(outcome) == "amqp:connection:forced"
    assert (client.talker.is_closed, count(stage), count(stage, "other")) == (True, 1, 0)


def stop(stage: Stage, _: Talker) -> None:
    stage.give(given.Stop())


@pytest.mark.parametrize("way", [close_in_turn, stop])
@pytest.mark.parametrize("is_refused", [False, True])
def test_a_rollback_is_answered_although_it_is_not_at_its_end(
    way: Callable[[Stage, Talker], None], is_refused: bool
) -> None:
    """`is_refused`: it is that of a commit which the address cannot take."""
    bound = {"max_size_messages": 3, "address_full_policy": "FAIL"}
    stage = Stage(options_with(address_settings={"orders": bound}))
    client, other = Client(stage), Producer(stage, "other", "elsewhere")
    links = [client.sender("orders"), client.sender("other")]
    txn_id = client.declare()
    for number in range(MANY_POSTS):
        client.post(links[number % 2], txn_id)
    stage.is_disk_held = True
    other.publish(b"before")
    transactions.discharge(client.control, txn_id, "discharge", fail=not is_refused)
    stage.give(given.BytesReceived(client.talker.conn, client.talker.take_out()))
    stage.turn()
    mine = stage.broker.peers[client.talker.conn].transactions
    for _ in range(9):
        if not mine.open_count:
            break
        stage.turn()
    assert mine.size_bytes, "its turns are not over"
    way(stage, client.talker)
    stage.turn()
    stage.is_disk_held = False
    stage.run()
    (outcome,) = client.outcomes("discharge")
    assert condition(outcome) == "amqp:resource-limit-exceeded" if is_refused else outcome == Accepted()
    assert (client.talker.is_closed, count(stage)) == (True, 0)


def test_one_that_has_had_it_is_answered() -> None:
    stage = AppStage()
    client = asks_to_commit(stage)
    stage.step()
    close(stage, client.talker)
    assert client.outcomes("discharge") == []
    stage.is_disk_held = False
    stage.run()
    assert client.outcomes("discharge") == [Accepted()]
    assert (client.talker.is_closed, count(stage), count(stage, "other")) == (True, 1 + POSTS // 2, POSTS // 2)


def test_a_message_whose_group_is_asked_for_is_none() -> None:
    site = Site()
    node = site["b"]
    producer, other = Producer(node, "p"), Producer(node, "other")
    site.cluster.run()
    site.cluster.hold_up("a", "b")
    node.is_disk_held = True
    other.publish(b"before")
    producer.publish(b"x", **grouped("g"))
    close(node, producer.talker)
    site.cluster.let_through("a", "b")
    site.wait(3_000)
    assert (count(node), producer.talker.is_closed) == (1, False)
    node.is_disk_held = False
    site.wait(1_000)
    assert (count(node), producer.talker.is_closed, producer.outcomes) == (1, True, [])


def test_one_whose_group_is_asked_for_comes_in_before_what_is_behind_it_where_its_connection_stays() -> None:
    site = Site()
    node = site["b"]
    producer, consumer = Producer(node, "p"), Consumer(node)
    site.cluster.run()
    site.cluster.hold_up("a", "b")
    producer.publish(b"x", **grouped("g"))
    node.broker.departing.hold_back("it is late", LATE_NS)
    producer.publish(b"behind")
    site.cluster.let_through("a", "b")
    site.wait(3_000)
    assert (consumer.bodies, producer.outcomes) == ([], []), "it is at the door"
    node.broker.departing.let_go_on()
    site.wait(3_000)
    assert consumer.bodies == [b"x", b"behind"]
    assert producer.outcomes == [Accepted(), Accepted()]


def test_two_who_close_it_do_so_once() -> None:
    stage = AppStage()
    producer = Producer(stage)
    stage.is_disk_held = True
    producer.publish(b"before")
    close(stage, producer.talker)
    remove(stage, producer.talker)
    stage.is_disk_held = False
    stage.run()
    assert (producer.outcomes, producer.talker.is_closed, count(stage)) == ([Accepted()], True, 1)


def test_whoever_is_closed_does_not_go_on_as_others_may() -> None:
    stage = AppStage()
    producer, consumer = Producer(stage), Consumer(stage, address="elsewhere")
    stage.admin("cordon")
    stage.is_disk_held = True
    producer.publish(b"before")
    stage.wait(1_200)
    close(stage, producer.talker)
    close(stage, consumer.talker)
    stage.admin("uncordon")
    producer.publish(b"behind")
    Producer(stage, "another", "elsewhere").publish(b"x", durable=False)
    stage.is_disk_held = False
    stage.run()
    assert (producer.outcomes, producer.talker.is_closed, count(stage)) == ([Accepted()], True, 1)
    assert (consumer.bodies, consumer.talker.is_closed, count(stage, "elsewhere")) == ([], True, 1)
