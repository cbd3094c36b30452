"""Views: what selectors and the broker see of a message, and of one that is malformed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.core.queue.message_view import MessageView
from mqbroker.core.selector.selector import compile_selector
from mqbroker.wire import scan
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.sections import Header, Properties, build_message, encode_section
from mqbroker.wire.types import Symbol, Timestamp, UByte, UInt, ULong, Uuid

HEADER = Header(durable=True, priority=7, ttl=5000, delivery_count=2)
PROPERTIES = Properties(
    message_id="ID:7", user_id=b"al\xc3\xaf", to="orders", subject="kind", correlation_id="c-1",
    absolute_expiry_time=1_700_000_009_000, creation_time=1_700_000_000_000, group_id="g", group_sequence=3,
)  # fmt: skip
APPLICATION = {
    "color": "blue", "n": UInt(5), "flag": True, "_AMQ_DUPL_ID": "d-1", "_AMQ_LVQ_NAME": Symbol("key"), "x-y": 1,
    "none": None, "id": Uuid(bytes(16)), "AMQPrio": UByte(1),
}  # fmt: skip
ANNOTATIONS = {Symbol("x-opt-delivery-time"): Timestamp(99), Symbol("x-opt-list"): [1], ULong(5): 1}
BODY = encode_section(scan.VALUE, "body")
PARTS = (
    encode_composite(HEADER),
    encode_section(scan.MESSAGE_ANNOTATIONS, ANNOTATIONS),
    encode_composite(PROPERTIES),
    encode_section(scan.APPLICATION_PROPERTIES, APPLICATION),
)
FULL = b"".join((*PARTS, BODY))
MESSAGE = MessageView(FULL)
BARE = MessageView(BODY)


@pytest.mark.parametrize(
    ("name", "value", "of_bare"),
    [
        ("JMSPriority", 7, 4), ("JMSDeliveryMode", "PERSISTENT", "NON_PERSISTENT"), ("JMSMessageID", "ID:7", None),
        ("JMSTimestamp", 1_700_000_000_000, 0), ("JMSCorrelationID", "c-1", None), ("JMSType", "kind", None),
        ("JMSExpiration", 1_700_000_009_000, 0), ("JMSXGroupID", "g", None), ("JMSXGroupSeq", 3, None),
        ("JMSXUserID", "alï", None), ("JMSXDeliveryCount", 1, 1), ("AMQPriority", 7, 4),
        ("AMQDurable", "DURABLE", "NON_DURABLE"), ("AMQTimestamp", 1_700_000_000_000, 0),
        ("AMQExpiration", 1_700_000_009_000, 0), ("AMQSize", len(FULL), len(BODY)), ("AMQUserID", "ID:7", None),
        ("AMQGroupID", "g", None), ("AMQAddress", "orders", None),
        ("color", "blue", None), ("n", 5, None), ("flag", True, None), ("x-y", 1, None), ("none", None, None),
        ("id", Uuid(bytes(16)), None), ("Color", None, None), ("AMQPrio", 1, None), ("JMS_vendor", None, None),
        ("m.x-opt-delivery-time", 99, None), ("m.x-opt-list", [1], None), ("m.nothing", None, None),
        ("m.5", None, None),
    ],
)  # fmt: skip
def test_values_for_selectors(name: str, value: Any, of_bare: Any) -> None:
    for payload in (FULL, memoryview(FULL)):
        assert MessageView(payload).value_of(name) == value
    assert BARE.value_of(name) == of_bare


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("JMSPriority > 6 AND JMSDeliveryMode = 'PERSISTENT'", True), ("color LIKE 'b%' AND n BETWEEN 5 AND 6", True),
        ("flag AND JMSType IN ('kind')", True), ("\"m.x-opt-delivery-time\" = 99", True), ("\"x-y\" = 1", True),
        ("id IS NULL", False), ("id = 'x' OR id <> 'x'", False), ("none IS NULL AND nothing IS NULL", True),
        ("JMSXDeliveryCount > 3", False), ("\"m.x-opt-list\" IS NOT NULL", True), ("\"m.x-opt-list\" = 1", False),
    ],
)  # fmt: skip
def test_selectors_on_views(condition: str, matches: bool) -> None:
    assert compile_selector(condition).matches(MESSAGE) is matches


@pytest.mark.parametrize(
    ("value", "shown", "plain", "correlation"),
    [
        ("ID:a", "ID:a", "ID:a", "ID:a"), ("a", "ID:AMQP_NO_PREFIX:a", "ID:a", "a"),
        ("ID:AMQP_UUID:x", "ID:AMQP_STRING:ID:AMQP_UUID:x", "ID:AMQP_UUID:x", "ID:AMQP_STRING:ID:AMQP_UUID:x"),
        (ULong(5), "ID:AMQP_ULONG:5", "ID:5", "ID:AMQP_ULONG:5"),
        (b"\x0a\xff", "ID:AMQP_BINARY:0AFF", "ID:0aff", "ID:AMQP_BINARY:0AFF"),
        (Uuid(bytes(range(16))), "ID:AMQP_UUID:00010203-0405-0607-0809-0a0b0c0d0e0f",
         "ID:00010203-0405-0607-0809-0a0b0c0d0e0f", "ID:AMQP_UUID:00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ],
)  # fmt: skip
def test_ids_of_all_types(value: Any, shown: str, plain: str, correlation: str) -> None:
    view = MessageView(build_message("", properties=Properties(message_id=value, correlation_id=value)))
    names = ("JMSMessageID", "AMQUserID", "JMSCorrelationID")
    assert [view.value_of(name) for name in names] == [shown, plain, correlation]


def test_what_only_the_broker_knows() -> None:
    view = MessageView(FULL, address="real", deliveries=4, expires_at_ms=77)
    names = ("AMQAddress", "JMSXDeliveryCount", "AMQExpiration")
    assert [view.value_of(name) for name in names] == ["real", 5, 77]


def test_expiration_by_time_to_live() -> None:
    def expiration(ttl: int | None, created: int | None) -> Any:
        made = build_message("", header=Header(ttl=ttl), properties=Properties(creation_time=created))
        return MessageView(made).value_of("AMQExpiration")

    assert [expiration(5, 100), expiration(5, None), expiration(None, 100), expiration(0, 100)] == [105, 0, 0, 0]


def test_what_the_broker_asks() -> None:
    found = (MESSAGE.priority, MESSAGE.ttl_ms, MESSAGE.creation_time_ms, MESSAGE.absolute_expiry_ms)
    assert found == (7, 5000, 1_700_000_000_000, 1_700_000_009_000)
    assert (MESSAGE.group_id, MESSAGE.group_sequence, MESSAGE.user_id) == ("g", 3, b"al\xc3\xaf")
    assert (MESSAGE.annotation("x-opt-delivery-time"), MESSAGE.annotation("nothing")) == (99, None)
    assert MESSAGE.fault is None


def test_what_the_broker_asks_of_a_bare_message() -> None:
    found = (BARE.priority, BARE.ttl_ms, BARE.creation_time_ms, BARE.absolute_expiry_ms)
    assert found == (4, None, None, None)
    assert (BARE.group_id, BARE.group_sequence, BARE.user_id) == (None, None, None)
    assert BARE.annotation("x") is None


def test_priorities_end_with_nine() -> None:
    view = MessageView(build_message("", header=Header(priority=200)))
    assert (view.priority, view.value_of("JMSPriority"), view.value_of("AMQPriority")) == (9, 9, 9)


# -- malformed --------------------------------------------------------------------------------------------------------


def broken(index: int) -> bytes:
    """The message with something in one section that may not be there: 0 header … 3 application properties."""
    wrong = (
        encode_section(scan.HEADER, ["no boolean"]),
        encode_section(scan.MESSAGE_ANNOTATIONS, {"string key": 1}),
        encode_section(scan.PROPERTIES, [1.5]),
        encode_section(scan.APPLICATION_PROPERTIES, {1: "a key that is no text"}),
    )
    return b"".join((*PARTS[:index], wrong[index], *PARTS[index + 1 :], BODY))


NAMES = ("JMSPriority", "m.x-opt-delivery-time", "JMSType", "color")


@pytest.mark.parametrize("index", range(4))
def test_a_malformed_section_matches_nothing_and_the_others_do(index: int) -> None:
    view = MessageView(broken(index))
    for place, name in enumerate(NAMES):
        asked = [compile_selector(f'"{name}" IS {word}').matches(view) for word in ("NULL", "NOT NULL")]
        assert asked == ([False, False] if place == index else [False, True])
    assert view.fault is not None
    assert view.fault.scope is Scope.LINK
    found = (view.priority, view.annotation("x-opt-delivery-time"), view.creation_time_ms)
    expected: list[Any] = [7, 99, 1_700_000_000_000]
    if index < len(expected):
        expected[index] = 4 if index == 0 else None
    assert list(found) == expected


def test_what_is_no_message_matches_nothing() -> None:
    view = MessageView(b"\xff" + FULL)
    for name in (*NAMES, "AMQExpiration"):
        with pytest.raises(PeerFault):
            view.value_of(name)
    assert not compile_selector("color IS NULL OR TRUE").matches(view)
    assert (view.priority, view.group_id, view.annotation("x")) == (4, None, None)
    assert view.fault is not None


@given(st.binary(max_size=60), st.integers(0, len(FULL)))
def test_any_bytes_match_or_do_not(extra: bytes, cut: int) -> None:
    for payload in (extra, FULL[:cut] + extra, extra + FULL[cut:]):
        view = MessageView(payload)
        for name in NAMES:
            null, value = (compile_selector(f'"{name}" IS {word}').matches(view) for word in ("NULL", "NOT NULL"))
            assert not (null and value)
        assert 0 <= view.priority <= 9


# -- work -------------------------------------------------------------------------------------------------------------


def test_only_what_is_asked_for_is_decoded_and_once() -> None:
    view, malformed = MessageView(FULL), MessageView(broken(3))
    assert view.value_of("AMQSize") == len(FULL)
    assert list(view._decoded) == []
    assert compile_selector("color = 'blue' AND n = 5").matches(view)
    assert list(view._decoded) == ["application_properties"]
    assert view.value_of("id") is view.value_of("id")
    assert not compile_selector("color = 'blue'").matches(malformed)
    fault = malformed._decoded["application_properties"]
    assert not compile_selector("n = 5").matches(malformed)
    assert malformed._decoded == {"application_properties": fault}
