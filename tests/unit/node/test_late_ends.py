"""Queues that end with their last link, where a transaction or an administrator still has messages of them."""

from __future__ import annotations

import pytest
from mqbroker.amqp import events as told
from mqbroker.amqp.links import ReceiverLink
from mqbroker.wire.performatives import Accepted, Attach, Source, Target
from mqbroker.wire.types import Symbol

from tests.support.stage import Stage
from tests.unit.node.amqp.peers.test_coordinator import Client

SOURCES = {
    "topic": Source(address="news", capabilities=(Symbol("topic"),)),
    "shared topic": Source(address="news", capabilities=(Symbol("topic"), Symbol("shared"))),
    "temporary queue": Source(dynamic=True),
}


def consuming(client: Client, source: Source) -> tuple[ReceiverLink, str]:
    """A receiver with credit, and the address that reaches it."""
    link = client.session.attach_receiver(Attach(name="from", handle=0, role=True, source=source, target=Target()))
    client.stage.run()
    link.grant(10)
    client.stage.run()
    answer = next(each.attach for each in client.talker.events if isinstance(each, told.Attached) and each.link is link)
    assert answer.source is not None
    return link, str(answer.source.address)


def queues(stage: Stage) -> list[tuple[str, int]]:
    return [(row["address"], row["delivering_count"]) for row in stage.admin("queues")["queues"]]


def retiring(source: Source) -> tuple[Client, bytes, str]:
    """A client that has acknowledged a message in a transaction that is open, and ended its receiver."""
    client = Client(Stage())
    link, address = consuming(client, source)
    client.stage.admin("send", address=address, messages=[{"body": "one"}])
    txn_id = client.declare()
    client.retire(0, 0, txn_id, settled=True)
    link.detach()
    client.stage.run()
    return client, txn_id, address


@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_end_of_the_transaction_is_the_end_of_the_queue(source: Source, fail: bool) -> None:
    client, txn_id, address = retiring(source)
    assert queues(client.stage) == [(address, 1)]
    assert isinstance(client.discharge(txn_id, fail=fail), Accepted)
    assert queues(client.stage) == []
    assert client.stage.broker.store.memory.held_bytes == 0


def test_so_is_the_end_of_the_connection() -> None:
    client, _, _ = retiring(SOURCES["topic"])
    client.stage.drop(client.talker)
    assert queues(client.stage) == []


def test_a_queue_that_has_a_consumer_again_stays() -> None:
    client, txn_id, address = retiring(SOURCES["shared topic"])
    link, _ = consuming(client, SOURCES["shared topic"])
    client.discharge(txn_id)
    assert queues(client.stage) == [(address, 0)]
    link.detach()
    client.stage.run()
    assert queues(client.stage) == []


def test_what_an_administrator_has_taken_is_given_back_first() -> None:
    client = Client(Stage())
    link, address = consuming(client, Source(address="news", capabilities=(Symbol("topic"),)))
    link.grant(0)
    client.stage.run()
    client.stage.admin("send", address=address, messages=[{"body": "one"}])
    (row,) = client.stage.admin("queues")["queues"]
    tag = client.stage.admin("receive", address=row["name"], wait_ms=10)["tag"]
    link.detach()
    client.stage.run()
    assert queues(client.stage) == [(address, 1)]
    client.stage.admin("settle", tag=tag, outcome="accepted")
    assert queues(client.stage) == []


def test_an_administrator_who_waits_for_messages_is_a_user_too() -> None:
    client = Client(Stage())
    link, address = consuming(client, SOURCES["temporary queue"])
    client.stage.ask("receive", address=address, wait_ms=1000)
    link.detach()
    client.stage.run()
    assert queues(client.stage) == [(address, 0)]
    client.stage.wait(2000)
    assert queues(client.stage) == []
    assert client.stage.admin("addresses")["addresses"] == []


def test_somebody_else_may_be_its_last_consumer() -> None:
    """By its full name anybody who may consume reaches the queue of a subscriber."""
    client = Client(Stage())
    link, _ = consuming(client, SOURCES["topic"])
    (row,) = client.stage.admin("queues")["queues"]
    other = Client(client.stage, "other")
    guest = other.receiver(f"news::{row['name']}")
    link.detach()
    client.stage.run()
    assert queues(client.stage) == [("news", 0)]
    guest.detach()
    client.stage.run()
    assert queues(client.stage) == []


def test_an_ended_subscription_that_begins_again_lasts() -> None:
    source = Source(address="news", durable=2, expiry_policy=Symbol("never"), capabilities=(Symbol("topic"),))
    client, txn_id, _ = retiring(source)  # its link was closed, which unsubscribes
    consuming(client, source)
    client.discharge(txn_id)
    client.stage.drop(client.talker)
    assert queues(client.stage) == [("news", 0)]
