"""Composites: round trips of every one, the declarations against the specification, and what their decoder refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from mqbroker.base.errors import Bug, PeerFault, Refused, Scope
from mqbroker.wire import composites
from mqbroker.wire import performatives as p
from mqbroker.wire import sections as s
from mqbroker.wire.composites import decode_composite, encode_composite
from mqbroker.wire.frames import AMQP_FRAME, SASL_FRAME, Frame, encode_frame, frame_at
from mqbroker.wire.types import Array, Described, Symbol, UByte, UInt, ULong, encode_value

from tests.unit.wire import strategies


@strategies.steady
@given(strategies.composites)
def test_round_trip(value: Any) -> None:
    raw = encode_composite(value)
    decoded, after = decode_composite(raw, 0, len(raw))
    assert decoded == value
    assert type(decoded) is type(value)
    assert after == len(raw)


@strategies.steady
@given(strategies.performatives)
def test_a_payload_behind_is_left_alone(value: Any) -> None:
    raw = p.encode(value)
    assert p.decode_performative(b"\xff" + raw + b"payload", 1, len(raw) + 8) == (value, len(raw) + 1)
    assert p.decode_performative(memoryview(raw), 0, len(raw)) == (value, len(raw))


@strategies.steady_few
@given(strategies.performatives)
def test_every_cut_is_a_fault(value: Any) -> None:
    raw = p.encode(value)
    for cut in range(len(raw)):
        with pytest.raises(PeerFault) as caught:
            p.decode_performative(raw, 0, cut)
        assert caught.value.scope is Scope.CONNECTION


# Class, descriptor code, number of fields, how many of them are mandatory: from the type definitions of AMQP 1.0.
DECLARED: list[tuple[Any, int, int, int]] = [
    (p.Open, 0x10, 10, 1), (p.Begin, 0x11, 8, 3), (p.Attach, 0x12, 14, 3), (p.Flow, 0x13, 11, 3),
    (p.Transfer, 0x14, 11, 1), (p.Disposition, 0x15, 6, 2), (p.Detach, 0x16, 3, 1), (p.End, 0x17, 1, 0),
    (p.Close, 0x18, 1, 0), (p.Error, 0x1D, 3, 1), (p.Received, 0x23, 2, 2), (p.Accepted, 0x24, 0, 0),
    (p.Rejected, 0x25, 1, 0), (p.Released, 0x26, 0, 0), (p.Modified, 0x27, 3, 0), (p.Source, 0x28, 11, 0),
    (p.Target, 0x29, 7, 0), (p.Coordinator, 0x30, 1, 0), (p.Declare, 0x31, 1, 0), (p.Discharge, 0x32, 2, 1),
    (p.Declared, 0x33, 1, 1), (p.TransactionalState, 0x34, 2, 1), (p.SaslMechanisms, 0x40, 1, 1),
    (p.SaslInit, 0x41, 3, 1), (p.SaslChallenge, 0x42, 1, 1), (p.SaslResponse, 0x43, 1, 1),
    (p.SaslOutcome, 0x44, 2, 1), (s.Header, 0x70, 5, 0), (s.Properties, 0x73, 13, 0),
]  # fmt: skip


@pytest.mark.parametrize(("made", "code", "count", "mandatory"), DECLARED)
def test_declaration(made: Any, code: int, count: int, mandatory: int) -> None:
    from mqbroker.wire.composites import _BY_CLASS

    codec = _BY_CLASS[made]
    assert (codec.code, len(codec.fields), sum(field.mandatory for field in codec.fields)) == (code, count, mandatory)
    assert [field.name.replace("-", "_") for field in codec.fields] == [each.name for each in dataclasses.fields(made)]


def test_all_composites_are_in_the_table_above() -> None:
    from mqbroker.wire.composites import _BY_CODE

    assert sorted(_BY_CODE) == sorted(row[1] for row in DECLARED)


def test_trailing_nulls_and_defaults_are_left_out() -> None:
    assert p.encode(p.Close()) == bytes.fromhex("00531845")
    assert p.encode(p.Detach(3)) == bytes.fromhex("005316c0 03 01 5203")
    assert p.encode(p.Flow(None, 1, 2, 3, drain=False)) == bytes.fromhex("005313c0 08 04 40 5201 5202 5203")
    assert p.encode(p.Transfer(0, more=True)) == bytes.fromhex("005314c0 07 06 43 40 40 40 40 41")


def test_arrays_of_symbols_are_remembered_within_bounds() -> None:
    for number in range(2 * composites.WRITTEN_SYMBOLS_MAX):
        for symbols in ((Symbol(f"s{number}"),), (Symbol("s" * 300 + str(number)), Symbol("t"))):
            for _ in range(2):
                raw = p.encode(p.SaslMechanisms(symbols))
                assert p.decode_performative(raw, 0, len(raw))[0] == p.SaslMechanisms(symbols)
    assert len(composites._WRITTEN_SYMBOLS) <= composites.WRITTEN_SYMBOLS_MAX
    assert max(map(len, composites._WRITTEN_SYMBOLS.values())) <= composites.WRITTEN_SYMBOLS_BYTES_MAX


def test_multiple_reads_one_symbol_and_arrays_alike() -> None:
    for sent in (Symbol("PLAIN"), Array(0xA3, (Symbol("PLAIN"),)), Array(0xB3, (Symbol("PLAIN"),))):
        raw = _list_of(0x40, sent)
        assert p.decode_performative(raw, 0, len(raw))[0] == p.SaslMechanisms((Symbol("PLAIN"),))


@pytest.mark.parametrize(
    "descriptor", [ULong(0x18), Symbol("amqp:close:list")], ids=["smallulong", "symbol"]
)  # fmt: skip
def test_descriptors(descriptor: Any) -> None:
    for raw in (encode_value(Described(descriptor, [])), b"\x00\x80" + b"\0" * 7 + b"\x18\x45"):
        assert p.decode_performative(raw, 0, len(raw)) == (p.Close(), len(raw))


def test_wide_lists() -> None:
    raw = b"\x00\x53\x16\xd0" + bytes.fromhex("00000007 00000002 5203 41")
    assert p.decode_performative(raw, 0, len(raw)) == (p.Detach(3, True), len(raw))


def _list_of(code: int, *values: Any) -> bytes:
    return encode_value(Described(ULong(code), list(values)))


NAME, ZERO, NONE = "name", UInt(0), None
INVALID: dict[str, bytes] = {
    "mandatory field is null": _list_of(0x16, None),
    "mandatory field is missing": _list_of(0x12, NAME, ZERO),
    "mandatory field behind an optional one is null": _list_of(0x11, None, None, ZERO, ZERO),
    "list without fields": _list_of(0x10),
    "too many fields": _list_of(0x18, None, None),
    "type of a field": _list_of(0x10, Symbol("name")),
    "string where a boolean is due": _list_of(0x12, NAME, ZERO, "receiver"),
    "long where a uint is due": _list_of(0x16, 3),
    "max-frame-size below 512": _list_of(0x10, NAME, None, UInt(511)),
    "max-frame-size of 0": _list_of(0x10, NAME, None, UInt(0)),
    "sender settle mode of 3": _list_of(0x12, NAME, ZERO, True, UByte(3)),
    "receiver settle mode of 2": _list_of(0x12, NAME, ZERO, True, None, UByte(2)),
    "delivery tag of 33 bytes": _list_of(0x14, ZERO, ZERO, b"t" * 33),
    "state that is no state": _list_of(0x15, True, ZERO, None, None, Described(ULong(0x28), [])),
    "transaction inside a transaction": _list_of(
        0x15, True, ZERO, None, None, Described(ULong(0x34), [b"t", Described(ULong(0x34), [b"t"])])
    ),
    "source that is a target": _list_of(0x12, NAME, ZERO, True, None, None, Described(ULong(0x29), [])),
    "address that is no string": _list_of(0x12, NAME, ZERO, True, None, None, Described(ULong(0x28), [ULong(1)])),
    "expiry policy": _list_of(
        0x12, NAME, ZERO, True, None, None, Described(ULong(0x28), [None, None, Symbol("sometimes")])
    ),
    "properties with a string as key": _list_of(0x10, NAME, *[None] * 8, {"product": "x"}),
    "properties that are a list": _list_of(0x10, NAME, *[None] * 8, []),
    "capability that is a string": _list_of(0x10, NAME, *[None] * 6, "x"),
    "capabilities of strings": _list_of(0x10, NAME, *[None] * 6, Array(0xA1, ("x",))),
    "capabilities that are described": _list_of(0x10, NAME, *[None] * 6, Array(0xA3, ("x",), (ULong(1),))),
    "error that is a source": _list_of(0x18, Described(ULong(0x28), [])),
    "SASL outcome code 5": _list_of(0x44, UByte(5)),
    "header in the place of a performative": _list_of(0x70),
}

UNDECODABLE: dict[str, bytes] = {
    "no descriptor": b"\x45",
    "descriptor of another type": b"\x00\xa1\x01x\x45",
    "described descriptor": b"\x00\x00\x53\x10\x53\x10\x45",
    "unknown code": b"\x00\x53\x99\x45",
    "unknown wide code": b"\x00\x80\xff\xff\xff\xff\xff\xff\xff\xff\x45",
    "unknown symbol": b"\x00\xa3\x01x\x45",
    "no list": b"\x00\x53\x18\xc1\x01\x00",
    "nothing behind the descriptor": b"\x00\x53\x18",
    "bytes behind the last field": bytes.fromhex("005316 c0 04 01 5203 40"),
    "fields missing in the bytes": bytes.fromhex("005316 c0 03 02 5203"),
    "malformed properties": bytes.fromhex("005310 c0 10 0a a10178 4040404040404040 c1 02 01 40"),
}


@pytest.mark.parametrize("raw", INVALID.values(), ids=INVALID)
def test_invalid_field(raw: bytes) -> None:
    with pytest.raises(PeerFault) as caught:
        p.decode_performative(raw, 0, len(raw))
    assert (caught.value.condition, caught.value.scope) == ("amqp:invalid-field", Scope.CONNECTION)
    assert "amqp:" in caught.value.description


@pytest.mark.parametrize("raw", UNDECODABLE.values(), ids=UNDECODABLE)
def test_decode_error(raw: bytes) -> None:
    with pytest.raises(PeerFault) as caught:
        p.decode_performative(raw, 0, len(raw))
    assert (caught.value.condition, caught.value.scope) == ("amqp:decode-error", Scope.CONNECTION)


def test_a_fault_names_performative_and_field() -> None:
    raw = _list_of(0x12, NAME, ZERO, True, None, None, Described(ULong(0x28), [ULong(1)]))
    with pytest.raises(PeerFault, match="amqp:attach:list, source: amqp:source:list, address: string expected"):
        p.decode_performative(raw, 0, len(raw))


def test_our_own_mistakes_are_bugs_and_values_of_callers_are_refused() -> None:
    with pytest.raises(Bug, match="handle"):
        p.encode(p.Detach(None))  # type: ignore[arg-type]
    with pytest.raises(Refused, match="amqp:detach:list, handle"):
        p.encode(p.Detach(2**32))


def test_secrets_are_not_shown() -> None:
    shown = repr([p.SaslInit(Symbol("PLAIN"), b"\0user\0secret"), p.SaslResponse(b"secret")])
    assert "secret" not in shown


# -- frames -----------------------------------------------------------------------------------------------------------


def _framed(body: bytes, type: int) -> tuple[bytes, Frame]:
    raw = encode_frame(0, body, type=type)
    frame = frame_at(raw, 0, len(raw), 512)
    assert frame is not None
    return raw, frame


def test_frame_bodies() -> None:
    assert p.decode_frame(*_framed(b"", AMQP_FRAME)) == (None, 8)
    assert p.decode_frame(*_framed(p.encode(p.Close()) + b"payload", AMQP_FRAME)) == (p.Close(), 12)
    assert p.decode_frame(*_framed(p.encode(p.SaslOutcome(0)), SASL_FRAME))[0] == p.SaslOutcome(0)


@pytest.mark.parametrize(
    ("body", "type"),
    [(p.encode(p.Close()), SASL_FRAME), (p.encode(p.SaslOutcome(0)), AMQP_FRAME), (b"", SASL_FRAME),
     (p.encode(p.SaslOutcome(0)) + b"x", SASL_FRAME), (p.encode(p.Close()), 2)],
)  # fmt: skip
def test_frame_bodies_of_the_wrong_type(body: bytes, type: int) -> None:
    with pytest.raises(PeerFault):
        p.decode_frame(*_framed(body, type))


@strategies.steady
@given(strategies.composite(p.Declare) | strategies.composite(p.Discharge))
def test_coordination(value: Any) -> None:
    raw = encode_composite(value)
    assert p.decode_coordination(raw, 0, len(raw)) == value
    with pytest.raises(PeerFault):
        p.decode_coordination(raw + b"\x40", 0, len(raw) + 1)
