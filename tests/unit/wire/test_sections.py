"""Sections: found by size, decoded one by one, built and described."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault, Refused, Scope
from mqbroker.wire import scan
from mqbroker.wire import sections as s
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.types import Array, Described, Symbol, Timestamp, UInt, ULong, Uuid, encode_value

from tests.unit.wire import strategies

symbol_maps = st.dictionaries(strategies.symbols, strategies.scalars, max_size=3)
application_maps = st.dictionaries(strategies.texts, strategies.scalars, max_size=3)
bodies = st.one_of(
    st.lists(strategies.blobs, min_size=1, max_size=3).map(lambda each: (scan.DATA, each)),
    st.lists(st.lists(strategies.scalars, max_size=3), min_size=1, max_size=3).map(lambda each: (scan.SEQUENCE, each)),
    strategies.values.map(lambda each: (scan.VALUE, [each])),
)


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, dict[str, tuple[int, int, Any]], tuple[int, list[Any]]]:
    """(payload, name → (start, end, value) of each section that is there, body)."""
    payload = b""
    found: dict[str, tuple[int, int, Any]] = {}
    body = draw(bodies)

    def add(name: str, raw: bytes, value: Any) -> None:
        nonlocal payload
        found[name] = (len(payload), len(payload) + len(raw), value)
        payload += raw

    for name, code, values in (
        ("header", 0, strategies.composite(s.Header)),
        ("delivery_annotations", scan.DELIVERY_ANNOTATIONS, symbol_maps),
        ("message_annotations", scan.MESSAGE_ANNOTATIONS, symbol_maps),
        ("properties", 0, strategies.composite(s.Properties)),
        ("application_properties", scan.APPLICATION_PROPERTIES, application_maps),
        ("body", 0, st.just(body)),
        ("footer", scan.FOOTER, symbol_maps),
    ):
        if name != "body" and not draw(st.booleans()):
            continue
        value = draw(values)
        if name == "body":
            raw = b"".join(s.encode_section(value[0], each) for each in value[1])
        else:
            raw = s.encode_section(code, value) if code else encode_composite(value)
        add(name, raw, value)
    return payload, found, body


@strategies.steady
@given(messages())
def test_every_section_is_found_and_decodes(made: tuple[bytes, dict[str, Any], tuple[int, list[Any]]]) -> None:
    payload, found, body = made
    sections = s.scan_sections(b"before" + payload + b"\xff", 6, 6 + len(payload))
    for name in s.Sections._fields[:-1]:
        assert getattr(sections, name) == (found[name][0] + 6 if name in found else -1)
    sections = s.scan_sections(payload, 0, len(payload))
    decoders: dict[str, Any] = {
        "header": s.decode_header,
        "properties": s.decode_properties,
        "application_properties": s.decode_application_properties,
    }
    for name, (start, end, value) in found.items():
        if name != "body":
            decoded, after = decoders.get(name, s.decode_annotations)(payload, start, len(payload))
            assert after == end
            assert strategies.typed(decoded) == strategies.typed(value) or decoded == value
    kind, values = s.body_values(payload, sections)
    assert (kind, strategies.typed(values)) == (body[0], strategies.typed(body[1]))


@strategies.steady
@given(messages())
def test_bare_message_starts_behind_what_nodes_may_change(made: tuple[bytes, dict[str, Any], Any]) -> None:
    payload, found, _ = made
    bare = [found[name][0] for name in ("properties", "application_properties", "body") if name in found]
    assert s.scan_sections(payload, 0, len(payload)).bare == min(bare)


@strategies.steady
@given(messages())
def test_every_message_is_described_as_json(made: tuple[bytes, dict[str, Any], Any]) -> None:
    payload = made[0]
    for buffer in (payload, memoryview(payload)):
        described = json.loads(json.dumps(s.describe_message(buffer), allow_nan=False))
        assert described["body_kind"] in ("data", "sequence", "value")


@pytest.mark.slow
@strategies.steady_few
@given(messages())
def test_a_cut_message_is_a_fault_of_its_link_or_lacks_whole_sections(
    made: tuple[bytes, dict[str, Any], tuple[int, list[Any]]],
) -> None:
    payload, found, (kind, values) = made
    whole = {start for start, _, _ in found.values()}
    for count in range(1, len(values)):
        body = b"".join(s.encode_section(kind, each) for each in values[:count])
        whole.add(found["body"][0] + len(body))
    for cut in range(len(payload)):
        if cut in whole:
            assert s.scan_sections(payload, 0, cut).end == cut
            continue
        with pytest.raises(PeerFault) as caught:
            s.scan_sections(payload, 0, cut)
        assert (caught.value.condition, caught.value.scope) == ("amqp:decode-error", Scope.LINK)


@strategies.steady
@given(strategies.values, st.binary(max_size=4))
def test_skipping_ends_where_decoding_ends(value: Any, behind: bytes) -> None:
    raw = encode_value(value)
    assert scan.skip_value(raw + behind, 0, len(raw)) == len(raw)


def test_descriptors_may_be_wide_or_symbols() -> None:
    payload = b"".join(
        (
            b"\x00\x80\0\0\0\0\0\0\0\x70\x45",
            encode_value(Described(Symbol("amqp:message-annotations:map"), {})),
            encode_value(Described(Symbol("amqp:application-properties:map"), {})),
            b"\x00\xb3\x00\x00\x00\x10amqp:data:binary\xa0\x01x",
        )
    )
    sections = s.scan_sections(payload, 0, len(payload))
    assert (sections.header, sections.message_annotations) == (0, 11)
    assert s.decode_header(payload, 0, len(payload)) == (s.Header(), 11)
    assert s.decode_annotations(payload, sections.message_annotations, len(payload))[0] == {}
    assert s.describe_message(payload)["body"] == "x"


HEADER, DATA, VALUE, FOOTER = "005370 45", "005375 a001 78", "005377 40", "005378 c10100"
SEQUENCE, PROPERTIES = "005376 45", "005373 45"
BAD_ORDER = {
    "header twice": HEADER + HEADER,
    "properties twice": PROPERTIES + PROPERTIES + DATA,
    "header behind properties": PROPERTIES + HEADER + DATA,
    "properties behind the body": DATA + PROPERTIES,
    "value twice": VALUE + VALUE,
    "data, then value": DATA + VALUE,
    "data, then sequence": DATA + SEQUENCE,
    "sequence, then value": SEQUENCE + VALUE,
    "body behind the footer": DATA + FOOTER + DATA,
    "footer twice": DATA + FOOTER + FOOTER,
    "unknown section": HEADER + "005379 45",
    "performative as a section": "005314 45",
    "unknown symbol": "00 a301 78 45",
    "descriptor of another type": "00 a101 78 45",
    "no descriptor": "45",
    "descriptor alone": "005370",
    "unknown format code": "005370 3f",
    "size beyond the end": "005375 a005 78",
    "wide size beyond the end": "005375 b0ffffffff 78",
    "wide size cut off": "005375 b00000",
    "fixed value cut off": "005377 80000000",
    "descriptors without end": "005377" + "00" * 40,
    "descriptors without end, each with a value": "005377" + "00" * 40 + "40" * 41,
}


@pytest.mark.parametrize("encoding", BAD_ORDER.values(), ids=BAD_ORDER)
def test_malformed_messages_end_their_link(encoding: str) -> None:
    raw = bytes.fromhex(encoding)
    with pytest.raises(PeerFault) as caught:
        s.scan_sections(raw, 0, len(raw))
    assert (caught.value.condition, caught.value.scope) == ("amqp:decode-error", Scope.LINK)


def test_sections_are_counted() -> None:
    most = b"\x00\x53\x75\xa0\x00" * scan.SECTION_COUNT_MAX
    assert s.scan_sections(most, 0, len(most)).body == 0
    with pytest.raises(PeerFault, match=f"more than {scan.SECTION_COUNT_MAX} sections"):
        s.scan_sections(most * 2, 0, len(most) * 2)


MALFORMED_SECTIONS: list[tuple[Any, bytes]] = [
    (s.decode_header, bytes.fromhex("005370 c00301 a100")),
    (s.decode_header, bytes.fromhex(PROPERTIES)),
    (s.decode_header, b""),
    (s.decode_properties, bytes.fromhex("005373 c00201 43")),
    (s.decode_properties, bytes.fromhex("005373 c00201 41")),
    (s.decode_application_properties, bytes.fromhex("005374 45")),
    (s.decode_application_properties, bytes.fromhex("005374 c10602 a30161 a100")),
    (s.decode_application_properties, bytes.fromhex("005374 c10502 a10161")),
    (s.decode_annotations, bytes.fromhex("005372 c10502 a10161 40")),
    (s.decode_annotations, bytes.fromhex("005372 d1ffffffff00000000")),
    (s.describe_message, bytes.fromhex("005375 45")),
    (s.describe_message, bytes.fromhex("005376 40")),
    (s.describe_message, bytes.fromhex("005377 c00201 3f")),
]


@pytest.mark.parametrize(("decode", "raw"), MALFORMED_SECTIONS)
def test_malformed_sections_end_their_link(decode: Any, raw: bytes) -> None:
    with pytest.raises(PeerFault) as caught:
        decode(raw, 0, len(raw)) if decode is not s.describe_message else decode(raw)
    assert caught.value.scope is Scope.LINK


def test_built_message() -> None:
    properties = s.Properties(message_id="m-1", to="orders", creation_time=Timestamp(5))
    built = s.build_message(b"\xffbody", durable=True, properties=properties, application_properties={"n": 1, "s": "x"})
    assert s.describe_message(built) == {
        "header": {"durable": True, "priority": 4, "first_acquirer": False, "delivery_count": 0},
        "properties": {"message_id": "m-1", "to": "orders", "creation_time": 5},
        "application_properties": {"n": 1, "s": "x"},
        "body_kind": "data",
        "body_encoding": "base64",
        "body": "/2JvZHk=",
    }


def test_built_message_keeps_its_header() -> None:
    built = s.build_message("text", durable=True, header=s.Header(priority=9, ttl=1000))
    assert s.decode_header(built, 0, len(built))[0] == s.Header(True, 9, 1000)
    assert s.describe_message(built)["body"] == "text"
    assert s.build_message(b"") == bytes.fromhex("00537045 005375a000")


@pytest.mark.parametrize("entry", [{1: "x"}, {"list": []}, {"map": {}}, {"object": object()}, {"big": 2**64}])
def test_application_properties_that_amqp_cannot_carry_are_refused(entry: dict[Any, Any]) -> None:
    with pytest.raises(Refused, match="amqp:invalid-field"):
        s.build_message(b"", application_properties=entry)


SHOWN: list[tuple[Any, str, Any]] = [
    (b"text", "text", "text"),
    (b"\xff", "base64", "/w=="),
    ("text", "text", "text"),
    (None, "json", None),
    (True, "json", True),
    (UInt(7), "json", 7),
    (float("inf"), "json", "inf"),
    (Uuid(bytes(16)), "json", "00000000-0000-0000-0000-000000000000"),
    ([b"\xff", {ULong(1): "x"}], "json", ["/w==", {"1": "x"}]),
    (Array(0x70, (1, 2)), "json", [1, 2]),
    (Described(Symbol("d"), 1.5), "json", {"descriptor": "d", "value": 1.5}),
]


@pytest.mark.parametrize(("value", "encoding", "body"), SHOWN)
def test_shown_values(value: Any, encoding: str, body: Any) -> None:
    described = s.describe_message(s.encode_section(scan.VALUE, value))
    assert described == {"body_kind": "value", "body_encoding": encoding, "body": body}


def test_message_without_a_body() -> None:
    assert s.describe_message(b"") == {"body_kind": "none", "body_encoding": "text", "body": ""}
