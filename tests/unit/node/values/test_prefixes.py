"""Prefixes that say which routing is meant: on both kinds of links, in messages, in transactions; and what is said."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.config.file.load import parse
from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values.prefixes import Prefixes, TerminusPlace
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Declare,
    Discharge,
    Disposition,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from mqbroker.wire.sections import Properties, build_message
from mqbroker.wire.types import Symbol

from tests.golden.conversation import Conversation, ScriptStage
from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.support.transactions import coordinator_attach, request

PREFIXES = {"anycast_prefix": ("queue://",), "multicast_prefix": ("topic://",)}
GO = frames.anonymous() + frames.opened() + frames.begun()
ROUTING_TYPES = ["ANYCAST", "MULTICAST"]
RELAY = Attach(
    name="out", handle=1, role=False, snd_settle_mode=0, source=Source(), target=Target(), initial_delivery_count=0
)


def site(listener: dict[str, Any] | None = None, default: str = "ANYCAST", **tables: Any) -> tuple[Stage, int]:
    """A node whose settings would have it otherwise, and a connection to it."""
    settings = {"#": {"default_address_routing_type": default}}
    stage = Stage(options_with(PREFIXES if listener is None else listener, address_settings=settings, **tables))
    conn = stage.accept()
    stage.talk(conn, GO)
    return stage, conn


def routing(stage: Stage) -> dict[str, str]:
    """Queues and their routing types; the address of each is `orders`."""
    assert [row["name"] for row in stage.admin("addresses")["addresses"]] == ["orders"]
    return {row["name"]: row["routing_type"] for row in stage.admin("queues")["queues"]}


def delivering(stage: Stage) -> list[int]:
    return [row["delivering_count"] for row in stage.admin("queues")["queues"]]


@pytest.mark.option("listeners.anycast-prefix")
@pytest.mark.parametrize("said", [frames.sender("queue://orders"), frames.receiver("queue://orders")])
def test_a_link_to_a_queue(said: bytes) -> None:
    stage, conn = site(default="MULTICAST")
    assert frames.errors(stage.talk(conn, said)) == []
    assert routing(stage) == {"orders": "anycast"}
    # Without the option it is the name of another address.
    stage, conn = site({})
    stage.talk(conn, said)
    assert [row["name"] for row in stage.admin("addresses")["addresses"]] == ["queue://orders"]


@pytest.mark.option("listeners.anycast-prefix", "listeners.multicast-prefix")
@pytest.mark.parametrize(
    ("said", "prefixes"),
    [
        ("", ()),
        ('= ""', ()),
        ("= []", ()),
        ('= "queue://"', ("queue://",)),
        ('= "queue://, jms.queue."', ("queue://", "jms.queue.")),
        ('= ["queue://", "jms.queue."]', ("queue://", "jms.queue.")),
    ],
)
@pytest.mark.parametrize("option", ["anycast", "multicast"])
def test_several_prefixes(option: str, said: str, prefixes: tuple[str, ...]) -> None:
    line = f"{option}-prefix {said}" if said else ""
    options = parse(f'[[listeners]]\nname = "a"\nport = 1\n{line}\n')
    assert isinstance(options, BrokerOptions), options
    found = Prefixes.of(options.listeners[0])
    assert getattr(found, option) == prefixes
    for prefix in prefixes:
        assert found.place_of(f"{prefix}orders") == TerminusPlace("orders", option)
        stage, conn = site({f"{option}_prefix": prefixes})
        stage.talk(conn, frames.receiver(f"{prefix}orders"))
        assert list(routing(stage).values()) == [option]


@pytest.mark.option("listeners.multicast-prefix")
def test_links_to_a_topic() -> None:
    stage, conn = site()
    stage.talk(conn, frames.sender("topic://orders"))
    assert routing(stage) == {}
    stage.talk(conn, frames.receiver("topic://orders", credit=10))
    assert list(routing(stage).values()) == ["multicast"]
    stage.talk(conn, frames.transfer(0))
    assert delivering(stage) == [1]
    stage, conn = site({})
    stage.talk(conn, frames.receiver("topic://orders"))
    assert [row["routing_type"] for row in stage.admin("queues")["queues"]] == ["anycast"]


@pytest.mark.parametrize("name", ["queue://orders", "topic://orders", "orders", "queue://orders::one"])
def test_clients_are_answered_with_the_name_that_they_used(name: str) -> None:
    stage, conn = site()
    (attach,) = frames.of_kind(stage.talk(conn, frames.sender(name)), Attach)
    assert (attach.target.address, attach.target.capabilities) == (name, None)
    (attach,) = frames.of_kind(stage.talk(conn, frames.receiver(name)), Attach)
    assert (attach.source.address, attach.source.capabilities) == (name, None)


@pytest.mark.parametrize("default", ROUTING_TYPES)
def test_the_prefix_counts_and_not_the_capability(default: str) -> None:
    stage, conn = site(default=default)
    source = Source(address="queue://orders", capabilities=(Symbol("topic"), Symbol("shared")))
    stage.talk(conn, frames.frame(Attach(name="r", handle=0, role=True, source=source, target=Target())))
    assert routing(stage) == {"orders": "anycast"}


def test_one_queue_of_an_address() -> None:
    stage, conn = site()
    stage.talk(conn, frames.sender("topic://orders::one") + frames.receiver("queue://orders::two"))
    assert routing(stage) == {"one": "multicast", "two": "anycast"}


def test_permissions_are_those_of_the_address() -> None:
    stage, conn = site(security_settings={"orders": {"send": ["nobody"]}})
    said = stage.talk(conn, frames.sender("queue://orders"))
    assert frames.errors(said) == [("Detach", "amqp:unauthorized-access")]
    assert stage.admin("addresses")["addresses"] == []


def test_a_prefix_and_nothing_behind_it() -> None:
    stage, conn = site()
    assert frames.errors(stage.talk(conn, frames.sender("queue://"))) == [("Detach", "amqp:invalid-field")]


@pytest.mark.parametrize(("default", "prefix"), [("MULTICAST", "queue://"), ("ANYCAST", "topic://")])
def test_messages_that_name_their_target_themselves(default: str, prefix: str) -> None:
    script = Conversation()
    settings = {"#": {"default_address_routing_type": default}, "moved": {"redirect_to": "b2.example:5671"}}
    script.stage = ScriptStage(script, listener=PREFIXES, address_settings=settings)
    script.run("connect c")
    script.run("attach c to nobody")
    assert script.run(f"publish c nobody to={prefix}orders") == ["c learns accepted: m1"]
    assert routing(script.stage) == ({"orders": "anycast"} if prefix == "queue://" else {})
    assert script.run(f"publish c nobody to={prefix}") == ["c learns rejected (amqp:invalid-field): m2"]
    assert script.run(f"publish c nobody to={prefix}moved") == ["c learns rejected (amqp:link:redirect): m3"]


@pytest.mark.parametrize(("default", "prefix"), [("MULTICAST", "queue://"), ("ANYCAST", "topic://")])
@pytest.mark.parametrize("is_anonymous", [True, False])
def test_sends_within_a_transaction(default: str, prefix: str, is_anonymous: bool) -> None:
    stage, conn = site(default=default)
    (declared,) = frames.of_kind(
        stage.talk(conn, frames.frame(coordinator_attach()) + request(0, Declare())), Disposition
    )
    txn_id = declared.state.txn_id
    stage.talk(conn, frames.receiver(prefix + "orders", 2, credit=10))
    out = frames.frame(RELAY) if is_anonymous else frames.sender(prefix + "orders", handle=1, mode=0)
    stage.talk(conn, out)
    head = Transfer(handle=1, delivery_id=1, delivery_tag=b"1", message_format=0, settled=False,
                    state=TransactionalState(txn_id=txn_id))  # fmt: skip
    payload = build_message(b"x", properties=Properties(to=prefix + "orders"))
    (answer,) = frames.of_kind(stage.talk(conn, frames.frame(head, payload)), Disposition)
    assert isinstance(answer.state.outcome, Accepted)
    said = stage.talk(conn, request(2, Discharge(txn_id=txn_id, fail=False)))
    assert [isinstance(each.state, Accepted) for each in frames.of_kind(said, Disposition)] == [True]
    assert delivering(stage) == [1]
    assert list(routing(stage).values()) == ["anycast" if prefix == "queue://" else "multicast"]


@pytest.mark.parametrize(("default", "prefix"), [("MULTICAST", "queue://"), ("ANYCAST", "topic://")])
def test_a_commit_makes_what_was_asked_for(default: str, prefix: str) -> None:
    stage, conn = site(default=default)
    (declared,) = frames.of_kind(
        stage.talk(conn, frames.frame(coordinator_attach()) + request(0, Declare())), Disposition
    )
    state = TransactionalState(txn_id=declared.state.txn_id)
    head = Transfer(handle=1, delivery_id=1, delivery_tag=b"1", message_format=0, settled=False, state=state)
    payload = build_message(b"x", properties=Properties(to=prefix + "orders"))
    stage.talk(conn, frames.frame(RELAY) + frames.frame(head, payload))
    stage.talk(conn, request(2, Discharge(txn_id=declared.state.txn_id, fail=False)))
    assert routing(stage) == ({"orders": "anycast"} if prefix == "queue://" else {})


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("orders", TerminusPlace("orders")),
        ("jms.orders", TerminusPlace("orders", "anycast")),
        ("jms.topic.news", TerminusPlace("news", "multicast")),
        ("a jms.orders", TerminusPlace("a jms.orders")),
        ("", TerminusPlace("")),
    ],
)
def test_the_longer_prefix_counts(name: str, place: TerminusPlace) -> None:
    assert Prefixes(("jms.",), ("jms.topic.",)).place_of(name) == place
    assert Prefixes().place_of(name) == TerminusPlace(name)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('anycast-prefix = "a"\nmulticast-prefix = "a"', "must differ from anycast-prefix"),
        ('anycast-prefix = ["b", "a"]\nmulticast-prefix = "c,a"', "must differ from anycast-prefix: a"),
        ('anycast-prefix = "a,,b"', "must be 1 to 100 characters"),
        ('anycast-prefix = ["a,b"]', "a comma"),
        ('anycast-prefix = ["a", "a"]', "twice"),
        ("anycast-prefix = 5", "must be a list"),
        ('anycast-prefix = "a b"', "none of them a blank"),
        (f'multicast-prefix = "{"x" * 101}"', "1 to 100 characters"),
    ],
)
def test_prefixes_that_mean_nothing_are_faults(said: str, why: str) -> None:
    found = parse(f'[[listeners]]\nname = "a"\nport = 1\n{said}\n')
    assert isinstance(found, list)
    assert [why in each.why for each in found] == [True]
