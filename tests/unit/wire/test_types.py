"""Values: vectors from AMQP 1.0 §1.6, round trips, and what is refused in both directions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault, Refused, Scope
from mqbroker.wire import types as t

from tests.unit.wire import strategies

# (encoding, value, is it the smallest one)
VECTORS: list[tuple[str, Any, bool]] = [
    ("40", None, True),
    ("41", True, True), ("42", False, True), ("56 01", True, False), ("56 00", False, False),
    ("50 ff", t.UByte(255), True),
    ("60 ffff", t.UShort(65535), True),
    ("43", t.UInt(0), True), ("52 ff", t.UInt(255), True), ("70 00000100", t.UInt(256), True),
    ("70 00000000", t.UInt(0), False),
    ("44", t.ULong(0), True), ("53 ff", t.ULong(255), True), ("80 ffffffffffffffff", t.ULong(2**64 - 1), True),
    ("51 80", t.Byte(-128), True), ("61 8000", t.Short(-32768), True),
    ("54 80", t.Int(-128), True), ("71 ffffff7f", t.Int(-129), True), ("71 80000000", t.Int(-(2**31)), True),
    ("55 7f", t.Long(127), True), ("81 0000000000000080", t.Long(128), True),
    ("72 3f800000", t.Float(1.0), True), ("82 bff0000000000000", -1.0, True),
    ("74 22500001", t.Decimal32(bytes.fromhex("22500001")), True),
    ("84 2238000000000001", t.Decimal64(bytes.fromhex("2238000000000001")), True),
    ("94 22080000000000000000000000000001", t.Decimal128(bytes.fromhex("22080000000000000000000000000001")), True),
    ("73 0001f600", t.Char("\U0001f600"), True),
    ("83 00000138da5d7a00", t.Timestamp(0x138DA5D7A00), True),
    ("98 f81d4fae7dec11d0a76500a0c91e6bf6", t.Uuid(bytes.fromhex("f81d4fae7dec11d0a76500a0c91e6bf6")), True),
    ("a0 02 00ff", b"\x00\xff", True), ("b0 00000002 00ff", b"\x00\xff", False),
    ("a1 03 e282ac", "€", True), ("b1 00000003 e282ac", "€", False),
    ("a3 03 616263", t.Symbol("abc"), True), ("b3 00000003 616263", t.Symbol("abc"), False),
    ("45", [], True), ("c0 01 00", [], False), ("d0 00000004 00000000", [], False),
    ("c0 03 02 40 41", [None, True], True), ("d0 00000006 00000002 40 41", [None, True], False),
    ("c1 06 02 a3 01 61 52 07", {t.Symbol("a"): t.UInt(7)}, True), ("c1 01 00", {}, True),
    ("d1 00000004 00000000", {}, False),
    ("00 53 24 45", t.Described(t.ULong(0x24), []), True),
    ("00 a3 01 61 00 53 01 40", t.Described(t.Symbol("a"), t.Described(t.ULong(1), None)), True),
    ("e0 0a 02 70 00000001 00000002", t.Array(0x70, (1, 2)), True),
    ("f0 0000000d 00000002 70 00000001 00000002", t.Array(0x70, (1, 2)), False),
    ("e0 02 00 a3", t.Array(0xA3, ()), True),
    ("e0 02 03 41", t.Array(0x41, (True, True, True)), True),
    ("e0 07 02 00 53 05 50 01 02", t.Array(0x50, (1, 2), (t.ULong(5),)), True),
    # maps that no dict can hold
    *((raw, t.Encoded(bytes.fromhex(raw)), True) for raw in (
        "c1 05 04 41 40 41 40", "c1 06 04 52 01 40 41 40", "c1 03 02 45 40", "c1 06 02 00 53 01 40 40",
    )),
    ("c0 08 01 c1 05 04 41 40 41 40", [t.Encoded(bytes.fromhex("c1 05 04 41 40 41 40"))], True),
    ("e0 0a 02 c1 05 04 41 40 41 40 01 00",
     t.Array(0xC1, (t.Encoded(bytes.fromhex("c1 05 04 41 40 41 40")), {})), True),
    ("e0 09 02 c0 02 01 40 03 02 41 42", t.Array(0xC0, ([None], [True, False])), True),
]  # fmt: skip


@pytest.mark.parametrize(("encoding", "value", "smallest"), VECTORS)
def test_vector(encoding: str, value: Any, smallest: bool) -> None:
    raw = bytes.fromhex(encoding)
    decoded, after = t.decode_value(raw, 0, len(raw))
    assert strategies.typed(decoded) == strategies.typed(value)
    assert after == len(raw)
    if smallest:
        assert t.encode_value(value) == raw
    else:
        assert len(t.encode_value(value)) < len(raw)


def test_example_of_the_specification() -> None:
    """The book of §1.4: a described list of a string, an array of strings and a null."""
    raw = (
        b"\x00\xa3\x11example:book:list\xc0\x40\x03\xa1\x15AMQP for & by Dummies"
        b"\xe0\x25\x02\xa1\x0eRob J. Godfrey\x13Rafael H. Schloming\x40"
    )
    authors = t.Array(0xA1, ("Rob J. Godfrey", "Rafael H. Schloming"))
    book = t.Described(t.Symbol("example:book:list"), ["AMQP for & by Dummies", authors, None])
    assert t.decode_value(raw, 0, len(raw)) == (book, len(raw))
    assert t.encode_value(book) == raw


@strategies.steady
@given(strategies.values)
def test_round_trip(value: Any) -> None:
    raw = t.encode_value(value)
    decoded, after = t.decode_value(raw, 0, len(raw))
    assert strategies.typed(decoded) == strategies.typed(value)
    assert after == len(raw)


@strategies.steady
@given(strategies.values, st.binary(max_size=5), st.binary(max_size=5))
def test_surroundings_do_not_matter(value: Any, before: bytes, behind: bytes) -> None:
    raw = t.encode_value(value)
    end = len(before) + len(raw)
    for buffer in (before + raw + behind, memoryview(before + raw + behind)):
        decoded, after = t.decode_value(buffer, len(before), end)
        assert strategies.typed(decoded) == strategies.typed(value)
        assert after == end


@pytest.mark.slow
@strategies.steady_few
@given(strategies.values)
def test_every_cut_is_a_decode_error(value: Any) -> None:
    """The bytes behind the cut are in the buffer: `end` alone must stop the decoder."""
    raw = t.encode_value(value)
    for cut in range(len(raw)):
        with pytest.raises(PeerFault) as caught:
            t.decode_value(raw, 0, cut)
        assert (caught.value.condition, caught.value.scope) == ("amqp:decode-error", Scope.CONNECTION)


@pytest.mark.parametrize(("size", "first"), [(255, 0xA0), (256, 0xB0)])
def test_binary_grows_at_256_bytes(size: int, first: int) -> None:
    assert t.encode_value(b"x" * size)[0] == first


@pytest.mark.parametrize(
    ("value", "first"),
    [([None] * 254, 0xC0), ([None] * 255, 0xD0), ({t.UInt(n + 1): None for n in range(84)}, 0xC1),
     ({t.UInt(n + 1): None for n in range(85)}, 0xD1), (t.Array(0x50, (1,) * 253), 0xE0),
     (t.Array(0x50, (1,) * 254), 0xF0)],
)  # fmt: skip
def test_compounds_grow_when_the_short_form_is_full(value: Any, first: int) -> None:
    raw = t.encode_value(value)
    assert raw[0] == first
    assert t.decode_value(raw, 0, len(raw)) == (value, len(raw))


MALFORMED = {
    "nothing": "",
    "unknown format code": "3f",
    "boolean 2": "56 02",
    "string that is no utf-8": "a1 02 c328",
    "string with an encoded surrogate": "a1 03 eda080",
    "symbol that is not ascii": "a3 01 80",
    "char beyond unicode": "73 00110000",
    "char in the surrogates": "73 0000d800",
    "list size without room for its count": "c0 00 00",
    "list32 size without room for its count": "d0 00000003 00000000",
    "list with more values than bytes": "c0 02 05 40",
    "list with bytes behind its last value": "c0 03 01 40 40",
    "list whose value runs into the next": "c0 03 01 a1 05 6162636465",
    "map of an odd count": "c1 04 03 40 41 42",
    "map with bytes behind its last value": "c1 04 02 41 40 40",
    "array without a constructor": "e0 01 00",
    "array with an unknown constructor": "e0 02 00 3f",
    "array with bytes behind its last value": "e0 04 01 50 01 02",
    "array cut off in its descriptor": "e0 02 00 00",
    "described without a value": "00 53 24",
}


@pytest.mark.parametrize("encoding", MALFORMED.values(), ids=MALFORMED)
def test_malformed(encoding: str) -> None:
    raw = bytes.fromhex(encoding)
    with pytest.raises(PeerFault, match=r"amqp:decode-error: .* at byte \d+"):
        t.decode_value(raw, 0, len(raw))


_cycle: list[Any] = []
_cycle.append(_cycle)
UNENCODABLE = {
    "object": object(),
    "set": {1},
    "bytearray": bytearray(b"x"),
    "ubyte 256": t.UByte(256),
    "uint -1": t.UInt(-1),
    "uint 2^32": t.UInt(2**32),
    "ulong -1": t.ULong(-1),
    "int 2^63": 2**63,
    "float out of 32 bits": t.Float(1e300),
    "symbol that is not ascii": t.Symbol("ü"),
    "lone surrogate": "\ud800",
    "char of two": t.Char("ab"),
    "char that is a surrogate": t.Char("\ud800"),
    "uuid of 15 bytes": t.Uuid(b"x" * 15),
    "list that holds itself": _cycle,
    "array of unknown constructor": t.Array(0x3F, ()),
    "array of another type": t.Array(0x70, ("x",)),
    "array of a string too long": t.Array(0xA1, ("x" * 256,)),
    "array of true that holds false": t.Array(0x41, (False,)),
    "array of 65 nulls": t.Array(0x40, (None,) * 65),
    "array with 40 descriptors": t.Array(0x50, (), (t.ULong(1),) * 40),
}


@pytest.mark.parametrize("value", UNENCODABLE.values(), ids=UNENCODABLE)
def test_unencodable(value: Any) -> None:
    with pytest.raises(Refused, match="amqp:invalid-field: cannot encode"):
        t.encode_value(value)


def test_subclasses_encode_as_what_they_are() -> None:
    class Colour(str):
        pass

    assert t.encode_value(Colour("red")) == b"\xa1\x03red"


def test_uuid_shows_as_people_write_it() -> None:
    assert str(t.Uuid(bytes.fromhex("f81d4fae7dec11d0a76500a0c91e6bf6"))) == "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
