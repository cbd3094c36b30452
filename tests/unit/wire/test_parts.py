"""The searches over a run against decoding each of its messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.frames import encode_frame
from mqbroker.wire.parts import _traits, parts_of
from mqbroker.wire.performatives import Transfer, encode
from mqbroker.wire.run import Run, parse_run, single
from mqbroker.wire.scan import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS
from mqbroker.wire.sections import Header, Properties, encode_section
from mqbroker.wire.traits import PLAIN, Traits
from mqbroker.wire.values import Symbol, Timestamp

from tests.unit.wire.strategies import steady

TIME = 1_700_000_000_000


def message(
    properties: Properties | None = None,
    application: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
    body: bytes = b"body",
) -> bytes:
    parts = [encode_composite(Header(durable=True))]
    if annotations:
        parts.append(encode_section(MESSAGE_ANNOTATIONS, {Symbol(name): value for name, value in annotations.items()}))
    if properties:
        parts.append(encode_composite(properties))
    if application:
        parts.append(encode_section(APPLICATION_PROPERTIES, application))
    return b"".join([*parts, encode_section(DATA, body)])


def run_of(payloads: list[bytes]) -> Run:
    frames = [
        encode_frame(0, encode(Transfer(handle=0, delivery_id=1000 + number, delivery_tag=b"%04d" % number)), payload)
        for number, payload in enumerate(payloads)
    ]
    block = b"".join(frames)
    parsed = parse_run(block, 0, len(block), len(payloads), 1 << 20)
    assert parsed is not None
    assert parsed.run.count == len(payloads)
    return parsed.run


SPECIAL: dict[str, tuple[bytes, Traits]] = {
    "expiry": (message(Properties(absolute_expiry_time=Timestamp(TIME))), Traits(expires_ms=TIME)),
    "group": (message(Properties(group_id="g", group_sequence=2)), Traits(group_id="g", group_sequence=2)),
    "group closed": (message(Properties(group_id="g", group_sequence=2**32 - 1)), Traits(0, 0, 0, "g", -1)),
    "time": (message(annotations={"x-opt-delivery-time": TIME}), Traits(deliver_at_ms=TIME)),
    "delay": (message(annotations={"x-opt-delivery-delay": 5}), Traits(delay_ms=5)),
    "time beats delay": (
        message(annotations={"x-opt-delivery-delay": 5, "x-opt-delivery-time": TIME}),
        Traits(deliver_at_ms=TIME),
    ),
    "duplicate id": (message(application={"_AMQ_DUPL_ID": "id"}), Traits(duplicate_id=b"id")),
    "last value": (message(application={"_AMQ_LVQ_NAME": "key"}), Traits(last_value="key")),
}
ORDINARY = {
    "bare": message(),
    "empty properties": message()[:7] + b"\x00\x53\x73\x45" + message()[7:],
    "few properties": message(Properties(message_id="1", to="orders", content_type=Symbol("text/plain"))),
    "created": message(Properties(message_id="1", creation_time=Timestamp(TIME))),
    "application": message(application={"colour": "red"}),
    "mentions it": message(body=b"_AMQ_DUPL_ID x-opt-delivery-time"),
    "malformed": message()[:14] + b"\x00\x53\x73\xc0\xff\xff",
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_messages_are_found_alone_and_among_others(name: str) -> None:
    payload, traits = SPECIAL[name]
    assert [part.traits for part in parts_of(single(payload))] == [traits]
    among = [message(), message(), payload, message()]
    assert [(part.count, part.traits) for part in parts_of(run_of(among))] == [(2, PLAIN), (1, traits), (1, PLAIN)]


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_messages_stay_one_run(name: str) -> None:
    run = run_of([ORDINARY[name]] * 20)
    (same,) = parts_of(run)
    assert same is run
    assert run.traits == PLAIN


ANY_MESSAGE = st.sampled_from([*(payload for payload, _ in SPECIAL.values()), *ORDINARY.values()])


@steady
@given(st.lists(ANY_MESSAGE, min_size=1, max_size=30))
def test_parts_say_of_each_message_what_decoding_says(payloads: list[bytes]) -> None:
    run = run_of(payloads)
    parts = parts_of(run)
    said = [part.traits for part in parts for _ in range(part.count)]
    assert said == [_traits(run, index) for index in range(run.count)]
    kept = [bytes(part.payload(index)) for part in parts for index in range(part.count)]
    assert kept == payloads
