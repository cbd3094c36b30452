"""Application properties where they lie, against the decoders, for well-formed messages and for any bytes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import MqError, PeerFault
from mqbroker.wire import scan
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.property_section import PropertyReader, properties_bytes
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, Properties, decode_application_properties, encode_section, scan_sections
from mqbroker.wire.types import Symbol

from tests.unit.wire.strategies import scalars, texts

BODY = encode_section(scan.DATA, b"x")
HEADER = encode_composite(Header(durable=True))
PROPERTIES = encode_composite(Properties(message_id="m", to="orders"))
ANNOTATIONS = encode_section(scan.MESSAGE_ANNOTATIONS, {Symbol("x-opt-jms-dest"): 0})
WIDE_KEY = b"\xb1\x00\x00\x00\x05color"
values = st.dictionaries(texts, scalars | st.lists(scalars, max_size=3), max_size=5)
heads = st.lists(st.sampled_from([HEADER, ANNOTATIONS, PROPERTIES]), unique=True).map(
    lambda parts: b"".join(each for each in (HEADER, ANNOTATIONS, PROPERTIES) if each in parts)
)


def found_in(payload: bytes) -> bytes | None:
    return properties_bytes(single(payload), 0)


def decoded(payload: bytes) -> dict[str, Any]:
    sections = scan_sections(payload, 0, len(payload))
    if sections.application_properties < 0:
        return {}
    return decode_application_properties(payload, sections.application_properties, sections.end)[0]


@given(heads, values, st.sampled_from([b"", BODY, encode_section(scan.VALUE, None)]), texts)
def test_each_value_is_what_the_decoder_finds(head: bytes, held: dict[str, Any], body: bytes, other: str) -> None:
    payload = head + encode_section(scan.APPLICATION_PROPERTIES, held) + body
    found = found_in(payload)
    assert found is not None
    for key in (*held, other):
        assert PropertyReader(found).value_of(key.encode()) == decoded(payload).get(key)


@pytest.mark.parametrize("payload", [b"", BODY, HEADER + PROPERTIES + BODY, PROPERTIES, b"\x00\x53\x73\x45" + BODY])
def test_where_there_are_none_nothing_is_found(payload: bytes) -> None:
    assert found_in(payload) == b""
    assert PropertyReader(b"").value_of(b"color") is None


def test_keys_and_maps_of_any_width() -> None:
    narrow = b"\xa1\x05color"
    for key in (narrow, WIDE_KEY):
        pairs = b"\xa1\x01a\x40" + key + b"\xa1\x04blue"
        for written in (
            b"\xc1" + bytes((len(pairs) + 1, 4)) + pairs,
            b"\xd1" + (len(pairs) + 4).to_bytes(4, "big") + (4).to_bytes(4, "big") + pairs,
        ):
            found = found_in(b"\x00\x53\x74" + written + BODY)
            assert found == written
            assert PropertyReader(found).value_of(b"color") == "blue"
            assert PropertyReader(found).value_of(b"colo") is None


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x74\xc1\x01\x00" + BODY,  # a descriptor in another form
        b"\x00\x53\x74\xc1\xff\x00" + BODY, b"\x00\x53\x74\x45" + BODY, b"\x00\x53\x74\xc0\x01\x00" + BODY,
        b"\x00\x53\x73\xa0\x00" + BODY, b"\x00\x53\x40\xc1\x01\x00" + BODY, PROPERTIES + b"\x00\x53",
    ],
)  # fmt: skip
def test_what_is_unusual_is_left_to_the_decoders(payload: bytes) -> None:
    assert found_in(payload) is None


@given(st.binary(max_size=80), heads, st.binary(max_size=8))
def test_any_bytes_are_found_or_left_and_read_or_a_fault(extra: bytes, head: bytes, key: bytes) -> None:
    for payload in (extra, head + b"\x00\x53\x74" + extra, head + b"\x00\x53\x74\xc1" + extra):
        try:
            run = single(payload)
        except MqError:
            continue
        found = properties_bytes(run, 0)
        if found:
            with contextlib.suppress(PeerFault):
                PropertyReader(found).value_of(key)
