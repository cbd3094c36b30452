"""Messages to bytes and back."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.client.errors import MessageFault
from mqbroker.client.message import Message, decode_message, encode_message
from mqbroker.client.types import Symbol, Timestamp, ULong, Uuid
from mqbroker.wire.scan import APPLICATION_PROPERTIES
from mqbroker.wire.sections import Header, build_message, describe_message, encode_section


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
        (Message(priority=256), "priority 256"),
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
