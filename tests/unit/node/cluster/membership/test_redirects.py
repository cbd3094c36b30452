"""Addresses that another broker has: attaches in bytes, and where their error sends the peer."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp.redirect import RedirectPlace, redirect_of
from mqbroker.config.file.load import parse
from mqbroker.wire.performatives import (
    Attach,
    Declare,
    Detach,
    Discharge,
    Disposition,
    Rejected,
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
from tests.unit.admin.site import Site

MOVED = {"moved.#": {"redirect_to": "b2.example:5671"}, "moved.back": {"redirect_to": ""}}


def talk(stage: Stage, said: bytes) -> bytes:
    return stage.talk(stage.accept(), frames.anonymous() + frames.opened() + frames.begun() + said)


def place_in(said: bytes) -> RedirectPlace | None:
    """Where the one detach sends the peer."""
    (detach,) = frames.of_kind(said, Detach)
    assert detach.closed
    return redirect_of(detach.error)


@pytest.mark.option("address-settings.redirect-to")
@pytest.mark.parametrize("address", ["moved.orders", "moved", "moved.orders::one"])
def test_both_directions_are_sent_on(address: str) -> None:
    stage = Stage(options_with(address_settings=MOVED))
    said = talk(stage, frames.sender(address))
    assert place_in(said) == RedirectPlace("b2.example", 5671, address)
    (detach,) = frames.of_kind(said, Detach)
    assert detach.error.condition == "amqp:link:redirect"
    assert detach.error.info[Symbol("hostname")] == "b2.example"
    (attach,) = frames.of_kind(said, Attach)
    assert attach.target is None
    said = talk(stage, frames.receiver(address, credit=1))
    assert place_in(said) == RedirectPlace("b2.example", 5671, address)
    (attach,) = frames.of_kind(said, Attach)
    assert attach.source is None
    # Nothing was made here for them.
    assert stage.admin("queues")["queues"] == []
    assert stage.admin("addresses")["addresses"] == []


@pytest.mark.parametrize("fields", [{"capabilities": (Symbol("topic"),)}, {"distribution_mode": Symbol("copy")}])
def test_subscribers_and_browsers_are_sent_on_as_well(fields: dict[str, Any]) -> None:
    stage = Stage(options_with(address_settings=MOVED))
    attach = Attach(name="r", handle=0, role=True, source=Source(address="moved.news", **fields), target=Target())
    assert place_in(talk(stage, frames.frame(attach))) == RedirectPlace("b2.example", 5671, "moved.news")


def test_a_queue_is_where_its_address_is_and_others_stay() -> None:
    stage = Stage(options_with(address_settings=MOVED))
    stage.admin("queue-create", name="jobs", address="moved.jobs")
    assert place_in(talk(stage, frames.receiver("jobs"))) == RedirectPlace("b2.example", 5671, "jobs")
    for address in ("moved.back", "orders"):
        assert frames.errors(talk(stage, frames.sender(address) + frames.receiver(address))) == []


def test_a_reload_sends_on_who_comes_and_leaves_who_is_there() -> None:
    site = Site()
    stage = site.stage
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender("moved.orders"))
    stage.options = options_with(address_settings=MOVED)
    site.do("config-reload")
    (answer,) = frames.of_kind(stage.talk(conn, frames.transfer(0)), Disposition)
    assert not isinstance(answer.state, Rejected)
    assert place_in(stage.talk(conn, frames.receiver("moved.orders", 2))) is not None
    stage.options = options_with()
    site.do("config-reload")
    assert frames.errors(stage.talk(conn, frames.receiver("moved.orders", 3))) == []


def test_who_may_not_send_learns_no_place() -> None:
    stage = Stage(options_with(address_settings=MOVED, security_settings={"#": {"consume": ["other"]}}))
    for said in (frames.sender("moved.orders"), frames.receiver("moved.orders")):
        assert frames.errors(talk(stage, said)) == [("Detach", "amqp:unauthorized-access")]


def test_temporary_queues_are_where_their_maker_is() -> None:
    stage = Stage(options_with(address_settings={"#": {"redirect_to": "b2.example:5671"}}))
    conn = stage.accept()
    dynamic = Attach(name="r", handle=0, role=True, source=Source(dynamic=True), target=Target())
    said = stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.frame(dynamic))
    (attach,) = frames.of_kind(said, Attach)
    assert frames.errors(stage.talk(conn, frames.sender(attach.source.address, 1))) == []


def test_messages_that_name_such_an_address_themselves_are_rejected() -> None:
    script = Conversation()
    script.stage = ScriptStage(script, address_settings=MOVED)
    script.run("connect c")
    script.run("attach c to nobody")
    assert script.run("publish c nobody to=moved.orders") == ["c learns rejected (amqp:link:redirect): m1"]
    assert script.run("publish c nobody to=moved.orders::x") == ["c learns rejected (amqp:link:redirect): m2"]
    assert script.run("publish c nobody to=orders") == ["c learns accepted: m3"]
    assert list(script.stage.broker.store.queues) == ["orders"]


def test_a_transaction_with_such_a_message_can_only_be_rolled_back() -> None:
    stage = Stage(options_with(address_settings=MOVED))
    conn = stage.accept()
    hello = frames.anonymous() + frames.opened() + frames.begun() + frames.frame(coordinator_attach())
    stage.talk(conn, hello)
    (declared,) = frames.of_kind(stage.talk(conn, request(0, Declare())), Disposition)
    txn_id = declared.state.txn_id
    relay = Attach(name="out", handle=1, role=False, snd_settle_mode=0, source=Source(), target=Target(),
                   initial_delivery_count=0)  # fmt: skip
    stage.talk(conn, frames.frame(relay))
    head = Transfer(handle=1, delivery_id=1, delivery_tag=b"1", message_format=0, settled=False,
                    state=TransactionalState(txn_id=txn_id))  # fmt: skip
    payload = build_message(b"x", properties=Properties(to="moved.orders"))
    (answer,) = frames.of_kind(stage.talk(conn, frames.frame(head, payload)), Disposition)
    assert "amqp:link:redirect" in answer.state.outcome.error.description
    (answer,) = frames.of_kind(stage.talk(conn, request(2, Discharge(txn_id=txn_id, fail=False))), Disposition)
    assert isinstance(answer.state, Rejected)


@pytest.mark.parametrize("place", ["b2", "b2:0", ":5672"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    found = parse(f'[[address-settings]]\nmatch = "#"\nredirect-to = "{place}"\n')
    assert isinstance(found, list)
    assert ["host and its port" in each.why for each in found] == [True]
