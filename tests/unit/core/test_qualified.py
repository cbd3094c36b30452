"""Queues that are named with their address: who makes them, and as what."""

from __future__ import annotations

import pytest
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun()
NAME = "sales::invoices"


def attach(is_receiver: bool, capabilities: tuple[Symbol, ...]) -> bytes:
    source = Source(address=NAME, capabilities=capabilities) if is_receiver else Source()
    target = Target() if is_receiver else Target(address=NAME, capabilities=capabilities)
    count = None if is_receiver else 0
    return frames.frame(
        Attach(name="x", handle=0, role=is_receiver, source=source, target=target, initial_delivery_count=count)
    )


@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
@pytest.mark.parametrize(
    ("settings", "wanted", "routing"),
    [
        ({}, (), "anycast"),
        ({"default_address_routing_type": "MULTICAST"}, (), "multicast"),
        ({}, (Symbol("topic"),), "multicast"),
        ({"default_address_routing_type": "MULTICAST"}, (Symbol("queue"),), "anycast"),
    ],
)
def test_who_comes_first_makes_it(
    is_receiver: bool, settings: dict[str, str], wanted: tuple[Symbol, ...], routing: str
) -> None:
    stage = Stage(options_with(address_settings={"#": settings}))
    assert frames.errors(stage.talk(stage.accept(), GO + attach(is_receiver, wanted))) == []
    (row,) = stage.admin("queues")["queues"]
    assert (row["name"], row["address"], row["routing_type"], row["durable"]) == ("invoices", "sales", routing, True)


@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
def test_nobody_makes_it_where_queues_are_made_by_administrators(is_receiver: bool) -> None:
    stage = Stage(options_with(address_settings={"#": {"auto_create_queues": False}}))
    said = stage.talk(stage.accept(), GO + attach(is_receiver, ()))
    assert frames.errors(said) == [("Detach", "amqp:not-found")]
    stage.admin("queue-create", name="invoices", address="sales")
    assert frames.errors(stage.talk(stage.accept(), GO + attach(is_receiver, ()))) == []


def test_what_is_sent_to_it_reaches_it_alone() -> None:
    stage = Stage()
    assert stage.admin("send", address="sales", messages=[{"body": "x"}]) == {"accepted": 1}
    conn = stage.accept()
    stage.talk(conn, GO + attach(is_receiver=False, capabilities=()) + frames.transfer(0))
    counts = {row["name"]: row["message_count"] for row in stage.admin("queues")["queues"]}
    assert counts == {"sales": 1, "invoices": 1}
