"""Values to bytes, each in the smallest encoding of its type.

Invariant: what decodes encodes again to the same value and type. A value that AMQP cannot carry raises Refused
amqp:invalid-field, for it came from a caller (an operator, an application) and the node must outlive it.
Source: AMQP 1.0 §1.6.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from mqbroker.base.errors import Refused
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

# (value, depth) -> bytes: with the format code for a Writer, without it for a value inside an array.
Writer = Callable[[Any, int], bytes]

_pack_code_u32 = struct.Struct(">BI").pack
_BYTES = [bytes((value,)) for value in range(256)]
_SMALL_UINTS = [b"\x43"] + [bytes((codes.SMALLUINT, value)) for value in range(1, 256)]


def encode_value(value: Any, depth: int = 0) -> bytes:
    """`value` with its format code. Raises Refused amqp:invalid-field for what AMQP has no type for."""
    writer = _WRITERS.get(type(value))
    if writer is None:
        writer = _writer_of_base(type(value))
    try:
        return writer(value, depth)
    except (struct.error, OverflowError, UnicodeEncodeError, TypeError, AttributeError) as error:
        raise encode_refusal(f"{type(value).__name__} out of its range: {error}") from None


def encode_refusal(why: str) -> Refused:
    return Refused("amqp:invalid-field", f"cannot encode {why}")


def encode_compound(code8: int, code32: int, count: int, body: bytes) -> bytes:
    """A list or map of `count` encoded values, short form where it fits."""
    if count <= 255 and len(body) <= 254:
        return _BYTES[code8] + _BYTES[len(body) + 1] + _BYTES[count] + body
    return struct.pack(">BII", code32, len(body) + 4, count) + body


def encode_list(count: int, body: bytes) -> bytes:
    return encode_compound(codes.LIST8, codes.LIST32, count, body) if count else b"\x45"


def encode_uint(value: int, depth: int = 0) -> bytes:
    if 0 <= value <= 255:
        return _SMALL_UINTS[value]
    return _pack_code_u32(codes.UINT, value)


def encode_ulong(value: int, depth: int = 0) -> bytes:
    if 0 < value <= 255:
        return bytes((codes.SMALLULONG, value))
    return struct.pack(">BQ", codes.ULONG, value) if value else b"\x44"


def encode_binary(value: bytes, depth: int = 0) -> bytes:
    return _encode_variable(codes.VBIN8, codes.VBIN32, value)


def encode_string(value: str, depth: int = 0) -> bytes:
    return _encode_variable(codes.STR8, codes.STR32, value.encode())


def encode_symbol(value: str, depth: int = 0) -> bytes:
    return _encode_variable(codes.SYM8, codes.SYM32, value.encode("ascii"))


def encode_boolean(value: bool, depth: int = 0) -> bytes:
    return b"\x41" if value else b"\x42"


def encode_fixed(code: int, layout: str) -> Writer:
    pack = struct.Struct(">B" + layout).pack

    def write(value: Any, depth: int = 0) -> bytes:
        return pack(code, value)

    return write


def encode_map(value: dict[Any, Any], depth: int = 0) -> bytes:
    body = _encode_all(list(chain.from_iterable(value.items())), depth)
    return encode_compound(codes.MAP8, codes.MAP32, 2 * len(value), body)


def encode_array(value: Array, depth: int = 0) -> bytes:
    count, body = len(value.values), _array_body(value, depth)
    return encode_compound(codes.ARRAY8, codes.ARRAY32, count, body)


def _encode_variable(code8: int, code32: int, body: bytes) -> bytes:
    if len(body) <= 255:
        return _BYTES[code8] + _BYTES[len(body)] + body
    return _pack_code_u32(code32, len(body)) + body


def _encode_null(value: None, depth: int) -> bytes:
    return b"\x40"


def _encode_int(value: int, depth: int) -> bytes:
    if -128 <= value <= 127:
        return struct.pack(">Bb", codes.SMALLINT, value)
    return struct.pack(">Bi", codes.INT, value)


def _encode_long(value: int, depth: int) -> bytes:
    if -128 <= value <= 127:
        return struct.pack(">Bb", codes.SMALLLONG, value)
    return struct.pack(">Bq", codes.LONG, value)


def _encode_char(value: Char, depth: int) -> bytes:
    return b"\x73" + _char_element(value, depth)


def _encode_raw(code: int, width: int) -> Writer:
    element = _raw_element(width)

    def write(value: bytes, depth: int) -> bytes:
        return bytes((code,)) + element(value, depth)

    return write


def _encode_list(value: Sequence[Any], depth: int) -> bytes:
    return encode_list(len(value), _encode_all(value, depth))


def _encode_encoded(value: Encoded, depth: int) -> bytes:
    return bytes(value)


def _encode_described(value: Described, depth: int) -> bytes:
    return b"\x00" + _encode_all((value.descriptor, value.value), depth)


def _encode_all(values: Sequence[Any], depth: int) -> bytes:
    """Everything inside a compound at `depth`; a list that holds itself ends here too."""
    if depth >= codes.DEPTH_MAX:
        raise encode_refusal(f"values nested deeper than {codes.DEPTH_MAX}")
    return b"".join([encode_value(value, depth + 1) for value in values])


def _array_body(value: Array, depth: int) -> bytes:
    if depth + len(value.descriptors) >= codes.DEPTH_MAX:
        raise encode_refusal(f"values nested deeper than {codes.DEPTH_MAX}")
    write = _ELEMENTS.get(value.constructor)
    if write is None:
        raise encode_refusal(f"array with the unknown constructor 0x{value.constructor:02x}")
    if value.constructor in codes.ZERO_WIDTH and len(value.values) > codes.ZERO_WIDTH_COUNT_MAX:
        raise encode_refusal(f"array of more than {codes.ZERO_WIDTH_COUNT_MAX} values without width")
    described = b"".join([b"\x00" + encode_value(each, depth + 2) for each in value.descriptors])
    constructor = bytes((value.constructor,))
    return described + constructor + b"".join([write(each, depth + 1) for each in value.values])


def _fixed_element(layout: str) -> Writer:
    pack = struct.Struct(">" + layout).pack
    return lambda value, depth: pack(value)


def _only(constant: Any) -> Writer:
    def write(value: Any, depth: int) -> bytes:
        if value != constant:
            raise encode_refusal(f"{value!r} in an array whose constructor says {constant!r}")
        return b""

    return write


def _raw_element(width: int) -> Writer:
    def write(value: bytes, depth: int) -> bytes:
        if len(value) != width:
            raise encode_refusal(f"{len(value)} bytes where the type has {width}")
        return bytes(value)

    return write


def _char_element(value: Char, depth: int) -> bytes:
    if len(value) != 1:
        raise encode_refusal(f"char of {len(value)} characters")
    return value.encode("utf-32-be")


def _variable_element(layout: str, encoding: str | None) -> Writer:
    pack = struct.Struct(layout).pack

    def write(value: Any, depth: int) -> bytes:
        body: bytes = value if encoding is None else value.encode(encoding)
        return pack(len(body)) + body

    return write


def _compound_element(code: int, layout: str, kind: type) -> Writer:
    """Size, count and body in the width that the array's constructor fixes for all of its values."""
    header = struct.Struct(layout)
    width = header.size // 2

    def write(value: Any, depth: int) -> bytes:
        if type(value) is Encoded and value[0] == code:
            return bytes(value[1:])
        if kind is Array:
            count, body = len(value.values), _array_body(value, depth)
        else:
            values = list(chain.from_iterable(value.items())) if kind is dict else value
            count, body = len(values), _encode_all(values, depth)
        return header.pack(len(body) + width, count) + body

    return write


def _writer_of_base(kind: type) -> Writer:
    for base in kind.__mro__[1:]:
        if base in _WRITERS:
            return _WRITERS[base]
    raise encode_refusal(f"{kind.__name__}: AMQP has no such type")


_WRITERS: dict[type, Writer] = {
    type(None): _encode_null,
    bool: encode_boolean,
    int: _encode_long,
    float: encode_fixed(codes.DOUBLE, "d"),
    str: encode_string,
    bytes: encode_binary,
    memoryview: encode_binary,
    list: _encode_list,
    tuple: _encode_list,
    dict: encode_map,
    Symbol: encode_symbol,
    Char: _encode_char,
    UByte: encode_fixed(codes.UBYTE, "B"),
    UShort: encode_fixed(codes.USHORT, "H"),
    UInt: encode_uint,
    ULong: encode_ulong,
    Byte: encode_fixed(codes.BYTE, "b"),
    Short: encode_fixed(codes.SHORT, "h"),
    Int: _encode_int,
    Long: _encode_long,
    Timestamp: encode_fixed(codes.TIMESTAMP, "q"),
    Float: encode_fixed(codes.FLOAT, "f"),
    Decimal32: _encode_raw(codes.DECIMAL32, 4),
    Decimal64: _encode_raw(codes.DECIMAL64, 8),
    Decimal128: _encode_raw(codes.DECIMAL128, 16),
    Uuid: _encode_raw(codes.UUID, 16),
    Encoded: _encode_encoded,
    Described: _encode_described,
    Array: encode_array,
}

_ELEMENTS: dict[int, Writer] = {
    codes.NULL: _only(None),
    codes.TRUE: _only(True),
    codes.FALSE: _only(False),
    codes.UINT0: _only(0),
    codes.ULONG0: _only(0),
    codes.LIST0: _only([]),
    codes.UBYTE: _fixed_element("B"),
    codes.BYTE: _fixed_element("b"),
    codes.SMALLUINT: _fixed_element("B"),
    codes.SMALLULONG: _fixed_element("B"),
    codes.SMALLINT: _fixed_element("b"),
    codes.SMALLLONG: _fixed_element("b"),
    codes.BOOLEAN: _fixed_element("?"),
    codes.USHORT: _fixed_element("H"),
    codes.SHORT: _fixed_element("h"),
    codes.UINT: _fixed_element("I"),
    codes.INT: _fixed_element("i"),
    codes.FLOAT: _fixed_element("f"),
    codes.CHAR: _char_element,
    codes.DECIMAL32: _raw_element(4),
    codes.ULONG: _fixed_element("Q"),
    codes.LONG: _fixed_element("q"),
    codes.DOUBLE: _fixed_element("d"),
    codes.TIMESTAMP: _fixed_element("q"),
    codes.DECIMAL64: _raw_element(8),
    codes.DECIMAL128: _raw_element(16),
    codes.UUID: _raw_element(16),
    codes.VBIN8: _variable_element(">B", None),
    codes.STR8: _variable_element(">B", "utf-8"),
    codes.SYM8: _variable_element(">B", "ascii"),
    codes.VBIN32: _variable_element(">I", None),
    codes.STR32: _variable_element(">I", "utf-8"),
    codes.SYM32: _variable_element(">I", "ascii"),
    codes.LIST8: _compound_element(codes.LIST8, ">BB", list),
    codes.MAP8: _compound_element(codes.MAP8, ">BB", dict),
    codes.LIST32: _compound_element(codes.LIST32, ">II", list),
    codes.MAP32: _compound_element(codes.MAP32, ">II", dict),
    codes.ARRAY8: _compound_element(codes.ARRAY8, ">BB", Array),
    codes.ARRAY32: _compound_element(codes.ARRAY32, ">II", Array),
}
