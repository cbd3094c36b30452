"""Whoever is closed by this node in good order is answered, or what he says is not taken in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mqbroker.amqp.sasl import SaslClient
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted, Attach, Source, Target

from tests.support import transactions
from tests.support.large_messages import SIZE_MIN, Consumer, Producer, content, is_clean
from tests.support.stage import Stage, Talker, options_with
from tests.unit.node.amqp.test_coordinator import Client, condition
from tests.unit.node.amqp.test_revoking import LISTENER, user
from tests.unit.node.cluster.test_grouping import Site, grouped

IDLE_MS = 30_000
LIMITS = {"amqp_min_large_message_size_bytes": SIZE_MIN, "large_message_in_memory_max_size_bytes": 0}
SLOW = {"slow_consumer_threshold": 2, "slow_consumer_policy": "KILL", "slow_consumer_check_period": 5}
POSTS = 30  # so many that their commit has a turn of its own


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
