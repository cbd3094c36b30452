"""Marks of messages on links between nodes: said once, understood or refused, and left out by older releases."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp.session import FIRST_ID, MARK, NUMBER_MAX
from mqbroker.core.cluster.marks import Marks
from mqbroker.node.values.effects import Send
from mqbroker.wire.types import ULong

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer


def pair() -> tuple[ClusterStage, ClusterNode, ClusterNode, Consumer]:
    """Two nodes, and a consumer at b."""
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"]), cluster.node("b", ["a"])
    cluster.run()
    cluster.wait(600)
    consumer = Consumer(b, credit=1000)
    cluster.run()
    return cluster, a, b, consumer


def said(node: ClusterNode, text: bytes) -> int:
    """How often it is in what a node has sent."""
    sends = [effect for batch in node.batches for effect in batch.effects if isinstance(effect, Send)]
    return sum(b"".join(map(bytes, send.chunks)).count(text) for send in sends)


def test_a_link_says_its_mark_once_whatever_goes_over_it() -> None:
    cluster, a, b, consumer = pair()
    producer, other = Producer(a), Producer(a, "other", "elsewhere")
    for number in range(20):
        producer.publish(b"%d" % number)
        other.publish(b"a number that the link does not see")
    cluster.run()
    assert len(consumer.bodies) == 20
    assert (said(a, b"mq:mark"), said(a, a.broker.boot_id.encode()) > 0) == (1, True)
    assert said(a, b"mq:first-id") == 20
    (key,) = b.broker.store.arrivals._ranges
    assert key.endswith(f"#{a.broker.boot_id}")


@pytest.mark.parametrize(
    "bad",
    [
        {FIRST_ID: ULong(1), MARK: "a#b"}, {FIRST_ID: ULong(1), MARK: "a.b"}, {FIRST_ID: ULong(1), MARK: "a" * 65},
        {FIRST_ID: ULong(1), MARK: ULong(7)}, {FIRST_ID: ULong(1), MARK: b"m"}, {FIRST_ID: "1"}, {FIRST_ID: None},
        {FIRST_ID: -1}, {FIRST_ID: ULong(NUMBER_MAX + 1)}, {FIRST_ID: ULong(2**64 - 1)},
    ],
)  # fmt: skip
def test_what_is_no_number_or_no_mark_ends_the_link_and_nothing_else(bad: dict[Any, Any]) -> None:
    cluster, a, _, consumer = pair()
    Producer(a).publish(b"first")
    cluster.run()
    (link,) = [each.link for each in a.bridge("b").peer.forwards.consumers.values()]  # type: ignore[union-attr]
    link.session.send_flow(link, bad)
    a.bridge("b").peer.touch()  # type: ignore[union-attr]
    a.step()
    cluster.run()
    (refused,) = a.events("forwarding-refused")
    assert refused["why"].startswith("amqp:invalid-field: mq:first-id is a number")
    cluster.wait(2_000)
    Producer(a, "again").publish(b"second")
    cluster.run()
    assert (a.state("b"), consumer.bodies) == ("up", [b"first", b"second"])


def test_what_an_older_release_sent_is_known_when_it_is_sent_again_by_a_newer_one() -> None:
    """It numbers without marks; the node is stopped with messages that the other one has and has not answered."""
    cluster, a, b, consumer = pair()
    a.broker.store.remotes.marks = Marks()
    a.broker.journal.duplicates.drop("$.marks")
    b.is_disk_held = True
    producer = Producer(a)
    for number in range(5):
        producer.publish(b"%d" % number)
    cluster.run()
    assert list(b.broker.store.arrivals._ranges) == list(b.broker.store.arrivals._keys)  # without a mark
    a.crash()
    a.start()
    cluster.wait(3_000)
    producer = Producer(a)
    for number in range(5, 10):
        producer.publish(b"%d" % number)
    b.is_disk_held = False
    cluster.wait(3_000)
    assert sorted(consumer.bodies) == [b"%d" % number for number in range(10)]
    assert b.broker.store.arrivals.dropped_total == 5
    assert len(b.broker.store.arrivals._ranges) == 2
