"""A message as selectors and the broker look at it: single values, decoded when they are first asked for.

Sections are found by their sizes and each is decoded at most once, well-formed or not. What selectors ask (`value_of`)
raises PeerFault where the section is malformed, so they match nothing there; what the broker asks has the value of an
absent field then, and `fault` says what is wrong. Source: AMQP 1.0 §3.2; AMQP JMS Mapping 3.2.1; names of Artemis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from mqbroker.base.errors import PeerFault
from mqbroker.core.queue.backlog import Segment
from mqbroker.wire.run import Run
from mqbroker.wire.sections import (
    Header,
    MessageId,
    Properties,
    Sections,
    decode_annotations,
    decode_application_properties,
    decode_header,
    decode_properties,
    scan_sections,
)
from mqbroker.wire.types import Buffer, ULong, Uuid

PRIORITY_MAX: Final = 9
ANNOTATION_PREFIX: Final = "m."

# Sections by the names that `Sections` has for them: how they are decoded, and what stands for one that is not there.
_PARTS: Final[dict[str, tuple[Callable[[Buffer, int, int], tuple[Any, int]], Any]]] = {
    "header": (decode_header, Header()),
    "message_annotations": (decode_annotations, {}),
    "properties": (decode_properties, Properties()),
    "application_properties": (decode_application_properties, {}),
}


class Filter(Protocol):
    """Decides by a message's content."""

    def matches(self, message: MessageView) -> bool:
        """Whether the message is wanted."""


class MessageView:
    """One message, encoded in `payload`, and what only the broker knows of it.

    Of a large message `payload` is its head, and `beyond_bytes` counts the rest.

    `address` is where it was sent to, `deliveries` counts those in vain, `expires_at_ms` is when the broker lets it
    expire, 0 for never or not known.
    """

    __slots__ = ("_decoded", "_sections", "address", "beyond_bytes", "deliveries", "expires_at_ms", "payload")

    def __init__(
        self, payload: Buffer, *, address: str = "", deliveries: int = 0, expires_at_ms: int = 0, beyond_bytes: int = 0
    ) -> None:
        self.payload = payload
        self.beyond_bytes = beyond_bytes
        self.address = address
        self.deliveries = deliveries
        self.expires_at_ms = expires_at_ms
        self._sections: Sections | PeerFault | None = None
        self._decoded: dict[str, Any] = {}

    # -- for selectors -------------------------------------------------------------------------------------------------

    def value_of(self, name: str) -> Any:
        """What a selector gets for an identifier, None for nothing. Raises PeerFault where its section is malformed.

        `JMS…` and `AMQ…` are fields, `m.` and a symbol is a message annotation, the rest are application properties.
        """
        field = _FIELDS.get(name)
        if field is not None:
            return field(self)
        if name.startswith(ANNOTATION_PREFIX):
            return self._part("message_annotations").get(name[len(ANNOTATION_PREFIX) :])
        return self._part("application_properties").get(name)

    @property
    def head_size(self) -> int:
        """How many bytes lie before the body, as far as was looked: what is decoded lies there."""
        sections = self._sections
        if not isinstance(sections, Sections):
            return 0
        return sections.body if sections.body >= 0 else sections.end

    # -- for the broker ------------------------------------------------------------------------------------------------

    @property
    def fault(self) -> PeerFault | None:
        """What is malformed in the sections that are looked at here; all of them are decoded for it."""
        for name in _PARTS:
            try:
                self._part(name)
            except PeerFault as fault:
                return fault.without_trace()
        return None

    @property
    def priority(self) -> int:
        """0 to 9; higher ones of AMQP count as 9, as in JMS."""
        return min(self._header.priority, PRIORITY_MAX)

    @property
    def ttl_ms(self) -> int | None:
        return self._header.ttl

    @property
    def creation_time_ms(self) -> int | None:
        return self._properties.creation_time

    @property
    def absolute_expiry_ms(self) -> int | None:
        return self._properties.absolute_expiry_time

    @property
    def group_id(self) -> str | None:
        return self._properties.group_id

    @property
    def group_sequence(self) -> int | None:
        return self._properties.group_sequence

    @property
    def user_id(self) -> bytes | None:
        return self._properties.user_id

    def annotation(self, symbol: str) -> Any:
        """The message annotation of that name, None if there is none."""
        return self._readable("message_annotations").get(symbol)

    def annotation_stands_behind(self, symbol: str, other: str) -> bool:
        """Whether it has both of these message annotations, the first one behind the other."""
        names = [name for name in self._readable("message_annotations") if name in (symbol, other)]
        return names == [other, symbol]

    # -- decoding ------------------------------------------------------------------------------------------------------

    @property
    def _header(self) -> Header:
        header: Header = self._readable("header")
        return header

    @property
    def _properties(self) -> Properties:
        properties: Properties = self._readable("properties")
        return properties

    def _readable(self, name: str) -> Any:
        """The section, or what stands for one that is not there if it is malformed."""
        try:
            return self._part(name)
        except PeerFault:
            return _PARTS[name][1]

    def _part(self, name: str) -> Any:
        part = self._decoded.get(name)
        if part is None:
            part = self._decoded[name] = self._decode(name)
        if isinstance(part, PeerFault):
            raise _again(part)
        return part

    def _decode(self, name: str) -> Any:
        decode, absent = _PARTS[name]
        try:
            sections = self._scanned()
            offset = getattr(sections, name)
            return decode(self.payload, offset, sections.end)[0] if offset >= 0 else absent
        except PeerFault as fault:
            return fault.without_trace()

    def _scanned(self) -> Sections:
        if self._sections is None:
            try:
                self._sections = scan_sections(self.payload, 0, len(self.payload))
            except PeerFault as fault:
                self._sections = fault.without_trace()
        if isinstance(self._sections, PeerFault):
            raise _again(self._sections)
        return self._sections


def view_at(run: Run, index: int, address: str) -> MessageView:
    """A message of a run that was sent to an address, and is on its way to queues."""
    return MessageView(run.payload(index), address=address, beyond_bytes=run.beyond_bytes)


def view_of(segment: Segment, index: int) -> MessageView:
    """A message of a queue, for selectors."""
    run = segment.run
    return MessageView(
        run.payload(index), deliveries=segment.deliveries, expires_at_ms=run.expires_ms, beyond_bytes=run.beyond_bytes
    )


def _again(fault: PeerFault) -> PeerFault:
    # A fault that is raised many times would grow by a traceback each time.
    return PeerFault(fault.condition, fault.description, fault.scope)


# -- what selectors call by a name of its own -------------------------------------------------------------------------

_ID_PREFIX: Final = "ID:"
_TYPE_PREFIXES: Final = ("AMQP_STRING:", "AMQP_ULONG:", "AMQP_BINARY:", "AMQP_UUID:", "AMQP_NO_PREFIX:")


def _shown_id(value: MessageId | None, unprefixed: str) -> str | None:
    """An id as JMS clients show it; `unprefixed` goes before a text without `ID:` (AMQP JMS Mapping 3.2.1.1)."""
    if value is None:
        return None
    if isinstance(value, Uuid):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, ULong):
        return f"ID:AMQP_ULONG:{int(value)}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    if not value.startswith(_ID_PREFIX):
        return unprefixed + value
    is_ambiguous = value[len(_ID_PREFIX) :].startswith(_TYPE_PREFIXES)
    return f"ID:AMQP_STRING:{value}" if is_ambiguous else value


def _plain_id(value: MessageId | None) -> str | None:
    """An id as Artemis has it in AMQUserID: its text behind `ID:`."""
    if value is None:
        return None
    text = value.hex() if type(value) is bytes else str(value)
    return text if text.startswith(_ID_PREFIX) else _ID_PREFIX + text


def _header(view: MessageView) -> Header:
    header: Header = view._part("header")
    return header


def _properties(view: MessageView) -> Properties:
    properties: Properties = view._part("properties")
    return properties


def _priority(view: MessageView) -> int:
    return min(_header(view).priority, PRIORITY_MAX)


def _timestamp(view: MessageView) -> int:
    return _properties(view).creation_time or 0


def _expiration(view: MessageView) -> int:
    """When it expires, in ms since 1970; 0 for never."""
    if view.expires_at_ms:
        return view.expires_at_ms
    properties, ttl = _properties(view), _header(view).ttl
    if properties.absolute_expiry_time:
        return properties.absolute_expiry_time
    return properties.creation_time + ttl if properties.creation_time and ttl else 0


def _user_id(view: MessageView) -> str | None:
    user_id = _properties(view).user_id
    return None if user_id is None else user_id.decode("utf-8", "replace")


def _group_id(view: MessageView) -> str | None:
    return _properties(view).group_id


_FIELDS: Final[dict[str, Callable[[MessageView], Any]]] = {
    "JMSPriority": _priority,
    "JMSDeliveryMode": lambda view: "PERSISTENT" if _header(view).durable else "NON_PERSISTENT",
    "JMSMessageID": lambda view: _shown_id(_properties(view).message_id, "ID:AMQP_NO_PREFIX:"),
    "JMSTimestamp": _timestamp,
    "JMSCorrelationID": lambda view: _shown_id(_properties(view).correlation_id, ""),
    "JMSType": lambda view: _properties(view).subject,
    "JMSExpiration": _expiration,
    "JMSXGroupID": _group_id,
    "JMSXGroupSeq": lambda view: _properties(view).group_sequence,
    "JMSXUserID": _user_id,
    "JMSXDeliveryCount": lambda view: view.deliveries + 1,
    "AMQPriority": _priority,
    "AMQDurable": lambda view: "DURABLE" if _header(view).durable else "NON_DURABLE",
    "AMQTimestamp": _timestamp,
    "AMQExpiration": _expiration,
    "AMQSize": lambda view: len(view.payload) + view.beyond_bytes,
    "AMQUserID": lambda view: _plain_id(_properties(view).message_id),
    "AMQGroupID": _group_id,
    "AMQAddress": lambda view: view.address or _properties(view).to,
}


def is_property(name: str) -> bool:
    """Whether a selector gets an application property for this name, and nothing else."""
    return name not in _FIELDS and not name.startswith(ANNOTATION_PREFIX)
