"""Bytes to values: one reader per format code, found in a table of 256.

Invariant: a reader returns a value and the offset behind it, or raises PeerFault, whatever the bytes are. It never
looks at or past `end`, and its time is bounded by the bytes between `offset` and `end`. Source: AMQP 1.0 §1.6.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from mqbroker.base.errors import PeerFault, Scope
from mqbroker.wire import codes
from mqbroker.wire.values import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Encoded,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
)

# Read-only: slices of it are kept, hashed and compared.
Buffer = bytes | memoryview

# (buffer, offset behind the format code, end, depth) -> (value without its wrapper, offset behind it)
Reader = Callable[[Buffer, int, int, int], tuple[Any, int]]

_unpack_u32 = Struct(">I").unpack_from
_unpack_two_u32 = Struct(">II").unpack_from
_unpack_two_u8 = Struct(">BB").unpack_from


def decode_fault(why: str, offset: int) -> PeerFault:
    return PeerFault("amqp:decode-error", f"{why} at byte {offset}", Scope.CONNECTION)


def decode_value(buffer: Buffer, offset: int, end: int, depth: int = 0) -> tuple[Any, int]:
    """The value whose format code is at `offset`, and the offset behind it. Raises PeerFault amqp:decode-error."""
    if offset >= end:
        raise decode_fault("value expected, nothing left", offset)
    code = buffer[offset]
    reader = READERS[code]
    if reader is None:
        raise decode_fault(f"unknown format code 0x{code:02x}", offset)
    value, offset = reader(buffer, offset + 1, end, depth)
    wrap = _WRAPPERS.get(code)
    return (value if wrap is None else wrap(value)), offset


def compound_bounds(buffer: Buffer, offset: int, end: int, wide: bool) -> tuple[int, int, int]:
    """(count, body, body end) of a list, map or array whose size field is at `offset`, checked against `end`."""
    body = offset + (8 if wide else 2)
    if body > end:
        raise decode_fault("size and count cut off", offset)
    size, count = (_unpack_two_u32 if wide else _unpack_two_u8)(buffer, offset)
    body_end = body + size - (4 if wide else 1)  # the size counts the count
    if body_end > end or body_end < body:
        raise decode_fault(f"compound of {size} bytes does not fit its surroundings", offset)
    return count, body, body_end


def _fixed(layout: str) -> Reader:
    struct = Struct(layout)
    width, unpack = struct.size, struct.unpack_from

    def read(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[Any, int]:
        after = offset + width
        if after > end:
            raise decode_fault(f"{width} bytes expected", offset)
        return unpack(buffer, offset)[0], after

    return read


def _constant(value: Any) -> Reader:
    def read(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[Any, int]:
        return value, offset

    return read


def _read_list0(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[list[Any], int]:
    return [], offset


def _read_boolean(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[bool, int]:
    if offset >= end or buffer[offset] > 1:
        raise decode_fault("boolean must be 0x00 or 0x01", offset)
    return buffer[offset] == 1, offset + 1


def _read_char(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[Char, int]:
    if offset + 4 > end:
        raise decode_fault("4 bytes expected", offset)
    point = _unpack_u32(buffer, offset)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise decode_fault(f"0x{point:x} is no Unicode character", offset)
    return Char(chr(point)), offset + 4


def _variable(wide: bool, convert: Callable[[Buffer], Any]) -> Reader:
    width = 4 if wide else 1

    def read(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[Any, int]:
        start = offset + width
        if start > end:
            raise decode_fault("size cut off", offset)
        after = start + (_unpack_u32(buffer, offset)[0] if wide else buffer[offset])
        if after > end:
            raise decode_fault(f"{after - start} bytes do not fit their surroundings", offset)
        try:
            return convert(buffer[start:after]), after
        except UnicodeDecodeError as error:
            raise decode_fault(f"text is not {error.encoding}", start + error.start) from None

    return read


def _text(piece: Buffer) -> str:
    return str(piece, "utf-8")


def _symbol(piece: Buffer) -> Symbol:
    return Symbol(piece, "ascii")


def _listed(wide: bool) -> Reader:
    def read(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[list[Any], int]:
        _check_depth(depth, offset)
        count, offset, body_end = compound_bounds(buffer, offset, end, wide)
        if count > body_end - offset:
            raise decode_fault(f"list of {count} values in {body_end - offset} bytes", offset)
        values = []
        for _ in range(count):
            value, offset = decode_value(buffer, offset, body_end, depth + 1)
            values.append(value)
        _check_used_up(offset, body_end)
        return values, body_end

    return read


def _mapped(wide: bool) -> Reader:
    code = bytes((codes.MAP32 if wide else codes.MAP8,))

    def read(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[dict[Any, Any] | Encoded, int]:
        _check_depth(depth, offset)
        begin = offset
        count, offset, body_end = compound_bounds(buffer, offset, end, wide)
        if count % 2 or count > body_end - offset:
            raise decode_fault(f"map of {count} keys and values in {body_end - offset} bytes", offset)
        values: dict[Any, Any] = {}
        for _ in range(count // 2):
            is_compound = offset < body_end and buffer[offset] in COMPOUNDS
            key, offset = decode_value(buffer, offset, body_end, depth + 1)
            value, offset = decode_value(buffer, offset, body_end, depth + 1)
            if not is_compound:
                values[key] = value
        _check_used_up(offset, body_end)
        if len(values) != count // 2:
            return Encoded(code + bytes(buffer[begin:body_end])), body_end
        return values, body_end

    return read


def _arrayed(wide: bool) -> Reader:
    def read(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[Array, int]:
        _check_depth(depth, offset)
        count, offset, body_end = compound_bounds(buffer, offset, end, wide)
        descriptors, code, reader, offset = _array_constructor(buffer, offset, body_end, depth + 1)
        limit = codes.ZERO_WIDTH_COUNT_MAX if code in codes.ZERO_WIDTH else body_end - offset
        if count > limit:
            raise decode_fault(f"array of {count} values where {limit} are possible", offset)
        values = []
        for _ in range(count):
            value, offset = reader(buffer, offset, body_end, depth + 1)
            values.append(value)
        _check_used_up(offset, body_end)
        return Array(code, tuple(values), descriptors), body_end

    return read


def _array_constructor(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[tuple[Any, ...], int, Reader, int]:
    """(descriptors, format code, its reader, offset behind) of the constructor that an array's values share."""
    descriptors: list[Any] = []
    while offset < end and buffer[offset] == codes.DESCRIBED:
        _check_depth(depth + len(descriptors), offset)
        descriptor, offset = decode_value(buffer, offset + 1, end, depth + 1)
        descriptors.append(descriptor)
    if offset >= end:
        raise decode_fault("array without a constructor", offset)
    code = buffer[offset]
    reader = READERS[code]
    if reader is None:
        raise decode_fault(f"unknown format code 0x{code:02x}", offset)
    return tuple(descriptors), code, reader, offset + 1


def _read_described(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[Described, int]:
    _check_depth(depth, offset)
    descriptor, offset = decode_value(buffer, offset, end, depth + 1)
    value, offset = decode_value(buffer, offset, end, depth + 1)
    return Described(descriptor, value), offset


def _check_depth(depth: int, offset: int) -> None:
    if depth >= codes.DEPTH_MAX:
        raise decode_fault(f"values nested deeper than {codes.DEPTH_MAX}", offset)


def _check_used_up(offset: int, body_end: int) -> None:
    if offset != body_end:
        raise decode_fault(f"compound has {body_end - offset} bytes behind its last value", offset)


COMPOUNDS = frozenset(
    (
        codes.DESCRIBED,
        codes.LIST0,
        codes.LIST8,
        codes.LIST32,
        codes.MAP8,
        codes.MAP32,
        codes.ARRAY8,
        codes.ARRAY32,
    )
)

_BY_CODE: dict[int, Reader] = {
    codes.DESCRIBED: _read_described,
    codes.NULL: _constant(None),
    codes.TRUE: _constant(True),
    codes.FALSE: _constant(False),
    codes.UINT0: _constant(0),
    codes.ULONG0: _constant(0),
    codes.LIST0: _read_list0,
    codes.UBYTE: _fixed(">B"),
    codes.BYTE: _fixed(">b"),
    codes.SMALLUINT: _fixed(">B"),
    codes.SMALLULONG: _fixed(">B"),
    codes.SMALLINT: _fixed(">b"),
    codes.SMALLLONG: _fixed(">b"),
    codes.BOOLEAN: _read_boolean,
    codes.USHORT: _fixed(">H"),
    codes.SHORT: _fixed(">h"),
    codes.UINT: _fixed(">I"),
    codes.INT: _fixed(">i"),
    codes.FLOAT: _fixed(">f"),
    codes.CHAR: _read_char,
    codes.DECIMAL32: _fixed(">4s"),
    codes.ULONG: _fixed(">Q"),
    codes.LONG: _fixed(">q"),
    codes.DOUBLE: _fixed(">d"),
    codes.TIMESTAMP: _fixed(">q"),
    codes.DECIMAL64: _fixed(">8s"),
    codes.DECIMAL128: _fixed(">16s"),
    codes.UUID: _fixed(">16s"),
    codes.VBIN8: _variable(False, bytes),
    codes.STR8: _variable(False, _text),
    codes.SYM8: _variable(False, _symbol),
    codes.VBIN32: _variable(True, bytes),
    codes.STR32: _variable(True, _text),
    codes.SYM32: _variable(True, _symbol),
    codes.LIST8: _listed(False),
    codes.MAP8: _mapped(False),
    codes.LIST32: _listed(True),
    codes.MAP32: _mapped(True),
    codes.ARRAY8: _arrayed(False),
    codes.ARRAY32: _arrayed(True),
}

READERS: tuple[Reader | None, ...] = tuple(_BY_CODE.get(code) for code in range(256))

_WRAPPERS: dict[int, Callable[[Any], Any]] = {
    codes.UBYTE: UByte,
    codes.USHORT: UShort,
    codes.UINT: UInt,
    codes.SMALLUINT: UInt,
    codes.UINT0: UInt,
    codes.ULONG: ULong,
    codes.SMALLULONG: ULong,
    codes.ULONG0: ULong,
    codes.BYTE: Byte,
    codes.SHORT: Short,
    codes.INT: Int,
    codes.SMALLINT: Int,
    codes.LONG: Long,
    codes.SMALLLONG: Long,
    codes.TIMESTAMP: Timestamp,
    codes.FLOAT: Float,
    codes.DECIMAL32: Decimal32,
    codes.DECIMAL64: Decimal64,
    codes.DECIMAL128: Decimal128,
    codes.UUID: Uuid,
}
