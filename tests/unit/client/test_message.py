"""Messages to bytes and back."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.client.errors import MessageFault
from mqbroker.client.message import Message, decode_message, encode_message
from mqbroker.client.types import Decimal64, Encoded, Symbol, Timestamp, ULong, Uuid
from mqbroker.wire.scan import APPLICATION_PROPERTIES
from mqbroker.wire.sections import Header, build_message, describe_message, encode_section

from tests.support.bytecodes import Bytecodes


def back(message: Message) -> Message:
    return decode_message(encode_message(message))


@given(body=st.binary(max_size=600), durable=st.booleans(), priority=st.integers(0, 9),
       ttl_ms=st.none() | st.integers(1, 0xFFFFFFFF))  # fmt: skip
def test_plain_messages_come_back(body: bytes, durable: bool, priority: int, ttl_ms: int | None) -> None:
    message = Message(body, durable=durable, priority=priority, ttl_ms=ttl_ms)
    message.body_kind = "data"
    assert back(message) == message


@pytest.mark.parametrize("body", ["text", "", 7, -1, True, None, 1.5, [1, "a", None], {"a": [1]}, Symbol("s"), b""])
def test_bodies_keep_their_type(body: Any) -> None:
    found = back(Message(body)).body
    assert found == body
    assert isinstance(found, type(body))


def test_a_short_body_costs_no_more_than_a_long_one() -> None:
    def cost(size: int) -> int:
        payload, counter = encode_message(Message(bytes(size))), Bytecodes()
        assert counter.of(lambda: decode_message(payload)).body == bytes(size)
        return counter.count

    cost(100)  # the header is remembered from then on
    assert max(map(cost, (0, 1, 2, 3))) <= cost(100)


def test_kinds_of_bodies() -> None:
    assert back(Message(b"x")).body_kind == "data"
    assert back(Message("x")).body_kind == "value"
    as_value = back(Message(b"x", body_kind="value"))
    assert (as_value.body, as_value.body_kind) == (b"x", "value")
    sequence = back(Message([1, 2], body_kind="sequence"))
    assert (sequence.body, sequence.body_kind) == ([1, 2], "sequence")


def test_every_field_comes_back() -> None:
    message = Message(
        "b", durable=True, priority=9, ttl_ms=5, id="i", correlation_id=b"c", subject="s", to="t", reply_to="r",
        user_id=b"u", content_type="text/plain", content_encoding="gzip", expires_at_ms=7, created_at_ms=8,
        group_id="g", group_sequence=3, reply_to_group_id="h", application_properties={"a": 1, "b": "x", "c": None},
        annotations={"x-opt-delivery-time": Timestamp(9)}, delivery_annotations={"d": 1}, footer={"f": 2},
        body_kind="value",
    )  # fmt: skip
    assert back(message) == message
    assert describe_message(encode_message(message))["properties"]["group_sequence"] == 3


def test_ids_may_be_numbers_and_uuids() -> None:
    found = back(Message(id=7, correlation_id=Uuid(bytes(16))))
    assert (found.id, type(found.id)) == (7, ULong)
    assert (found.correlation_id, type(found.correlation_id)) == (Uuid(bytes(16)), Uuid)


@pytest.mark.parametrize("body", [Uuid(bytes(16)), Decimal64(bytes(8)), Encoded(b"\xc1\x06\x04\x41\x40\x54\x01\x40")])
def test_values_that_are_bytes_to_python_go_as_what_they_are(body: bytes) -> None:
    found = back(Message(body))
    assert (found.body, type(found.body), found.body_kind) == (body, type(body), "value")
    assert back(Message([body])).body == [body]
    with pytest.raises(MessageFault, match="read `body`"):
        _ = found.text
    with pytest.raises(MessageFault, match="encode it first"):
        encode_message(Message(body, body_kind="data"))


def test_a_redelivery_says_so() -> None:
    found = decode_message(build_message(b"x", header=Header(delivery_count=2, first_acquirer=True)))
    assert (found.delivery_count, found.is_redelivered, found.first_acquirer) == (2, True, True)
    assert not back(Message()).is_redelivered


def test_text() -> None:
    assert Message("ä").text == Message("ä".encode()).text == "ä"
    for body in (b"\xff", 7):
        with pytest.raises(MessageFault, match="read `body`"):
            _ = Message(body).text


def test_duplicate_id_is_the_brokers_property() -> None:
    message = Message()
    message.duplicate_id = "d1"
    assert back(message).application_properties == {"_AMQ_DUPL_ID": "d1"}
    assert back(message).duplicate_id == "d1"
    message.duplicate_id = None
    assert message.application_properties == {}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message(object()), "AMQP has no such type"),
        (Message(priority=10), "priority 10: a whole number from 0 to 9"),
        (Message(priority=1.5), "priority 1.5"),  # type: ignore[arg-type]  # what a program may do, here and below
        (Message(priority="1"), "priority '1'"),  # type: ignore[arg-type]
        (Message(priority=-1), "priority -1"),
        (Message(ttl_ms=1.5), "ttl_ms 1.5"),  # type: ignore[arg-type]
        (Message(ttl_ms="5"), "ttl_ms '5'"),  # type: ignore[arg-type]
        (Message(durable=[]), "durable"),  # type: ignore[arg-type]
        (Message(durable="no"), "durable 'no'"),  # type: ignore[arg-type]
        (Message(id=1.5), "message-id: an id is a ulong, uuid, binary or string, not float"),
        (Message(correlation_id=True), "correlation-id"),
        (Message(subject=5), "subject"),  # type: ignore[arg-type]
        (Message(content_type=5), "content_type 5: text is needed"),  # type: ignore[arg-type]
        (Message(group_sequence=True), "group_sequence"),
        (Message(annotations={5: 1}), "annotation 5"),
        (Message(delivery_annotations={b"x": 1}), "annotation b'x'"),
        (Message(footer={(1,): 1}), "annotation"),
        (Message(annotations=[1]), "a dict is needed"),  # type: ignore[arg-type]
        (Message(application_properties=[1]), "a dict is needed"),  # type: ignore[arg-type]
        (Message(application_properties={"a": (1,)}), "neither lists nor maps"),
        (Message(body_kind="text"), "body_kind 'text'"),  # type: ignore[arg-type]
        (Message([datetime(2026, 1, 1)]), "has no time zone"),
        (Message(ttl_ms=0), "None is for ever"),
        (Message(application_properties={"a": [1]}), "neither lists nor maps"),
        (Message(application_properties={1: 1}), "keys are text"),  # type: ignore[dict-item]  # what a program may do
        (Message("x", body_kind="data"), "encode it first"),
        (Message("x", body_kind="sequence"), "is a list"),
        (Message(group_sequence=-1), "group-sequence"),
        (Message(content_type="ä"), "content-type"),
        (Message(1 << 70), "out of its range"),
    ],
)
def test_what_cannot_be_sent_is_told(message: Message, words: str) -> None:
    with pytest.raises(MessageFault, match=words):
        encode_message(message)


def test_what_python_calls_otherwise_is_sent_as_amqps_types() -> None:
    number, time = UUID("12345678-1234-5678-1234-567812345678"), datetime(2026, 5, 4, 3, 2, 1, 999_999, tzinfo=UTC)
    east = time.astimezone(timezone(timedelta(hours=9)))
    message = Message(
        {"deep": [number, (east,)], number: 1}, id=number, correlation_id=number, footer={"f": time},
        application_properties={"when": time, "which": number}, annotations={"x-opt-delivery-time": east},
    )  # fmt: skip
    wire, ms = Uuid(number.bytes), Timestamp(int(time.timestamp()) * 1000 + 999)
    found = back(message)
    assert found.body == {"deep": [wire, [ms]], wire: 1}
    assert (found.id, found.correlation_id, found.footer) == (wire, wire, {"f": ms})
    assert found.application_properties == {"when": ms, "which": wire}
    assert found.annotations == {"x-opt-delivery-time": ms}
    assert (type(found.id), type(found.application_properties["when"])) == (Uuid, Timestamp)
    assert back(Message(datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC))).body == Timestamp(-1)
    assert message.body["deep"][0] is number, "the application's own stays as it is"
    assert str(found.id) == str(number)


def test_a_list_that_holds_itself_is_told() -> None:
    endless: list[Any] = [UUID(int=1)]
    endless.append(endless)
    with pytest.raises(MessageFault, match="nested deeper"):
        encode_message(Message(endless))


def test_a_message_is_shown_in_a_line() -> None:
    assert repr(Message("two coffees", durable=True, priority=7)) == "Message('two coffees', durable=True, priority=7)"
    assert repr(Message()) == "Message(b'')"
    assert repr(Message(bytes(10_000_000))).endswith("… (10000000))")
    assert len(repr(Message({"a": "x" * 10_000, "b": list(range(10_000))}, subject="s" * 10_000))) < 400


def test_properties_of_a_kind_that_is_not_sent_can_be_read() -> None:
    section = encode_section(APPLICATION_PROPERTIES, {"list": [1, "a"], "map": {"b": 2}})
    found = decode_message(encode_message(Message(b"x")).replace(b"\x00Su", section + b"\x00Su"))
    assert found.application_properties == {"list": [1, "a"], "map": {"b": 2}}
    assert found.body == b"x"


@given(st.binary(max_size=80))
def test_whatever_comes_is_a_message_or_a_fault(payload: bytes) -> None:
    for raw in (payload, b"\x00\x53\x70\xc0" + payload, encode_message(Message(b"abc")) + payload):
        with contextlib.suppress(MessageFault):
            assert isinstance(decode_message(raw), Message)
