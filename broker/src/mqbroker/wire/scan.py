"""Finds the sections of a message by their sizes, without decoding what they hold.

The broker forwards a payload as it came, so offsets are all that it needs on the way through. Faults found in a message
end the link that sent it. Time is bounded by the bytes and by a count of sections. Source: AMQP 1.0 §3.2.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from mqbroker.base.errors import PeerFault, Scope
from mqbroker.wire import codes
from mqbroker.wire.decode import READERS, Buffer, decode_fault, decode_value
from mqbroker.wire.values import Symbol

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

# A body may be many data or sequence sections; more than this many is work without content.
SECTION_COUNT_MAX: Final = 4096

_NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}

_unpack_u32: Final = Struct(">I").unpack_from


class Sections(NamedTuple):
    """Offsets at which sections start, -1 for one that is not there; `body` is that of the first of its sections."""

    header: int
    delivery_annotations: int
    message_annotations: int
    properties: int
    application_properties: int
    body: int
    footer: int
    end: int

    @property
    def bare(self) -> int:
        """Where the bare message starts: what no node on the way may change (§3.2)."""
        return next((offset for offset in self[3:7] if offset >= 0), self.end)


def scan_sections(buffer: Buffer, offset: int, end: int) -> Sections:
    """Where the sections of a message are. Raises PeerFault with link scope: unknown, twice, or out of order.

    The values inside sections are stepped over by their sizes; decoding one may still find it malformed.
    """
    try:
        return _scan(buffer, offset, end)
    except PeerFault as fault:
        raise of_link(fault) from None


def _scan(buffer: Buffer, offset: int, end: int) -> Sections:
    starts = [-1] * 7
    last = count = 0
    while offset < end:
        section, value_offset = section_at(buffer, offset, end)
        count += 1
        if count > SECTION_COUNT_MAX:
            raise decode_fault(f"message of more than {SECTION_COUNT_MAX} sections", offset)
        if section < last or (section == last and section not in (DATA, SEQUENCE)):
            raise decode_fault(f"section 0x{section:02x} behind section 0x{last:02x}", offset)
        if DATA <= last <= VALUE and section != last and section != FOOTER:
            raise decode_fault(f"body of section 0x{last:02x} goes on with section 0x{section:02x}", offset)
        slot = _SLOTS[section]
        if starts[slot] < 0:
            starts[slot] = offset
        last = section
        offset = skip_value(buffer, value_offset, end)
    header, delivery, message, properties, application, body, footer = starts
    return Sections(header, delivery, message, properties, application, body, footer, end)


_SLOTS: Final = {HEADER: 0, DELIVERY_ANNOTATIONS: 1, MESSAGE_ANNOTATIONS: 2, PROPERTIES: 3, APPLICATION_PROPERTIES: 4,
                 DATA: 5, SEQUENCE: 5, VALUE: 5, FOOTER: 6}  # fmt: skip


def section_at(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    """(code of the section at `offset`, offset of its value)."""
    if offset + 2 >= end or buffer[offset] != codes.DESCRIBED:
        raise decode_fault("section expected", offset)
    descriptor: int | Symbol
    if buffer[offset + 1] == codes.SMALLULONG:
        descriptor, after = buffer[offset + 2], offset + 3
    elif buffer[offset + 1] in (codes.ULONG, codes.SYM8, codes.SYM32):
        descriptor, after = decode_value(buffer, offset + 1, end)
        if isinstance(descriptor, Symbol):
            descriptor = _NAMES.get(str(descriptor), descriptor)
    else:
        raise decode_fault("descriptor of a section must be a ulong or a symbol", offset)
    if isinstance(descriptor, Symbol) or descriptor not in _SLOTS:
        raise decode_fault(f"unknown section {str(descriptor)[:80]}", offset)
    return int(descriptor), after


def skip_value(buffer: Buffer, offset: int, end: int) -> int:
    """The offset behind the value at `offset`, by its sizes alone; no recursion and no look inside compounds."""
    due = 1
    while due:
        if offset >= end:
            raise decode_fault("value expected, nothing left", offset)
        code = buffer[offset]
        offset += 1
        if code == codes.DESCRIBED:
            due += 1  # a descriptor and a value where one value was due
            if due > codes.DEPTH_MAX:
                raise decode_fault(f"values nested deeper than {codes.DEPTH_MAX}", offset)
            continue
        if READERS[code] is None:
            raise decode_fault(f"unknown format code 0x{code:02x}", offset - 1)
        offset = _behind(buffer, code, offset, end)
        due -= 1
    return offset


def _behind(buffer: Buffer, code: int, offset: int, end: int) -> int:
    """A format code's high digit says how wide its value is, or how wide the size is that says so (§1.2)."""
    after = offset + _WIDTHS[code >> 4]
    if after <= end and code >= codes.VBIN8:
        after += buffer[offset] if after - offset == 1 else _unpack_u32(buffer, offset)[0]
    if after > end:
        raise decode_fault(f"value of {after - offset} bytes does not fit its surroundings", offset)
    return after


_WIDTHS: Final = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 1, 4, 1, 4, 1, 4)


def of_link(fault: PeerFault) -> PeerFault:
    return PeerFault(fault.condition, fault.description, Scope.LINK)
