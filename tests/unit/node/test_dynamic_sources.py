"""Temporary queues and topics that a receiver asks for: what it says of its source holds there as anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.performatives import Attach, Released, Source, Target
from mqbroker.wire.types import Described, Symbol, ULong

from tests.support import frames
from tests.support.stage import Stage

LIFETIME = Symbol("lifetime-policy")
SELECTOR = "apache.org:selector-filter:string"


def asked(text: str, *capabilities: str, **fields: Any) -> Source:
    chosen = {Symbol("chosen"): Described(Symbol(SELECTOR), text)}
    return Source(dynamic=True, filter=chosen, capabilities=tuple(map(Symbol, capabilities)), **fields)


def attached(stage: Stage, source: Source) -> tuple[int, bytes]:
    """A connection, and what the broker says to its receiver."""
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
    attach = Attach(name="replies", handle=0, role=True, source=source, target=Target())
    return conn, stage.talk(conn, frames.frame(attach))


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_selector_holds_and_is_told(kind: str) -> None:
    stage = Stage()
    conn, said = attached(stage, asked("color = 'red'", kind, default_outcome=Released()))
    source = frames.of_kind(said, Attach)[0].source
    assert (list(source.filter or {}), source.default_outcome) == (["chosen"], Released())
    stage.talk(conn, frames.flow(0, 10))
    before = len(stage.sent[conn])
    messages = [{"body": color, "application_properties": {"color": color}} for color in ("blue", "red", "green")]
    assert stage.admin("send", address=source.address, messages=messages) == {"accepted": 3}
    payloads = [each[1] for each in frames.heard(bytes(stage.sent[conn][before:])) if isinstance(each, tuple)]
    assert [b"red" in each for each in payloads] == [True]


def test_a_browser_of_its_own_queue_leaves_the_messages_there() -> None:
    stage = Stage()
    conn, said = attached(stage, Source(dynamic=True, distribution_mode=Symbol("copy")))
    source = frames.of_kind(said, Attach)[0].source
    assert source.distribution_mode == "copy"
    assert stage.admin("send", address=source.address, messages=[{"body": "m"}]) == {"accepted": 1}
    stage.talk(conn, frames.flow(0, 10))
    row = stage.admin("queues")["queues"][0]
    assert (row["message_count"], row["delivering_count"]) == (1, 0)


def test_a_selector_that_is_wrong_is_refused_and_leaves_no_queue() -> None:
    stage = Stage()
    _, said = attached(stage, asked("color =="))
    assert frames.errors(said) == [("Detach", "amqp:invalid-field")]
    assert stage.admin("queues")["queues"] == []


@pytest.mark.parametrize("is_source", [True, False])
@pytest.mark.parametrize("asked_for", [None, 0x2B, 0x2C, 0x2D, 0x2E])
def test_the_answer_says_how_long_it_lasts_whatever_was_asked_for(is_source: bool, asked_for: int | None) -> None:
    """§3.5.10: it ends with its link (delete-on-close), also while others use it or it has messages."""
    wish = None if asked_for is None else {LIFETIME: Described(ULong(asked_for), [])}
    terms: dict[str, Any] = {"dynamic": True, "dynamic_node_properties": wish}
    if is_source:
        attach = Attach(name="t", handle=0, role=True, source=Source(**terms), target=Target())
    else:
        attach = Attach(name="t", handle=0, role=False, source=Source(), target=Target(**terms),
                        initial_delivery_count=0)  # fmt: skip
    stage = Stage()
    conn = stage.accept()
    said = stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.frame(attach))
    (answer,) = frames.of_kind(said, Attach)
    made = answer.source if is_source else answer.target
    assert made.dynamic_node_properties == {LIFETIME: Described(ULong(0x2B), [])}
    stage.admin("send", address=made.address, messages=[{"body": "m"}])
    stage.talk(conn, frames.detach())
    assert stage.admin("queues")["queues"] == []
