"""Sections of a message as values: decoded one by one where something asks, built for those who send from within.

Faults found in a message end the link that sent it. Source: AMQP 1.0 §3.2.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Annotated, Any, Final

from mqbroker.base.errors import PeerFault
from mqbroker.wire import codes
from mqbroker.wire.composites import (
    ANY,
    BINARY,
    BOOLEAN,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UBYTE,
    UINT,
    FieldKind,
    checked,
    composite,
    decode_composite,
    encode_composite,
)
from mqbroker.wire.decode import Buffer, decode_fault, decode_value
from mqbroker.wire.encode import encode_refusal, encode_ulong, encode_value
from mqbroker.wire.scan import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Sections,
    of_link,
    scan_sections,
    section_at,
)
from mqbroker.wire.values import Array, Described, Encoded, Symbol, ULong, Uuid

__all__ = [
    "Header",
    "MessageId",
    "Properties",
    "Sections",
    "body_values",
    "build_message",
    "decode_annotations",
    "decode_application_properties",
    "decode_header",
    "decode_properties",
    "describe_message",
    "encode_section",
    "scan_sections",
]

PRIORITY_DEFAULT: Final = 4

MessageId = ULong | Uuid | bytes | str

_ID_TYPES: Final = (ULong, Uuid, bytes, str)
_COMPOUNDS: Final = frozenset((list, dict, Array, Described, Encoded))


def _write_id(value: Any) -> bytes:
    """A plain number is a ulong: AMQP has ids of no other kind of number (§3.2.11)."""
    if type(value) is int:
        return encode_ulong(value)
    if type(value) not in _ID_TYPES:
        raise TypeError(f"an id is a ulong, uuid, binary or string, not {type(value).__name__}")
    return encode_value(value)


_IS_ID: Final = checked(ANY, lambda value: type(value) in _ID_TYPES, "be a ulong, uuid, binary or string")
_MESSAGE_ID: Final = FieldKind(_IS_ID.name, _IS_ID.read, _write_id)


@composite(HEADER, "amqp:header:list")
@dataclass(frozen=True, slots=True)
class Header:
    """`ttl` is in milliseconds."""

    durable: Annotated[bool, BOOLEAN] = False
    priority: Annotated[int, UBYTE] = PRIORITY_DEFAULT
    ttl: Annotated[int | None, UINT] = None
    first_acquirer: Annotated[bool, BOOLEAN] = False
    delivery_count: Annotated[int, UINT] = 0


@composite(PROPERTIES, "amqp:properties:list")
@dataclass(frozen=True, slots=True)
class Properties:
    """Times are in milliseconds since 1970."""

    message_id: Annotated[MessageId | None, _MESSAGE_ID] = None
    user_id: Annotated[bytes | None, BINARY] = None
    to: Annotated[str | None, STRING] = None
    subject: Annotated[str | None, STRING] = None
    reply_to: Annotated[str | None, STRING] = None
    correlation_id: Annotated[MessageId | None, _MESSAGE_ID] = None
    content_type: Annotated[Symbol | None, SYMBOL] = None
    content_encoding: Annotated[Symbol | None, SYMBOL] = None
    absolute_expiry_time: Annotated[int | None, TIMESTAMP] = None
    creation_time: Annotated[int | None, TIMESTAMP] = None
    group_id: Annotated[str | None, STRING] = None
    group_sequence: Annotated[int | None, UINT] = None
    reply_to_group_id: Annotated[str | None, STRING] = None


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode_header(buffer: Buffer, offset: int, end: int) -> tuple[Header, int]:
    """The header section that starts at `offset`, and the offset behind it. Raises PeerFault with link scope."""
    try:
        header: Header
        header, after = decode_composite(buffer, offset, end, (Header,))
        return header, after
    except PeerFault as fault:
        raise of_link(fault) from None


def decode_properties(buffer: Buffer, offset: int, end: int) -> tuple[Properties, int]:
    """The properties section that starts at `offset`, and the offset behind it. Raises PeerFault with link scope."""
    try:
        properties: Properties
        properties, after = decode_composite(buffer, offset, end, (Properties,))
        return properties, after
    except PeerFault as fault:
        raise of_link(fault) from None


def decode_application_properties(buffer: Buffer, offset: int, end: int) -> tuple[dict[str, Any], int]:
    """The application properties that start at `offset`: string keys, and the offset behind them.

    Values may be lists and maps, against §3.2.5: Proton sends such.
    """
    return _decode_map(buffer, offset, end, (str,))


def decode_annotations(buffer: Buffer, offset: int, end: int) -> tuple[dict[Symbol | ULong, Any], int]:
    """The annotations or footer that start at `offset`: keys are symbols (or ulongs), and the offset behind them."""
    return _decode_map(buffer, offset, end, (Symbol, ULong))


def _decode_map(buffer: Buffer, offset: int, end: int, key_types: tuple[type, ...]) -> tuple[dict[Any, Any], int]:
    try:
        start = section_at(buffer, offset, end)[1]
        values, after = decode_value(buffer, start, end)
    except PeerFault as fault:
        raise of_link(fault) from None
    if not isinstance(values, dict):
        raise of_link(decode_fault("map expected", start))
    for key in values:
        if type(key) not in key_types:
            raise of_link(decode_fault(f"entry {str(key)[:80]!r} is not allowed in this section", start))
    return values, after


def is_simple(value: Any) -> bool:
    """Whether application properties may hold it: everything but maps, lists, arrays and described values (§3.2.5)."""
    return type(value) not in _COMPOUNDS


# -- building and describing ------------------------------------------------------------------------------------------


def build_message(
    body: bytes | str,
    *,
    durable: bool = False,
    header: Header | None = None,
    properties: Properties | None = None,
    application_properties: Mapping[str, Any] | None = None,
) -> bytes:
    """An encoded message: bytes become a data section, text an amqp-value. `durable` holds beside what `header` says.

    Raises Refused amqp:invalid-field for application properties that are not simple values under string keys.
    """
    head = header or Header()
    parts = [encode_composite(replace(head, durable=True) if durable else head)]
    if properties is not None:
        parts.append(encode_composite(properties))
    if application_properties:
        for key, value in application_properties.items():
            if not isinstance(key, str) or not is_simple(value):
                raise encode_refusal(f"application property {key!r}: a string key and a simple value are needed")
        parts.append(encode_section(APPLICATION_PROPERTIES, dict(application_properties)))
    parts.append(encode_section(VALUE if isinstance(body, str) else DATA, body))
    return b"".join(parts)


def encode_section(section: int, value: Any) -> bytes:
    return bytes((codes.DESCRIBED, codes.SMALLULONG, section)) + encode_value(value)


def describe_message(payload: Buffer) -> dict[str, Any]:
    """A message as values that JSON can carry.

    `body_kind` is data, sequence, value or none. `body_encoding` says what `body` is: text, base64, or json for the
    bodies that are values of another type. Raises PeerFault with link scope where the payload is malformed.
    """
    sections = scan_sections(payload, 0, len(payload))
    end = sections.end
    described: dict[str, Any] = {}
    if sections.header >= 0:
        described["header"] = _shown_fields(decode_header(payload, sections.header, end)[0])
    if sections.properties >= 0:
        described["properties"] = _shown_fields(decode_properties(payload, sections.properties, end)[0])
    if sections.application_properties >= 0:
        values = decode_application_properties(payload, sections.application_properties, end)[0]
        described["application_properties"] = _shown(values)
    for name in ("delivery_annotations", "message_annotations", "footer"):
        offset = getattr(sections, name)
        if offset >= 0:
            described[name] = _shown(decode_annotations(payload, offset, end)[0])
    return described | _described_body(payload, sections)


def _described_body(payload: Buffer, sections: Sections) -> dict[str, Any]:
    if sections.body < 0:
        return {"body_kind": "none", "body_encoding": "text", "body": ""}
    kind, values = body_values(payload, sections)
    if kind == DATA:
        return {"body_kind": "data"} | _shown_blob(b"".join(values))
    if kind == SEQUENCE:
        return {"body_kind": "sequence", "body_encoding": "json", "body": _shown(values)}
    value = values[0]
    if type(value) is bytes:
        return {"body_kind": "value"} | _shown_blob(value)
    return {"body_kind": "value", "body_encoding": "text" if type(value) is str else "json", "body": _shown(value)}


def body_values(payload: Buffer, sections: Sections) -> tuple[int, list[Any]]:
    """The code of the body's sections and their values, in order. Raises PeerFault with link scope."""
    kind = section_at(payload, sections.body, sections.end)[0]
    offset, end = sections.body, sections.footer if sections.footer >= 0 else sections.end
    values = []
    try:
        while offset < end:
            start = section_at(payload, offset, end)[1]
            value, offset = decode_value(payload, start, end)
            if kind != VALUE and type(value) is not (bytes if kind == DATA else list):
                raise decode_fault("data must be binary and a sequence must be a list", start)
            values.append(value)
    except PeerFault as fault:
        raise of_link(fault) from None
    return kind, values


def _shown_blob(blob: bytes) -> dict[str, str]:
    try:
        return {"body_encoding": "text", "body": blob.decode()}
    except UnicodeDecodeError:
        return {"body_encoding": "base64", "body": b64encode(blob).decode()}


def _shown_fields(section: Header | Properties) -> dict[str, Any]:
    held = {field.name: getattr(section, field.name) for field in fields(section)}
    return {name: _shown(value) for name, value in held.items() if value is not None}


def _shown(value: Any) -> Any:
    """`value` for JSON: numbers and texts as they are, bytes as base64, a descriptor beside its value."""
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(float(value))
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_shown(key)): _shown(held) for key, held in value.items()}
    if isinstance(value, Array):
        return [_shown(held) for held in value.values]
    if isinstance(value, list):
        return [_shown(held) for held in value]
    if isinstance(value, Described):
        return {"descriptor": _shown(value.descriptor), "value": _shown(value.value)}
    return value
