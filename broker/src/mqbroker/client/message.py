"""Messages as applications see them, and their way to bytes and back.

A body is bytes (an AMQP data section) or any other value that AMQP has (an amqp-value section): text, numbers, lists,
maps, and the types of `mqbroker.client.types` where the exact AMQP type matters. Nearly all messages are a header
section and one data section, which decoding treats apart. Source: AMQP 1.0 §3.2.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, Literal

from mqbroker.base.errors import PeerFault, Refused
from mqbroker.client.errors import MessageFault
from mqbroker.client.values import amqp_value
from mqbroker.wire import codes
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.scan import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    SEQUENCE,
    VALUE,
    Sections,
    scan_sections,
)
from mqbroker.wire.sections import (
    PRIORITY_DEFAULT,
    Header,
    Properties,
    body_values,
    decode_annotations,
    decode_application_properties,
    decode_header,
    decode_properties,
    encode_section,
)
from mqbroker.wire.types import (
    Array,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Encoded,
    Symbol,
    ULong,
    Uuid,
)

BodyKind = Literal["data", "value", "sequence"]
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
HEADS_MAX: Final = 256
TTL_MS_MAX: Final = 0xFFFFFFFF
SHOWN_MAX: Final = 60  # characters or bytes of one value
PRIORITY_MAX: Final = 9  # JMS's; of what is above it, no broker says the same

_KINDS: Final[dict[int, BodyKind]] = {DATA: "data", VALUE: "value", SEQUENCE: "sequence"}
_SECTIONS: Final = {kind: code for code, kind in _KINDS.items()}
_BYTES: Final = (bytes, bytearray, memoryview)
_TYPED: Final = (Uuid, Decimal32, Decimal64, Decimal128, Encoded)  # bytes to Python, and no binary to AMQP
# Field of ours -> field of the properties section.
_PROPERTIES: Final = {
    "id": "message_id", "user_id": "user_id", "to": "to", "subject": "subject", "reply_to": "reply_to",
    "correlation_id": "correlation_id", "content_type": "content_type", "content_encoding": "content_encoding",
    "expires_at_ms": "absolute_expiry_time", "created_at_ms": "creation_time", "group_id": "group_id",
    "group_sequence": "group_sequence", "reply_to_group_id": "reply_to_group_id",
}  # fmt: skip
_read_properties: Final = attrgetter(*_PROPERTIES)
# Fields that hold values of any type.
_VALUES: Final = (
    "body", "id", "correlation_id", "application_properties", "annotations", "delivery_annotations", "footer",
)  # fmt: skip
_COMPOUNDS: Final = (list, tuple, dict, Array, Described)
_NO_PROPERTIES: Final = (None,) * len(_PROPERTIES)
_HEAD_LEAD: Final = b"\x00\x53\x70"
_HEAD_MIN: Final = 8
_HEAD_BYTES_MAX: Final = 64
_DATA_LEAD: Final = b"\x00\x53\x75"
_read_heads: dict[bytes, Header] = {}
_heads: dict[tuple[bool, int, int | None], bytes] = {}


@dataclass(slots=True)
class Message:
    """One message. Times are in milliseconds, instants since 1970 (UTC).

    `durable`: it outlives the broker; an accepted one is on its disk. `ttl_ms`: it expires so long after it was sent.
    `group_id`: all of a group go to one consumer, in order. `id`, `correlation_id`: text, bytes, an int or a UUID.
    `application_properties`: simple values under text keys, which selectors look at. `body_kind`: how the body travels;
    None chooses by its type.
    """

    body: Any = b""
    durable: bool = False
    priority: int = PRIORITY_DEFAULT
    ttl_ms: int | None = None
    id: Any = None
    correlation_id: Any = None
    subject: str | None = None
    to: str | None = None
    reply_to: str | None = None
    user_id: bytes | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    expires_at_ms: int | None = None
    created_at_ms: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None
    application_properties: dict[str, Any] = field(default_factory=dict)
    annotations: dict[Any, Any] = field(default_factory=dict)
    delivery_annotations: dict[Any, Any] = field(default_factory=dict)
    footer: dict[Any, Any] = field(default_factory=dict)
    body_kind: BodyKind | None = None
    delivery_count: int = 0
    first_acquirer: bool = False

    @property
    def text(self) -> str:
        """The body as text. Raises MessageFault for one that is neither text nor UTF-8."""
        if isinstance(self.body, str):
            return self.body
        if _is_binary(self.body):
            with suppress(UnicodeDecodeError):
                return bytes(self.body).decode()
        raise MessageFault(f"a body of type {type(self.body).__name__} that is no text: read `body`")

    @property
    def is_redelivered(self) -> bool:
        """Whether it was delivered before, and may have been seen."""
        return self.delivery_count > 0

    @property
    def duplicate_id(self) -> str | bytes | int | None:
        """What the broker knows a duplicate by: the second message of one id at an address is accepted and dropped."""
        value: str | bytes | int | None = self.application_properties.get(DUPLICATE_ID)
        return value

    @duplicate_id.setter
    def duplicate_id(self, value: str | bytes | int | None) -> None:
        if value is None:
            self.application_properties.pop(DUPLICATE_ID, None)
        else:
            self.application_properties[DUPLICATE_ID] = value

    def __repr__(self) -> str:
        shown = [_shown(self.body)]
        for name in _FIELDS:
            value = getattr(self, name)
            if value != getattr(_PLAIN, name):
                shown.append(f"{name}={_shown(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


_PLAIN: Final = Message()
_FIELDS: Final = tuple(each.name for each in fields(Message))[1:]


def _shown(value: Any) -> str:
    """As in Python, and in a line of a log."""
    if isinstance(value, str | bytes | bytearray | memoryview) and len(value) > SHOWN_MAX:
        start = value[:SHOWN_MAX]
        return f"{(start if isinstance(start, str) else bytes(start))!r}… ({len(value)})"
    return reprlib.repr(value)


# -- to bytes ---------------------------------------------------------------------------------------------------------


def encode_message(message: Message) -> bytes:
    """All sections of a message. Raises MessageFault for what AMQP cannot carry."""
    try:
        return _encode(message)
    except Refused:
        pass  # it may hold values of Python's own, which are rare enough to be looked for only now
    held = {name: amqp_value(getattr(message, name)) for name in _VALUES}
    try:
        return _encode(replace(message, **held))
    except Refused as refused:
        raise MessageFault(f"the message cannot be sent: {refused.description}; change that value") from None


def _encode(message: Message) -> bytes:
    parts = [_head(message)]
    if message.delivery_annotations:
        parts.append(_annotations(DELIVERY_ANNOTATIONS, message.delivery_annotations))
    if message.annotations:
        parts.append(_annotations(MESSAGE_ANNOTATIONS, message.annotations))
    values = _read_properties(message)
    if values != _NO_PROPERTIES:
        named = {name: held for name, held in zip(_PROPERTIES.values(), values, strict=True) if held is not None}
        parts.append(_properties(named))
    if message.application_properties:
        parts.append(_application_properties(message.application_properties))
    parts.append(_body(message))
    if message.footer:
        parts.append(_annotations(FOOTER, message.footer))
    return b"".join(parts)


def _head(message: Message) -> bytes:
    key = message.durable, message.priority, message.ttl_ms
    try:
        head = _heads.get(key)
    except TypeError:  # a list, say
        head = None
    return _make_head(message) if head is None else head


def _make_head(message: Message) -> bytes:
    durable, priority, ttl_ms = message.durable, message.priority, message.ttl_ms
    if not isinstance(durable, bool | int):
        raise MessageFault(f"durable {durable!r}: True or False is needed")
    if not _is_whole(priority, 0, PRIORITY_MAX):
        raise MessageFault(f"priority {priority!r}: a whole number from 0 to {PRIORITY_MAX} is needed")
    if ttl_ms is not None and not _is_whole(ttl_ms, 1, TTL_MS_MAX):
        raise MessageFault(f"ttl_ms {ttl_ms!r}: a whole number from 1 to {TTL_MS_MAX} is needed, None is for ever")
    if len(_heads) >= HEADS_MAX:
        _heads.clear()
    header = Header(durable=bool(durable), priority=int(priority), ttl=None if ttl_ms is None else int(ttl_ms))
    head = _heads[durable, priority, ttl_ms] = encode_composite(header)
    return head


def _is_whole(value: Any, low: int, high: int) -> bool:
    """By its value, as heads are remembered by it: 4.0 is 4 there."""
    return isinstance(value, int | float) and low <= value <= high and value == int(value)


def _properties(named: dict[str, Any]) -> bytes:
    for name in ("message_id", "correlation_id"):
        value = named.get(name)
        if type(value) is int:
            named[name] = ULong(value)
    for name in ("content_type", "content_encoding"):
        if name in named:
            if not isinstance(named[name], str):
                raise MessageFault(f"{name} {named[name]!r}: text is needed")
            named[name] = Symbol(named[name])
    if isinstance(named.get("group_sequence"), bool):
        raise MessageFault("group_sequence: a whole number is needed")
    return encode_composite(Properties(**named))


def _application_properties(values: dict[str, Any]) -> bytes:
    for key, value in _map(values, "application_properties"):
        if not isinstance(key, str) or isinstance(value, _COMPOUNDS):
            what = f"{key!r} of type {type(value).__name__}"
            raise MessageFault(f"application property {what}: keys are text, and values neither lists nor maps")
    return encode_section(APPLICATION_PROPERTIES, dict(values))


def _annotations(section: int, values: dict[Any, Any]) -> bytes:
    symbols: dict[Any, Any] = {}
    for key, held in _map(values, "annotations"):
        if not isinstance(key, str | ULong):
            raise MessageFault(f"annotation {key!r} of type {type(key).__name__}: keys are text (symbols), or ULong")
        symbols[Symbol(key) if type(key) is str else key] = held
    return encode_section(section, symbols)


def _map(values: Any, what: str) -> Iterable[tuple[Any, Any]]:
    if not isinstance(values, dict):
        raise MessageFault(f"{what} of type {type(values).__name__}: a dict is needed")
    return values.items()


def _is_binary(body: Any) -> bool:
    return type(body) is bytes or (isinstance(body, _BYTES) and not isinstance(body, _TYPED))


def _body(message: Message) -> bytes:
    body, kind = message.body, message.body_kind
    if kind is None:
        kind = "data" if _is_binary(body) else "value"
    if kind not in _SECTIONS:
        raise MessageFault(f"body_kind {kind!r}: one of {', '.join(_SECTIONS)} is needed, or None")
    if kind == "data" and not _is_binary(body):
        raise MessageFault(f"a body of kind data is bytes, not {type(body).__name__}; encode it first")
    if kind == "sequence" and not isinstance(body, list | tuple):
        raise MessageFault(f"a body of kind sequence is a list, not {type(body).__name__}")
    return encode_section(_SECTIONS[kind], bytes(body) if type(body) is bytearray else body)


# -- from bytes -------------------------------------------------------------------------------------------------------


def decode_message(payload: bytes, into: Message | None = None) -> Message:
    """The message that these bytes are, written into `into` where that is given. Raises MessageFault."""
    message = Message() if into is None else into
    try:
        if not _read_plain(message, payload):
            _read(message, payload, scan_sections(payload, 0, len(payload)))
    except PeerFault as fault:
        raise MessageFault(f"cannot be read: {fault.description}", fault.condition) from None
    return message


def _read_plain(message: Message, payload: bytes) -> bool:
    """A header section in its usual form, and one data section. False: it is not so, and nothing was written."""
    if payload[:3] != _HEAD_LEAD or len(payload) < _HEAD_MIN or payload[3] not in (codes.LIST0, codes.LIST8):
        return False
    at = 4 if payload[3] == codes.LIST0 else 5 + payload[4]
    header = _read_heads.get(payload[:at]) or _new_head(payload, at)
    if payload[at : at + 3] != _DATA_LEAD or at + 5 > len(payload):
        return False
    code = payload[at + 3]
    start = at + 5 if code == codes.VBIN8 else at + 8
    size = payload[at + 4] if code == codes.VBIN8 else int.from_bytes(payload[at + 4 : at + 8], "big")
    if code not in (codes.VBIN8, codes.VBIN32) or start + size != len(payload):
        return False
    _take_header(message, header)
    message.body, message.body_kind = payload[start:], "data"
    return True


def _new_head(payload: bytes, at: int) -> Header:
    header, after = decode_header(payload, 0, len(payload))
    if after == at <= _HEAD_BYTES_MAX:
        if len(_read_heads) >= HEADS_MAX:
            _read_heads.clear()
        _read_heads[payload[:at]] = header
    return header


def _take_header(message: Message, header: Header) -> None:
    message.durable, message.priority, message.ttl_ms = bool(header.durable), header.priority, header.ttl
    message.delivery_count, message.first_acquirer = header.delivery_count, bool(header.first_acquirer)


def _read(message: Message, payload: bytes, sections: Sections) -> None:
    end = sections.end
    if sections.header >= 0:
        _take_header(message, decode_header(payload, sections.header, end)[0])
    if sections.delivery_annotations >= 0:
        message.delivery_annotations = decode_annotations(payload, sections.delivery_annotations, end)[0]
    if sections.message_annotations >= 0:
        message.annotations = decode_annotations(payload, sections.message_annotations, end)[0]
    if sections.properties >= 0:
        properties = decode_properties(payload, sections.properties, end)[0]
        for ours, theirs in _PROPERTIES.items():
            setattr(message, ours, getattr(properties, theirs))
    if sections.application_properties >= 0:
        message.application_properties = decode_application_properties(payload, sections.application_properties, end)[0]
    if sections.footer >= 0:
        message.footer = decode_annotations(payload, sections.footer, end)[0]
    if sections.body < 0:
        message.body, message.body_kind = None, "value"  # no body at all: as a value that is null
        return
    kind, values = body_values(payload, sections)
    message.body_kind = _KINDS[kind]
    if kind == SEQUENCE:
        message.body = [item for each in values for item in each]
    else:
        message.body = b"".join(values) if kind == DATA else values[0]
