"""Composite types: lists with a descriptor whose fields are declared once, in the class body of a dataclass.

A field is `name: Annotated[type, KIND] = default` in AMQP's order; it is mandatory when its type does not allow None
and it has no default. From that one line come the class, its decoder and its encoder.

Invariant: decoding gives an instance or a PeerFault: `amqp:decode-error` where the bytes are malformed or name a type
that we do not know, `amqp:invalid-field` where they are well-formed and a field may not hold that. Both are of the
connection, also for a wrong type in an attach: the specification lets both conditions end anything (§2.8.15), and whose
frame it was is not known of one that cannot be read, as its handle may be the very field. A null field takes its
default, and a field that holds its default is sent as null. Source: AMQP 1.0 §1.4.
"""

from __future__ import annotations

import dataclasses
import operator
import struct
from collections.abc import Callable
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

from mqbroker.base.errors import Bug, PeerFault, Scope
from mqbroker.wire import codes
from mqbroker.wire.decode import READERS, Buffer, Reader, compound_bounds, decode_fault, decode_value
from mqbroker.wire.encode import (
    encode_array,
    encode_binary,
    encode_boolean,
    encode_fixed,
    encode_list,
    encode_map,
    encode_refusal,
    encode_string,
    encode_symbol,
    encode_uint,
    encode_ulong,
    encode_value,
)
from mqbroker.wire.values import Array, Symbol

_Class = TypeVar("_Class")

UNFIT = (struct.error, OverflowError, UnicodeEncodeError, TypeError, AttributeError)
"""What writing a value of a wrong type or range raises."""


class FieldKind:
    """What a field may hold. `read` starts at the format code, which is not null; `write` gives the code as well.

    `readers`: of a primitive without a rule of its own what reads it, by its code; they start behind the code.
    """

    __slots__ = ("name", "read", "readers", "write")

    def __init__(
        self, name: str, read: Reader, write: Callable[..., bytes], readers: dict[int, Reader] | None = None
    ) -> None:
        self.name: Final = name
        self.read: Final = read
        self.write: Final = write
        self.readers: Final = readers


class Field(NamedTuple):
    name: str
    kind: FieldKind
    mandatory: bool
    default: Any


class Codec:
    """All that is needed to decode and encode one composite type, by field: a frame looks at no Field."""

    __slots__ = ("code", "count_min", "defaults", "empty", "fields", "kinds", "make", "mandatory", "only", "prefix",
                 "symbol", "unsaid", "values_of")  # fmt: skip

    def __init__(self, make: type[Any], code: int, symbol: str, fields: tuple[Field, ...]) -> None:
        self.make: Final[Callable[..., Any]] = make
        self.code: Final = code
        self.symbol: Final = symbol
        self.fields: Final = fields
        # Of a type without fields there is one value, which every frame that has it shares.
        self.only: Final[Any] = None if fields else make()
        self.prefix: Final = bytes((0, codes.SMALLULONG, code))
        self.empty: Final = self.prefix + encode_list(0, b"")
        self.kinds: Final = tuple([field.kind for field in fields])
        self.mandatory: Final = tuple([field.mandatory for field in fields])
        self.count_min: Final = max((index + 1 for index, field in enumerate(fields) if field.mandatory), default=0)
        self.defaults: Final = tuple([field.default for field in fields])
        self.values_of: Final = _getter(make)
        # What is sent as null besides None.
        self.unsaid: Final = tuple(
            [ALWAYS_SAID if field.mandatory or field.default is None else field.default for field in fields]
        )


NULL = bytes((codes.NULL,))
ALWAYS_SAID = object()  # equal to no value

# The first so many arrays of symbols that are short are written once.
WRITTEN_SYMBOLS_MAX = 256
WRITTEN_SYMBOLS_BYTES_MAX = 256

_WRITTEN_SYMBOLS: dict[tuple[str, ...], bytes] = {}
_BY_CODE: dict[int, Codec] = {}
_BY_SYMBOL: dict[str, Codec] = {}
_BY_CLASS: dict[type, Codec] = {}


def composite(code: int, symbol: str) -> Callable[[type[_Class]], type[_Class]]:
    """Class decorator above `@dataclass`: registers the codec of a composite type under both of its descriptors."""

    def register(made: type[_Class]) -> type[_Class]:
        codec = Codec(made, code, symbol, tuple(_declared_fields(made)))
        _BY_CODE[code] = _BY_SYMBOL[symbol] = _BY_CLASS[made] = codec
        return made

    return register


def _declared_fields(made: Any) -> list[Field]:
    hints = get_type_hints(made, include_extras=True)
    fields = []
    for declared in dataclasses.fields(made):
        held, kind = get_args(hints[declared.name])
        has_default = declared.default is not dataclasses.MISSING
        mandatory = not has_default and NoneType not in get_args(held)
        default = declared.default if has_default else None
        fields.append(Field(declared.name.replace("_", "-"), kind, mandatory, default))
    return fields


def _getter(made: Any) -> Callable[[Any], tuple[Any, ...]]:
    """What gives all values of an instance, in one call where there are several."""
    names = [declared.name for declared in dataclasses.fields(made)]
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def invalid_field(why: str, offset: int) -> PeerFault:
    return PeerFault("amqp:invalid-field", f"{why} at byte {offset}", Scope.CONNECTION)


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode_composite(
    buffer: Buffer, offset: int, end: int, among: tuple[type, ...] = (), depth: int = 0
) -> tuple[Any, int]:
    """The composite at `offset` and the offset behind it; one of the classes `among`, any known one if empty."""
    codec, offset = _codec_at(buffer, offset, end)
    if among and codec.make not in among:
        allowed = ", ".join(_BY_CLASS[each].symbol for each in among)
        raise invalid_field(f"{codec.symbol} where one of {allowed} is due", offset)
    count, offset, list_end = _list_bounds(buffer, offset, end)
    if not codec.count_min <= count <= len(codec.fields):
        raise invalid_field(f"{codec.symbol} with {count} of {codec.count_min} to {len(codec.fields)} fields", offset)
    values = _decode_fields(codec, count, buffer, (offset, list_end, depth + 2))
    if codec.only is not None:
        return codec.only, list_end
    return codec.make(*values, *codec.defaults[count:]), list_end


def _decode_fields(codec: Codec, count: int, buffer: Buffer, place: tuple[int, int, int]) -> list[Any]:
    """The values of the first `count` fields, which fill a list's body exactly. One loop, for every unusual frame
    passes here.
    """
    offset, end, depth = place
    values: list[Any] = []
    try:
        for index in range(count):
            if offset >= end:
                raise decode_fault("the list ends before it", offset)
            code = buffer[offset]
            if code == codes.NULL:
                if codec.mandatory[index]:
                    raise invalid_field("null in a mandatory field", offset)
                values.append(codec.defaults[index])
                offset += 1
                continue
            kind = codec.kinds[index]
            if kind.readers is None:
                value, offset = kind.read(buffer, offset, end, depth)
            else:
                reader = kind.readers.get(code)
                if reader is None:
                    raise _other_code(kind.name, code, offset)
                value, offset = reader(buffer, offset + 1, end, depth)
            values.append(value)
    except PeerFault as fault:
        raise PeerFault(
            fault.condition, f"{codec.symbol}, {codec.fields[len(values)].name}: {fault.description}", fault.scope
        ) from None
    if offset != end:
        raise decode_fault(f"{codec.symbol} has {end - offset} bytes behind its last field", offset)
    return values


def _codec_at(buffer: Buffer, offset: int, end: int) -> tuple[Codec, int]:
    """The codec that the descriptor at `offset` names, and the offset behind the descriptor."""
    descriptor: Any
    if offset + 3 <= end and buffer[offset] == codes.DESCRIBED and buffer[offset + 1] == codes.SMALLULONG:
        descriptor, after = buffer[offset + 2], offset + 3
    else:
        descriptor, after = _wide_descriptor(buffer, offset, end)
    known = _BY_SYMBOL if isinstance(descriptor, Symbol) else _BY_CODE
    codec = known.get(descriptor)
    if codec is None:
        raise decode_fault(f"unknown descriptor {str(descriptor)[:80]}", offset)
    return codec, after


def _wide_descriptor(buffer: Buffer, offset: int, end: int) -> tuple[Any, int]:
    if offset >= end or buffer[offset] != codes.DESCRIBED:
        raise decode_fault("descriptor expected", offset)
    if offset + 1 >= end or buffer[offset + 1] not in _DESCRIPTOR_CODES:
        raise decode_fault("descriptor must be a ulong or a symbol", offset)
    return decode_value(buffer, offset + 1, end)


def _list_bounds(buffer: Buffer, offset: int, end: int) -> tuple[int, int, int]:
    code = buffer[offset] if offset < end else -1
    if code == codes.LIST8 or code == codes.LIST32:
        return compound_bounds(buffer, offset + 1, end, code == codes.LIST32)
    if code == codes.LIST0:
        return 0, offset + 1, offset + 1
    raise decode_fault("list expected", offset)


# -- encoding ---------------------------------------------------------------------------------------------------------


def encode_composite(value: Any) -> bytes:
    """An instance of a composite class with its descriptor, trailing nulls trimmed."""
    codec = _BY_CLASS[type(value)]
    values = codec.values_of(value)
    count = len(values)
    while count and not _is_said(values[count - 1], codec.unsaid[count - 1]):
        count -= 1
    if count < codec.count_min:
        raise _missing(codec, values)
    if not count:
        return codec.empty
    parts: list[bytes] = []
    try:
        for index in range(count):
            held = values[index]
            if _is_said(held, codec.unsaid[index]):
                parts.append(codec.kinds[index].write(held))
            elif codec.mandatory[index]:
                raise _missing(codec, values)
            else:
                parts.append(NULL)
    except UNFIT as error:
        raise encode_refusal(f"{codec.symbol}, {_unfit_field(codec, values)}: {error}") from None
    return codec.prefix + encode_list(count, b"".join(parts))


def _is_said(held: object, unsaid: object) -> bool:
    """Whether a field is more than null to who reads it."""
    return held is not None and held is not unsaid and (unsaid is ALWAYS_SAID or held != unsaid)


def _missing(codec: Codec, values: tuple[Any, ...]) -> Bug:
    missing = [field.name for field, held in zip(codec.fields, values, strict=True) if field.mandatory and held is None]
    return Bug(f"{codec.symbol} is sent without its mandatory field {missing[0]}")


def _unfit_field(codec: Codec, values: tuple[Any, ...]) -> str:
    """The name of the first field that cannot hold its value."""
    for field, held in zip(codec.fields, values, strict=True):
        try:
            if held is not None:
                field.kind.write(held)
        except UNFIT:
            return field.name
    raise Bug(f"{codec.symbol} cannot be encoded, and each of its fields can")


# -- kinds of fields --------------------------------------------------------------------------------------------------


def primitive(name: str, accepted: tuple[int, ...], write: Callable[..., bytes]) -> FieldKind:
    """Values of one primitive type, without wrappers: the field says the type."""
    readers = {code: reader for code in accepted if (reader := READERS[code]) is not None}

    def read(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[Any, int]:
        reader = readers.get(buffer[offset])
        if reader is None:
            raise _other_code(name, buffer[offset], offset)
        return reader(buffer, offset + 1, end, depth)

    return FieldKind(name, read, write, readers)


def _other_code(name: str, code: int, offset: int) -> PeerFault:
    return invalid_field(f"{name} expected, got format code 0x{code:02x}", offset)


def checked(kind: FieldKind, allowed: Callable[[Any], bool], rule: str) -> FieldKind:
    """`kind` with a rule of its own on values; `rule` completes the sentence "must …"."""

    def read(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[Any, int]:
        value, after = kind.read(buffer, offset, end, depth)
        if not allowed(value):
            raise invalid_field(f"{str(value)[:80]} must {rule}", offset)
        return value, after

    return FieldKind(kind.name, read, kind.write)


def one_of(name: str, classes: tuple[type, ...]) -> FieldKind:
    """A nested composite of one of `classes`."""

    def read(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[Any, int]:
        return decode_composite(buffer, offset, end, classes, depth)

    return FieldKind(name, read, encode_composite)


def _read_symbols(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[tuple[Symbol, ...], int]:
    """A `multiple` field: one symbol by itself and an array of one say the same (§1.4)."""
    code = buffer[offset]
    if code in _SYMBOL_CODES:
        value, offset = decode_value(buffer, offset, end)
        return (value,), offset
    if code not in (codes.ARRAY8, codes.ARRAY32):
        raise invalid_field(f"symbol or array of symbols expected, got format code 0x{code:02x}", offset)
    array, after = decode_value(buffer, offset, end, depth)
    if array.descriptors or array.constructor not in _SYMBOL_CODES:
        raise invalid_field(f"array of symbols expected, got one of format code 0x{array.constructor:02x}", offset)
    return array.values, after


def _write_symbols(value: tuple[str, ...]) -> bytes:
    # Always an array: every broker sends one, so no client has been tested with less. What is offered and asked for is
    # the same few from one link to the next.
    written = _WRITTEN_SYMBOLS.get(value)
    if written is None:
        wide = any(len(each) > 255 for each in value)
        written = encode_array(Array(codes.SYM32 if wide else codes.SYM8, value))
        if len(_WRITTEN_SYMBOLS) < WRITTEN_SYMBOLS_MAX and len(written) <= WRITTEN_SYMBOLS_BYTES_MAX:
            _WRITTEN_SYMBOLS[value] = written
    return written


def _read_keyed(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[dict[Any, Any], int]:
    if buffer[offset] not in (codes.MAP8, codes.MAP32):
        raise invalid_field(f"map expected, got format code 0x{buffer[offset]:02x}", offset)
    value: dict[Any, Any]
    value, after = decode_value(buffer, offset, end, depth)
    return value, after


def _read_fields(buffer: Buffer, offset: int, end: int, depth: int) -> tuple[dict[Symbol, Any], int]:
    values, after = _read_keyed(buffer, offset, end, depth)
    for key in values:
        if type(key) is not Symbol:
            raise invalid_field(f"key {str(key)[:80]!r} of the map must be a symbol", offset)
    return values, after


_DESCRIPTOR_CODES = frozenset((codes.SMALLULONG, codes.ULONG0, codes.ULONG, codes.SYM8, codes.SYM32))
_SYMBOL_CODES = frozenset((codes.SYM8, codes.SYM32))

BOOLEAN = primitive("boolean", (codes.TRUE, codes.FALSE, codes.BOOLEAN), encode_boolean)
UBYTE = primitive("ubyte", (codes.UBYTE,), encode_fixed(codes.UBYTE, "B"))
USHORT = primitive("ushort", (codes.USHORT,), encode_fixed(codes.USHORT, "H"))
UINT = primitive("uint", (codes.SMALLUINT, codes.UINT, codes.UINT0), encode_uint)
ULONG = primitive("ulong", (codes.SMALLULONG, codes.ULONG, codes.ULONG0), encode_ulong)
TIMESTAMP = primitive("timestamp", (codes.TIMESTAMP,), encode_fixed(codes.TIMESTAMP, "q"))
BINARY = primitive("binary", (codes.VBIN8, codes.VBIN32), encode_binary)
STRING = primitive("string", (codes.STR8, codes.STR32), encode_string)
SYMBOL = primitive("symbol", (codes.SYM8, codes.SYM32), encode_symbol)
SYMBOLS = FieldKind("symbols", _read_symbols, _write_symbols)
FIELDS = FieldKind("fields", _read_fields, encode_map)
MAP = FieldKind("map", _read_keyed, encode_map)
ANY = FieldKind("any", decode_value, encode_value)
