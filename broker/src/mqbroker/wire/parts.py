"""What single messages say that makes the broker treat them apart: expiry at a time, group, delay, duplicate id, key.

Most messages say none of it. `parts_of` finds out for a whole run with a few searches over its block and gives the run
back as it is; otherwise it is cut into runs that each have one set of traits, which share the buffer. Invariant: the
searches may only err towards looking closer. Sources: AMQP 1.0 §3.2.4; Artemis's names of annotations and properties.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mqbroker.base.errors import PeerFault
from mqbroker.wire.run import Layout, Run
from mqbroker.wire.scan import PROPERTIES, VALUE, scan_sections
from mqbroker.wire.sections import decode_annotations, decode_application_properties, decode_properties
from mqbroker.wire.traits import PLAIN, Traits
from mqbroker.wire.values import Symbol

DELIVERY_TIME: Final = Symbol("x-opt-delivery-time")
DELIVERY_DELAY: Final = Symbol("x-opt-delivery-delay")
MOVED_FROM: Final = Symbol("x-opt-ORIG-ADDRESS")
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
LAST_VALUE: Final = "_AMQ_LVQ_NAME"

_MARKS: Final = (b"x-opt-delivery-", DUPLICATE_ID.encode(), LAST_VALUE.encode())
_PLAIN_FIELDS_MAX: Final = 8  # properties up to creation-time's neighbour: none of them makes a message special
# Properties with more fields than that, or with a descriptor that is spelt out.
_PROPERTIES: Final = re.compile(
    rb"\x00\x53\x73(?:\xc0[\x00-\xff][\x09-\xff]|\xd0)|\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73|amqp:properties:list"
)
KEY_SIZE_MAX: Final = 1024


def parts_of(run: Run) -> list[Run]:
    """The run cut where traits change, each part with its traits. Parts are runs of their own over the same buffer."""
    if _is_plain(run):
        return [run]
    found = [_traits(run, index) for index in range(run.count)]
    if found == [PLAIN] * len(found):
        return [run]
    parts = []
    begin = 0
    for index in range(1, run.count + 1):
        # A duplicate id or a key is one message's, even where the next has the same.
        is_same = index < run.count and found[index] == found[begin]
        if not is_same or found[begin].duplicate_id or found[begin].last_value:
            parts.append(part_of(run, begin, index, found[begin]))
            begin = index
    return parts


def part_of(run: Run, begin: int, end: int, traits: Traits = PLAIN) -> Run:
    """Some messages of a run as a run of their own."""
    layout = Layout(run.head_size, run.vary_start, run.vary_end, run.section)
    made = Run(run.buffer, run.starts[begin:end], run.stride, layout)
    made.traits = traits
    return made


def _is_plain(run: Run) -> bool:
    buffer, start, end = run.buffer, run.start(0), run.end(run.count - 1)
    if any(buffer.find(mark, start, end) >= 0 for mark in _MARKS):
        return False
    if run.stride and _columns_are_plain(run, start, end):
        return True
    return _PROPERTIES.search(buffer, start, end) is None


def _columns_are_plain(run: Run, start: int, end: int) -> bool:
    """Frames of one size mostly have their first section at one place: a body, or properties with few fields."""
    buffer, stride = run.buffer, run.stride
    at = start + run.head_size + run.section.size_bytes
    if buffer[at:end:stride].strip(b"\x00") or buffer[at + 1 : end : stride].strip(b"\x53"):
        return False
    codes = buffer[at + 2 : end : stride]
    code = codes[:1]
    if codes.strip(code):
        return False
    if PROPERTIES < code[0] <= VALUE:
        # Application properties and bodies: the properties section would have to come before them.
        return True
    is_short = code[0] == PROPERTIES and not buffer[at + 3 : end : stride].strip(b"\xc0")
    return is_short and max(buffer[at + 5 : end : stride]) <= _PLAIN_FIELDS_MAX


def _traits(run: Run, index: int) -> Traits:
    """One message, decoded. What is malformed says nothing: the broker passes on what it cannot read."""
    payload = bytes(run.payload(index))
    try:
        sections = scan_sections(payload, 0, len(payload))
        values: dict[str, Any] = {}
        if sections.properties >= 0:
            found = decode_properties(payload, sections.properties, sections.end)[0]
            values["expires_ms"] = max(found.absolute_expiry_time or 0, 0)
            values["group_id"] = (found.group_id or "")[:KEY_SIZE_MAX]
            values["group_sequence"] = _signed(found.group_sequence or 0)
        if sections.message_annotations >= 0:
            annotations = decode_annotations(payload, sections.message_annotations, sections.end)[0]
            if MOVED_FROM in annotations:
                values["expires_ms"] = 0  # it has lived its life; where it was moved to, it stays
            values["deliver_at_ms"] = _number(annotations.get(DELIVERY_TIME))
            values["delay_ms"] = 0 if values["deliver_at_ms"] else _number(annotations.get(DELIVERY_DELAY))
        if sections.application_properties >= 0:
            named = decode_application_properties(payload, sections.application_properties, sections.end)[0]
            values["duplicate_id"] = _key(named.get(DUPLICATE_ID))
            values["last_value"] = str(named.get(LAST_VALUE) or "")[:KEY_SIZE_MAX]
        return Traits(**values)
    except PeerFault:
        return PLAIN


def _number(value: Any) -> int:
    return max(int(value), 0) if isinstance(value, int) and not isinstance(value, bool) else 0


def _signed(value: int) -> int:
    """JMS's group sequence is signed, AMQP's is not: -1, which closes a group, arrives as 2**32 - 1."""
    return value - (1 << 32) if value >= 1 << 31 else value


def _key(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value[:KEY_SIZE_MAX]
    return b"" if value is None else str(value).encode()[:KEY_SIZE_MAX]
