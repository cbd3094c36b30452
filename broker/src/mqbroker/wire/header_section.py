"""What the header section of a message says, as far as the broker acts on it. Looked at for every run, so it is cached.

Invariant: the caches are bounded in number and in bytes, whatever peers send. Source: AMQP 1.0 §3.2.1.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from mqbroker.base.errors import PeerFault, Scope
from mqbroker.wire.scan import HEADER, section_at
from mqbroker.wire.sections import PRIORITY_DEFAULT, decode_header

CACHE_SIZE_MAX: Final = 1024
SECTION_BYTES_MAX: Final = 64  # all five fields at their widest take 25
HEADER_LEAD: Final = b"\x00\x53\x70"

_U32: Final = Struct(">I")


class Section(NamedTuple):
    """What a message header section says, as far as the broker acts on it. `ttl_ms` is 0 where there is none."""

    size_bytes: int
    is_durable: bool
    delivery_count: int
    priority: int
    ttl_ms: int


NO_SECTION: Final = Section(0, False, 0, PRIORITY_DEFAULT, 0)

_sections: Final[dict[bytes, Section | None]] = {}


def section_of(buffer: bytes, offset: int, end: int) -> Section | None:
    """The header section at the start of a message, None where it is malformed. No section is a section of size 0."""
    lead = buffer[offset : min(offset + 3, end)]
    if lead != HEADER_LEAD:
        is_descriptor_short = lead[:1] != b"\x00" or lead[1:2] == b"\x53"
        return NO_SECTION if is_descriptor_short else _section_spelt_out(buffer, offset, end)
    constructor = buffer[offset + 3] if offset + 4 < end else 0x45
    size = {0xC0: 5 + buffer[offset + 4] if offset + 4 < end else 0, 0x45: 4}.get(constructor, 0)
    if constructor == 0xD0 and offset + 8 <= end:
        size = 8 + int(_U32.unpack_from(buffer, offset + 4)[0])
    if not size or offset + size > end or size > SECTION_BYTES_MAX:
        return None
    raw = bytes(buffer[offset : offset + size])
    known = _sections.get(raw, NO_SECTION)
    if known is not NO_SECTION:
        return known
    if len(_sections) >= CACHE_SIZE_MAX:
        _sections.clear()
    section = _sections[raw] = _decoded_section(raw, 0, size)
    return section


def _section_spelt_out(buffer: bytes, offset: int, end: int) -> Section | None:
    """A section whose descriptor is a whole ulong or a symbol: hardly anybody writes it so, but it means the same."""
    try:
        code = section_at(buffer, offset, end)[0]
    except PeerFault:
        return NO_SECTION
    return _decoded_section(buffer, offset, end) if code == HEADER else NO_SECTION


def section_fault(payload: bytes) -> PeerFault:
    """What is wrong with the header section at the start of a message, where section_of has none."""
    why = f"over {SECTION_BYTES_MAX} bytes"
    try:
        decode_header(payload, 0, len(payload))
    except PeerFault as fault:
        why = fault.description
    return PeerFault("amqp:decode-error", f"the message's header section is malformed: {why}", Scope.LINK)


def _decoded_section(buffer: bytes, offset: int, end: int) -> Section | None:
    try:
        header, after = decode_header(buffer, offset, end)
    except PeerFault:
        return None
    return Section(
        after - offset, bool(header.durable), int(header.delivery_count or 0), header.priority, header.ttl or 0
    )
