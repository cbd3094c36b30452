"""The types of AMQP 1.0 (§1.6) as the other rooms import them: values, `decode_value`, `encode_value`."""

from mqbroker.wire.decode import Buffer, decode_value
from mqbroker.wire.encode import encode_value
from mqbroker.wire.values import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
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

__all__ = [
    "Array",
    "Buffer",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "Float",
    "Int",
    "Long",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "Uuid",
    "decode_value",
    "encode_value",
]
