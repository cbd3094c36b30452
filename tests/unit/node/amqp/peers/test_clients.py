"""A consumer that has no AMQP link, as one of another protocol has none, is dealt with like any other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.base.errors import Refused
from mqbroker.core.address.permissions import BROKER, CONSUME, Actor
from mqbroker.core.queue.queue import Client, Filter, Queue, Segment
from mqbroker.core.selector.selector import compile_selector
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Attach, Source, Target

from tests.support import frames
from tests.support.cluster_stage import ClusterStage
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun()
CONN = -7


class Subscription:
    """A consumer of a connection that speaks something else."""

    priority: int = 0
    is_browser: bool = False
    is_departing: bool = False
    conn, far, name = CONN, "198.51.100.7:61613", "subscription-1"

    def __init__(
        self, stage: Stage, role: str = "client", wanted: Filter | None = None, queue_name: str = "orders"
    ) -> None:
        self.stage, self.role, self.filter = stage, role, wanted
        self.queue = stage.broker.store.queue_for(queue_name, BROKER)
        self.credit, self.settled_count = 0, 0
        self.held: list[Segment] = []
        self.ended: list[tuple[str, str]] = []
        self.closed: list[tuple[str, str]] = []
        stage.broker.termini.join(self)

    @property
    def client(self) -> Client:
        return self

    @property
    def is_there(self) -> bool:
        return not self.ended

    @property
    def has_unsettled(self) -> bool:
        return bool(self.held)

    def capacity(self) -> int:
        return self.credit - len(self.held)

    def deliver(self, queue: Queue, segment: Segment) -> int:
        self.held.append(segment.part(segment.start, 1))
        return 1

    def refusal(self) -> Refused | None:
        broker = self.stage.broker
        try:
            broker.store.permit(Actor("app", (self.role,), self.conn), CONSUME, self.queue.kind.address)
        except Refused as refused:
            return refused
        return None

    def end(self, condition: str, why: str) -> None:
        self.ended.append((condition, why))
        for segment in self.held:
            self.stage.broker.store.give_back(self.queue, segment, was_delivered=False)
        self.stage.broker.store.leave(self.queue, self)

    def part(self) -> None:
        """Nothing is handed back by turns here."""

    def close(self, condition: str, why: str) -> None:
        self.closed.append((condition, why))


def site(**tables: Any) -> Stage:
    stage = Stage(options_with(**tables))
    stage.admin("queue-create", name="orders")
    return stage


def test_other_nodes_hear_of_it_and_send_it_messages() -> None:
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"]), cluster.node("b", ["a"])
    cluster.run()
    cluster.wait(600)
    for node in (a, b):
        node.admin("queue-create", name="orders")
    cluster.run()
    (remote,) = a.broker.store.remotes.by_name.values()
    consumer = Subscription(b, wanted=compile_selector("colour = 'red'"))
    b.give(given.UnsyncedBytes(0))
    cluster.run()
    assert (remote.binding.consumers_count, list(remote.binding.consumer_filters)) == (1, ["colour = 'red'"])
    consumer.credit = 3
    rows = [{"body": colour, "application_properties": {"colour": colour}} for colour in ("red", "blue", "red")]
    a.admin("send", address="orders", messages=rows)
    cluster.run()
    held = [consumer.queue.kind.name, *(segment.n for segment in consumer.held)]
    assert held == ["orders", 1, 1], "what it wants is here, and what it does not want stayed there"
    assert (a.broker.store.queues["orders"].ready_count, b.broker.store.queues["orders"].message_count) == (1, 2)
    consumer.end("", "")
    b.give(given.UnsyncedBytes(0))
    cluster.run()
    assert remote.binding.consumers_count == 0


def test_administrators_see_it_beside_those_that_have_links() -> None:
    stage = site()
    consumer = Subscription(stage, wanted=compile_selector("colour = 'red'"))
    consumer.credit = 7
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver())
    linked, row = stage.admin("consumers")["consumers"]
    assert (linked["connection"], linked["link"]) == (conn, "r1")
    assert row == {
        "connection": CONN, "peer": consumer.far, "user": None, "container_id": None, "channel": None,
        "link": "subscription-1", "queue": "orders", "address": "orders", "credit": 7, "unsettled": None,
        "delivered": None, "lag": 0, "idle_ms": None, "browser": False, "selector": "colour = 'red'",
    }  # fmt: skip
    assert stage.admin("consumers", connection=CONN, queue="orders")["consumers"] == [row]
    assert stage.admin("consumers", connection=conn)["consumers"] == [linked]
    assert stage.admin("consumers", user="app")["consumers"] == []
    assert stage.admin("consumers", queue="others")["consumers"] == []


@pytest.mark.parametrize("policy", ["NOTIFY", "KILL"])
def test_it_is_told_of_and_closed_where_it_is_slow(policy: str) -> None:
    stage = site(address_settings={"#": {"slow_consumer_threshold": 2, "slow_consumer_policy": policy}})
    consumer = Subscription(stage)
    stage.admin("send", address="orders", messages=[{"body": "x"}] * 10)
    stage.wait(21_000)
    (told,) = [each.fields for each in stage.notices if each.event == "consumer-slow"]
    assert (told["conn"], told["peer"], told["queue"], told["settled"]) == (CONN, consumer.far, "orders", 0)
    assert [condition for condition, _ in consumer.closed] == ["amqp:connection:forced"] * (policy == "KILL")


def test_it_is_ended_where_its_queue_is_deleted() -> None:
    stage = site()
    consumer = Subscription(stage)
    consumer.credit = 1
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver())
    stage.admin("send", address="orders", messages=[{"body": "x"}])
    assert stage.admin("queue-delete", name="orders", force=True)["messages"] == 1
    assert [condition for condition, _ in consumer.ended] == ["amqp:resource-deleted"]
    assert frames.errors(bytes(stage.sent[conn])) == [("Detach", "amqp:resource-deleted")]


def test_it_is_ended_where_its_temporary_queue_goes_with_whoever_made_it() -> None:
    stage = site()
    conn = stage.accept()
    attach = Attach(name="t", handle=1, role=True, source=Source(dynamic=True), target=Target())
    stage.talk(conn, GO + frames.frame(attach))
    (name,) = stage.broker.temporary
    consumer = Subscription(stage, queue_name=name)
    stage.talk(conn, frames.detach(1))
    stage.run()
    assert name not in stage.broker.store.queues
    assert [condition for condition, _ in consumer.ended] == ["amqp:resource-deleted"]


@pytest.mark.parametrize("role", ["shop", "client"])
def test_it_is_ended_where_it_may_not_receive_any_more(role: str) -> None:
    stage = site(security_settings={"#": {"consume": ["client", "shop"], "create_address": ["client"]}})
    consumer = Subscription(stage, role)
    tables = options_with(security_settings={"#": {"consume": ["client"]}}).security_settings
    stage.give(given.OptionsChanged(replace(stage.options, security_settings=tables), {}))
    stage.run()
    told = [each.fields for each in stage.notices if each.event == "link-revoked"]
    is_gone = role == "shop"
    assert [condition for condition, _ in consumer.ended] == ["amqp:unauthorized-access"] * is_gone
    assert [(each["conn"], each["link"]) for each in told] == [(CONN, "subscription-1")] * is_gone
