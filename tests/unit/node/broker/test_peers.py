"""What one of another protocol goes through: a step, what it has in delivery, the end of its queue and of the node.

That its transport is full or gone, or the disk behind, is asked of AMQP's machine so far, and so are the lists for
administrators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import Send

from tests.support.stage import Stage

CONN = 77


class OtherPeer:
    """A connection that speaks something else, with one consumer."""

    conn, far, out_bytes, in_turns = CONN, "198.51.100.7:61613", 0, False
    is_accepted = False
    producers: dict[Any, None] = {}  # noqa: RUF012 - it has none

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.queue = stage.broker.store.queue_for("orders", BROKER)
        self.said: list[bytes] = []
        self.heard: list[bytes] = []
        self.acts: list[str] = []
        self.held: list[Segment] = []
        self.evicted: list[str] = []
        self.owes = self.is_gone = False
        stage.broker.peers[CONN] = cast("Any", self)

    def tell(self, data: bytes) -> None:
        self.said.append(data)
        self.stage.broker.touched[CONN] = cast("Any", self)

    def handle_events(self) -> None:
        self.acts.append("handled")

    def received(self, data: bytes) -> int:
        self.heard.append(data)
        self.tell(b"heard " + data)
        return 1

    def collect(self) -> Send | None:
        said, self.said = self.said, []
        return Send(CONN, cast("Any", said)) if said else None

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        return ((self.queue, segment) for segment in self.held)

    def clients(self) -> Iterator[Any]:
        yield from () if self.evicted else (self,)

    def end(self, condition: str, why: str) -> None:
        self.evicted.append(condition)

    def call_off(self, why: str) -> None:
        self.acts.append(f"called off: {why}")

    def stop(self, why: str) -> None:
        self.acts.append(f"stopped: {why}")


@pytest.fixture
def peer() -> OtherPeer:
    return OtherPeer(Stage())


def test_what_it_says_is_taken_in_and_what_it_is_told_goes_out_with_the_step(peer: OtherPeer) -> None:
    peer.stage.give(given.BytesReceived(CONN, b"hello"))
    batch = peer.stage.step()
    assert peer.heard == [b"hello"]
    assert [each.chunks for each in batch.effects if isinstance(each, Send)] == [[b"heard hello"]]
    assert peer.acts == ["handled"]


def test_what_it_has_is_in_delivery(peer: OtherPeer) -> None:
    peer.stage.admin("send", address="orders", messages=[{"body": "x"}] * 3)
    peer.held.append(peer.queue.take(2))
    assert list(peer.stage.broker.store.in_delivery()) == [(peer.queue, peer.held[0])]


def test_its_consumer_is_ended_with_its_queue(peer: OtherPeer) -> None:
    peer.queue.arriving_count = 1
    peer.stage.admin("queue-delete", name="orders", force=True)
    assert peer.evicted == ["amqp:resource-deleted"]


def test_it_is_answered_and_closed_where_the_node_stops(peer: OtherPeer) -> None:
    peer.stage.stop()
    assert peer.acts == ["called off: the broker stops", "stopped: the broker stops"]


def test_it_is_left_alone_by_what_concerns_clients_of_listeners(peer: OtherPeer) -> None:
    assert list(peer.stage.broker.departing.clients()) == []
    peer.stage.admin("config-reload")
    assert peer.evicted == []
