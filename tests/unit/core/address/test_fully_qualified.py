"""Queues that are named with their address: who makes them, and as what."""

from __future__ import annotations

import pytest
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.unit.admin.site import Site

GO = frames.anonymous() + frames.opened() + frames.begun()
NAME = "sales::invoices"


def attach(is_receiver: bool, capabilities: tuple[Symbol, ...], address: str = NAME) -> bytes:
    source = Source(address=address, capabilities=capabilities) if is_receiver else Source()
    target = Target() if is_receiver else Target(address=address, capabilities=capabilities)
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


TOPIC, QUEUE = (Symbol("topic"),), (Symbol("queue"),)


@pytest.mark.option("address-settings.auto-create-addresses")
@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
@pytest.mark.parametrize("address", [NAME, "sales"])
@pytest.mark.parametrize("wanted", [TOPIC, QUEUE], ids=["topic", "queue"])
def test_addresses_may_be_for_administrators_to_make(
    is_receiver: bool, address: str, wanted: tuple[Symbol, ...]
) -> None:
    stage = Stage(options_with(address_settings={"#": {"auto_create_addresses": False}}))
    said = stage.talk(stage.accept(), GO + attach(is_receiver, wanted, address))
    assert frames.errors(said) == [("Detach", "amqp:not-found")]
    stage.admin("queue-create", name="other", address="sales")
    assert frames.errors(stage.talk(stage.accept(), GO + attach(is_receiver, wanted, address))) == []


@pytest.mark.parametrize("is_receiver", [True, False], ids=["receiver", "sender"])
def test_topics_need_no_queue_to_be_made(is_receiver: bool) -> None:
    stage = Stage(options_with(address_settings={"#": {"auto_create_queues": False}}))
    assert frames.errors(stage.talk(stage.accept(), GO + attach(is_receiver, TOPIC, "sales"))) == []
    assert [row["name"] for row in stage.admin("addresses")["addresses"]] == ["sales"]


@pytest.mark.parametrize("wanted", ["temporary-topic", "temporary-queue"])
def test_temporary_ones_are_made_all_the_same(wanted: str) -> None:
    stage = Stage(options_with(address_settings={"#": {"auto_create_addresses": False, "auto_create_queues": False}}))
    source = Source(dynamic=True, capabilities=(Symbol(wanted),))
    asked = frames.frame(Attach(name="x", handle=0, role=True, source=source, target=Target()))
    assert frames.errors(stage.talk(stage.accept(), GO + asked)) == []


def test_an_address_is_consumed_from_by_its_name_also_where_its_queue_has_another() -> None:
    stage = Stage()
    stage.admin("queue-create", name="copies", address="sales", routing_type="multicast")
    stage.admin("queue-create", name="invoices", address="sales")
    stage.admin("send", address="sales", messages=[{"body": "x"}])
    conn = stage.accept()
    said = stage.talk(conn, GO + attach(True, (), "sales") + frames.flow(0, 10))
    assert sum(isinstance(each, tuple) for each in frames.heard(said)) == 1
    found = {row["name"]: row["delivering_count"] for row in stage.admin("queues")["queues"]}
    assert found == {"copies": 0, "invoices": 1}
    # A queue of the address's own name comes first.
    stage.admin("queue-create", name="sales")
    stage.admin("send", address="sales", messages=[{"body": "x"}] * 2)
    stage.talk(stage.accept(), GO + attach(True, (), "sales") + frames.flow(0, 10))
    assert {row["name"]: row["delivering_count"] for row in stage.admin("queues")["queues"]}["sales"] == 1


def test_an_administrator_sends_to_one_queue_alone_too() -> None:
    site = Site()
    for name in ("a", "b"):
        site.do("queue-create", name=name, address="news", routing_type="multicast")
    site.send("news::a", "one")
    assert site.counts() == {"a": 1, "b": 0}
    for wrong in ("news::", "::a", "other::a"):
        assert site.refused("send", address=wrong, messages=[{"body": "x"}])[0].startswith("amqp:")
    assert site.counts() == {"a": 1, "b": 0}
