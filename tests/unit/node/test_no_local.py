"""The no-local filter on subscriptions: what the subscriber's own container publishes is not for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.slices import DivertOptions
from mqbroker.wire.performatives import Attach, Open, Rejected, Source, Target, Transfer
from mqbroker.wire.sections import Properties, build_message
from mqbroker.wire.types import Described, Symbol, ULong

from tests.support import frames
from tests.support.stage import Stage, options_with

TOPIC = (Symbol("topic"),)
BY_NAME = {Symbol("no-local"): Described(Symbol("apache.org:no-local-filter:list"), [])}
BY_CODE = {Symbol("no-local"): Described(ULong(0x0000468C00000003), "NoLocalFilter{}")}
DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}


def go(container: str) -> bytes:
    return frames.anonymous() + frames.AMQP_HEADER + frames.frame(Open(container_id=container)) + frames.begun()


def subscriber(filters: Any = None, capabilities: tuple[Symbol, ...] = TOPIC, **source: Any) -> bytes:
    terminus = Source(address="news", filter=filters, capabilities=capabilities, **source)
    return frames.frame(Attach(name="s", handle=1, role=True, source=terminus)) + frames.flow(1, 10)


def publisher(address: str | None = "news") -> bytes:
    terminus = Target(address=address, capabilities=TOPIC if address else None)
    return frames.frame(Attach(name="p", handle=0, role=False, target=terminus, initial_delivery_count=0))


def bodies(said: bytes) -> list[bytes]:
    return [each[1][-1:] for each in frames.heard(said) if isinstance(each, tuple) and isinstance(each[0], Transfer)]


def connected(stage: Stage, said: bytes) -> int:
    conn = stage.accept()
    assert frames.errors(stage.talk(conn, said)) == []
    return conn


def heard(stage: Stage, conn: int) -> list[bytes]:
    return bodies(bytes(stage.sent[conn]))


@pytest.mark.parametrize("filters", [BY_NAME, BY_CODE], ids=["name", "code"])
@pytest.mark.parametrize("terms", [{}, DURABLE], ids=["volatile", "durable"])
def test_only_others_messages_come(filters: Any, terms: dict[str, Any]) -> None:
    stage = Stage()
    own = connected(stage, go("app") + subscriber(filters, **terms) + publisher())
    (answer,) = [each for each in frames.of_kind(bytes(stage.sent[own]), Attach) if each.role is False]
    assert answer.source.filter == filters
    second = connected(stage, go("app") + publisher())
    other = connected(stage, go("web") + publisher() + subscriber())
    for conn, body in ((own, b"a"), (second, b"b"), (other, b"c")):
        stage.talk(conn, frames.transfer(0, body))
    stage.admin("send", address="news", messages=[{"body": "d"}])
    assert heard(stage, own) == [b"c", b"d"]
    assert heard(stage, other) == [b"a", b"b", b"c", b"d"]


def test_a_durable_subscription_keeps_it_through_a_crash_and_begins_anew_without_it() -> None:
    stage = Stage()
    connected(stage, go("app") + subscriber(BY_NAME, **DURABLE))
    stage.crash()
    stage.start()
    stage.talk(connected(stage, go("app") + publisher()), frames.transfer(0, b"a", durable=True))
    stage.talk(connected(stage, go("web") + publisher()), frames.transfer(0, b"b", durable=True))
    again = connected(stage, go("app") + subscriber(BY_NAME, **DURABLE))
    assert heard(stage, again) == [b"b"]
    stage.drop_bare(again)
    other_terms = connected(stage, go("app") + subscriber(**DURABLE))
    assert heard(stage, other_terms) == []
    stage.talk(connected(stage, go("app") + publisher()), frames.transfer(0, b"c"))
    assert heard(stage, other_terms) == [b"c"]


@pytest.mark.parametrize(
    "capabilities", [(*TOPIC, Symbol("shared")), (Symbol("queue"),)], ids=["shared subscription", "queue"]
)
def test_elsewhere_it_has_no_meaning_and_is_not_in_the_answer(capabilities: tuple[Symbol, ...]) -> None:
    stage = Stage()
    own = connected(stage, go("app") + subscriber(BY_NAME, capabilities))
    (answer,) = frames.of_kind(bytes(stage.sent[own]), Attach)
    assert answer.source.filter is None
    terminus = Target(address="news")
    attach = frames.frame(Attach(name="p", handle=0, role=False, target=terminus, initial_delivery_count=0))
    stage.talk(own, attach + frames.transfer(0, b"a"))
    assert heard(stage, own) == [b"a"]


def test_messages_that_name_their_address_themselves_are_local_too() -> None:
    stage = Stage()
    own = connected(stage, go("app") + subscriber(BY_NAME) + publisher(None))
    stage.talk(own, _addressed("news", b"a"))
    assert heard(stage, own) == []
    other = connected(stage, go("web") + publisher(None))
    stage.talk(other, _addressed("news", b"b"))
    assert heard(stage, own) == [b"b"]


def _addressed(to: str, body: bytes) -> bytes:
    head = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
    return frames.frame(head, build_message(body, properties=Properties(to=to)))


def test_a_message_that_a_broker_moves_itself_is_nobodys() -> None:
    """Its consumer rejects it, and is a subscriber of the dead-letter address too."""
    stage = Stage(options_with(address_settings={"orders": {"dead_letter_address": "news"}}))
    own = connected(stage, go("app") + subscriber(BY_NAME))
    stage.admin("send", address="orders", messages=[{"body": "x"}])
    stage.talk(own, frames.receiver("orders", handle=2, credit=1))
    stage.talk(own, frames.disposition(0, 0, Rejected()))
    assert heard(stage, own) == [b"x", b"x"]


def test_what_a_divert_makes_of_it_is_nobodys_either() -> None:
    """Whoever happens to act when the broker moves a message has not published it."""
    stage = Stage(
        replace(
            options_with(address_settings={"orders": {"dead_letter_address": "dead"}}),
            diverts=(DivertOptions("copy", "dead", "news", routing_type="MULTICAST", filter="", exclusive=False),),
        )
    )
    own = connected(stage, go("app") + subscriber(BY_NAME) + publisher("dead"))
    stage.talk(own, frames.transfer(0, b"a"))
    assert heard(stage, own) == [], "its own is its own, also by a divert"
    stage.admin("send", address="orders", messages=[{"body": "x"}])
    stage.talk(own, frames.receiver("orders", handle=2, credit=1))
    stage.talk(own, frames.disposition(0, 0, Rejected()))
    assert heard(stage, own) == [b"x", b"x"]
