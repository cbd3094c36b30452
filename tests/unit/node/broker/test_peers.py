"""What one of another protocol goes through: a step, what it has in delivery, a transport that is full or gone, a disk
that is behind, the end of its queue and of the node, and what administrators see of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.node.amqp.peers.farewell import Farewell
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import Send

from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.unit.node.amqp.peers.test_clients import Subscription

CONN = 77


class OtherPeer:
    """A connection that speaks something else, with one consumer."""

    conn, far, out_bytes, in_turns = CONN, "198.51.100.7:61613", 0, False
    is_accepted = is_blocked = False
    user, said_container_id, listener_name, sessions = "app", None, "", ()
    producers: dict[Any, None] = {}  # noqa: RUF012 - it has none

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.queue = stage.broker.store.queue_for("orders", BROKER)
        self.said: list[bytes] = []
        self.heard: list[bytes] = []
        self.acts: list[str] = []
        self.held: list[Segment] = []
        self.evicted: list[str] = []
        self.owes = self.is_gone = self.is_user_gone = False
        self.farewell = Farewell()
        self.consumers: list[Any] = [self]
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

    def admits(self) -> bool:
        self.acts.append("admitted")
        return True

    def blocked(self, is_blocked: bool) -> None:
        self.acts.append("blocked" if is_blocked else "free again")

    def pause_if_needed(self) -> None:
        self.acts.append("paused" if self.stage.broker.is_disk_full else "read again")

    def transport_gone(self, why: str) -> None:
        self.acts.append(f"gone: {why}")
        self.stage.broker.forget(cast("Any", self))

    def collect(self) -> Send | None:
        said, self.said = self.said, []
        return Send(CONN, cast("Any", said)) if said else None

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        return ((self.queue, segment) for segment in self.held)

    def clients(self) -> Iterator[Any]:
        yield from () if self.evicted else self.consumers

    def end(self, condition: str, why: str) -> None:
        self.evicted.append(condition)

    def close(self, condition: str, description: str) -> None:
        self.acts.append(f"closed: {description}")

    def close_if_gone(self) -> bool:
        self.acts.append("asked for its user")
        if self.is_user_gone:
            self.close("amqp:unauthorized-access", "its user is gone")
        return self.is_user_gone

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


def test_it_is_asked_whether_it_has_a_turn_in_a_step_that_has_done_enough(peer: OtherPeer) -> None:
    peer.stage.broker.turns.left = 0
    peer.stage.give(given.BytesReceived(CONN, b"hello"))
    peer.stage.step()
    assert (peer.heard, peer.acts) == ([b"hello"], ["admitted", "handled"])


@pytest.mark.parametrize(
    ("inputs", "acts"),
    [
        ([given.WriteBlocked(CONN, True), given.WriteBlocked(CONN, False)], ["blocked", "free again"]),
        ([given.UnsyncedBytes(1 << 40), given.UnsyncedBytes(0)], ["paused", "read again"]),
        ([given.Closed(CONN, "reset")], ["gone: reset"]),
    ],
)
def test_it_hears_of_its_transport_and_of_the_disk(peer: OtherPeer, inputs: list[given.Input], acts: list[str]) -> None:
    for each in inputs:
        peer.stage.give(each)
    peer.stage.step()
    assert peer.acts == acts


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


@pytest.mark.parametrize(
    ("is_user_gone", "acts", "conditions"),
    [
        (True, ["asked for its user", "closed: its user is gone"], []),
        (False, ["asked for its user"], ["amqp:unauthorized-access"]),
    ],
)
def test_a_reload_closes_it_without_its_user_and_else_ends_its_consumer_without_permission(
    peer: OtherPeer, is_user_gone: bool, acts: list[str], conditions: list[str]
) -> None:
    stage, peer.is_user_gone = peer.stage, is_user_gone
    consumer = Subscription(stage, "shop")
    consumer.conn = CONN
    tables = options_with(security_settings={"#": {"consume": ["client"]}}).security_settings
    stage.give(given.OptionsChanged(replace(stage.options, security_settings=tables), {}))
    stage.run()
    assert peer.acts == acts
    assert [condition for condition, _ in consumer.ended] == conditions


def test_administrators_see_it_and_may_close_it(peer: OtherPeer) -> None:
    (row,) = peer.stage.admin("connections")["connections"]
    names = ("connection", "peer", "user", "container_id", "sessions", "links", "unsettled")
    assert [row[name] for name in names] == [CONN, peer.far, "app", None, 0, 0, 0]
    for name in ("sessions", "producers"):
        assert peer.stage.admin(name)[name] == []
    assert peer.stage.admin("connection-close", connection=CONN) == {"closed": 1}
    assert peer.acts == ["closed: an administrator closes the connection"]


def test_administrators_see_its_consumers_once_beside_those_of_others(peer: OtherPeer) -> None:
    consumer, stranger = Subscription(peer.stage), Subscription(peer.stage)
    consumer.conn, consumer.credit, peer.consumers = CONN, 7, [consumer]
    conn = peer.stage.accept()
    peer.stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.receiver())
    listed = peer.stage.admin("consumers")["consumers"]
    rows = {row["connection"]: row for row in listed}
    assert sorted(rows) == sorted(row["connection"] for row in listed) == [stranger.conn, conn, CONN]
    assert rows[CONN] == {
        "connection": CONN, "peer": peer.far, "user": "app", "container_id": None, "channel": None,
        "link": "subscription-1", "queue": "orders", "address": "orders", "credit": 7, "unsettled": None,
        "delivered": None, "lag": 0, "idle_ms": None, "browser": False, "selector": "",
    }  # fmt: skip
    for wanted in ({"connection": CONN}, {"user": "app"}, {"connection": CONN, "queue": "orders"}):
        assert peer.stage.admin("consumers", **wanted)["consumers"] == [rows[CONN]], wanted
    assert peer.stage.admin("consumers", queue="others")["consumers"] == []


def test_a_container_id_that_is_empty_is_not_one_that_was_not_said(peer: OtherPeer) -> None:
    stage = peer.stage
    silent, nameless = stage.accept(), stage.accept()
    stage.talk(nameless, frames.anonymous() + frames.opened(container_id=""))
    said = {row["connection"]: row["container_id"] for row in stage.admin("connections")["connections"]}
    assert said == {CONN: None, silent: None, nameless: ""}
    assert stage.admin("connection-close", container_id="") == {"closed": 1}
