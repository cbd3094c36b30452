"""Python values that carry an AMQP type, so that what was decoded encodes to the same type again.

None, bool, str, bytes, list and dict stand for themselves; float is a double and a plain int is a long. Everything else
has a thin subclass here. Wrappers check nothing when made: the encoder does. Source: AMQP 1.0 §1.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Symbol(str):
    """ASCII name from a defined domain (§1.6.21)."""

    __slots__ = ()


class Char(str):
    """One Unicode character (§1.6.16)."""

    __slots__ = ()


class UByte(int):
    """AMQP's ubyte: unsigned, 8 bits (AMQP 1.0 §1.6.3)."""

    __slots__ = ()


class UShort(int):
    """AMQP's ushort: unsigned, 16 bits (AMQP 1.0 §1.6.4)."""

    __slots__ = ()


class UInt(int):
    """AMQP's uint: unsigned, 32 bits (AMQP 1.0 §1.6.5)."""

    __slots__ = ()


class ULong(int):
    """AMQP's ulong: unsigned, 64 bits (AMQP 1.0 §1.6.6)."""

    __slots__ = ()


class Byte(int):
    """AMQP's byte: signed, 8 bits (AMQP 1.0 §1.6.7)."""

    __slots__ = ()


class Short(int):
    """AMQP's short: signed, 16 bits (AMQP 1.0 §1.6.8)."""

    __slots__ = ()


class Int(int):
    """AMQP's int: signed, 32 bits (AMQP 1.0 §1.6.9)."""

    __slots__ = ()


class Long(int):
    """AMQP's long: signed, 64 bits (AMQP 1.0 §1.6.10)."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970 in UTC, signed, 64 bits."""

    __slots__ = ()


class Float(float):
    """Binary floating point of 32 bits; a plain float is the one of 64."""

    __slots__ = ()


class Decimal32(bytes):
    """IEEE 754 decimal as its 4 raw bytes: we carry decimals and never calculate with them."""

    __slots__ = ()


class Decimal64(bytes):
    """IEEE 754 decimal as its 8 raw bytes."""

    __slots__ = ()


class Decimal128(bytes):
    """IEEE 754 decimal as its 16 raw bytes."""

    __slots__ = ()


class Uuid(bytes):
    """The 16 raw bytes of a UUID.

    Bytes and not `uuid.UUID`, whose hash a peer can predict: a map of colliding keys would cost quadratic time.
    """

    __slots__ = ()

    def __str__(self) -> str:
        text = self.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Encoded(bytes):
    """A value as it came, with its format code: a map that no dict can hold.

    Its keys are lists or the like, or equal here while their types tell them apart (int 1, long 1, true).
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor, which is a Symbol or a ULong in practice (§1.1.2)."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """Values that share one constructor (§1.6.24).

    `constructor` is the format code, so integers in `values` are plain: the code says their type. `descriptors` are
    those of the constructor, outermost first, for arrays of described values.
    """

    constructor: int
    values: tuple[Any, ...]
    descriptors: tuple[Any, ...] = ()
