"""What single messages say that makes the broker treat them apart: expiry at a time, group, delay, duplicate id, key.

Most messages say none of it. `parts_of` finds out for a whole run by looking at the few bytes before the bodies and
gives the run back as it is; otherwise it is cut into runs that each have one set of traits, which share the buffer.
Invariant: looking may only err towards decoding. Sources: AMQP 1.0 §3.2.4, and Artemis for names of annotations.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from mqbroker.base.errors import PeerFault
from mqbroker.wire.run import FrameLayout, Run
from mqbroker.wire.scan import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    scan_sections,
    skip_value,
)
from mqbroker.wire.sections import decode_annotations, decode_application_properties, decode_properties
from mqbroker.wire.traits import PLAIN, Traits
from mqbroker.wire.values import Symbol

DELIVERY_TIME: Final = Symbol("x-opt-delivery-time")
DELIVERY_DELAY: Final = Symbol("x-opt-delivery-delay")
ORIGIN_ADDRESS: Final = Symbol("x-opt-ORIG-ADDRESS")
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
LAST_VALUE: Final = "_AMQ_LVQ_NAME"

_MARKS: Final = (b"x-opt-delivery-", DUPLICATE_ID.encode(), LAST_VALUE.encode())
PLAIN_FIELDS_MAX: Final = 8  # properties up to content-encoding: none of them makes a message special
_TELLING: Final = (8, 10, 11)  # absolute-expiry-time, group-id, group-sequence
SMALL_ULONG: Final = 0x53
NULL: Final = 0x40
LIST0: Final = 0x45
LIST8: Final = 0xC0
MAP8: Final = 0xC1
MAP32: Final = 0xD1
_BYTES: Final = [bytes([value]) for value in range(256)]
KEY_SIZE_MAX: Final = 1024


def parts_of(run: Run) -> list[Run]:
    """The run cut where traits change, each part with its traits. Parts are runs of their own over the same buffer."""
    if run.is_plain or _is_plain(run):
        return [run]
    traits = [_traits(run, index) for index in range(run.count)]
    if traits == [PLAIN] * len(traits):
        return [run]
    parts = []
    begin = 0
    for index in range(1, run.count + 1):
        # A duplicate id or a key is one message's, even where the next has the same.
        is_same = index < run.count and traits[index] == traits[begin]
        if not is_same or traits[begin].duplicate_id or traits[begin].last_value:
            parts.append(part_of(run, begin, index, traits[begin]))
            begin = index
    return parts


def part_of(run: Run, begin: int, end: int, traits: Traits = PLAIN) -> Run:
    """Some messages of a run as a run of their own."""
    layout = FrameLayout(run.head_size, run.vary_start, run.vary_end, run.section)
    made = Run(run.buffer, run.starts[begin:end], run.stride, layout)
    made.traits = traits
    made.is_plain = run.is_plain
    made.large = run.large
    return made


def _is_plain(run: Run) -> bool:
    """Whether no message of the run says anything special. Looks at what comes before the bodies, and at no body."""
    if run.stride and run.count > 1 and _columns_are_plain(run):
        return True
    buffer, skip = run.buffer, run.head_size + run.section.size_bytes
    if run.count == 1:
        return _envelope_is_plain(buffer, run.start(0) + skip, run.end(0))
    return all(_envelope_is_plain(buffer, run.start(index) + skip, run.end(index)) for index in range(run.count))


def _columns_are_plain(run: Run) -> bool:
    """Messages of one size that begin with their body, or with short properties of one size and then their body."""
    buffer, stride, end = run.buffer, run.stride, run.end(run.count - 1)
    at = run.start(0) + run.head_size + run.section.size_bytes
    if at + 7 <= run.end(0) and buffer[at + 2] == PROPERTIES:
        constructor = buffer[at + 3]
        if constructor not in (LIST0, LIST8) or not _is_one(buffer[at + 3 : end : stride], constructor):
            return False
        if not _leads(run, at, PROPERTIES):
            return False
        at += 4
        if constructor == LIST8:
            size = buffer[at]
            if not _is_one(buffer[at:end:stride], size) or max(buffer[at + 1 : end : stride]) > PLAIN_FIELDS_MAX:
                return False
            at += 1 + size
    return at + 3 <= run.end(0) and DATA <= buffer[at + 2] <= VALUE and _leads(run, at, buffer[at + 2])


def _leads(run: Run, at: int, code: int) -> bool:
    """Whether each message has this section at the place that is `at` in the first one."""
    buffer, stride, end = run.buffer, run.stride, run.end(run.count - 1)
    columns = (buffer[at + place : end : stride] for place in range(3))
    return all(_is_one(column, value) for column, value in zip(columns, (0, SMALL_ULONG, code), strict=True))


def _is_one(column: bytes, value: int) -> bool:
    """Whether a column holds one byte only."""
    return column == _BYTES[value] * len(column)


def _envelope_is_plain(buffer: bytes, at: int, end: int) -> bool:
    """The same for one message, section by section."""
    while at + 6 <= end and buffer[at] == 0 and buffer[at + 1] == SMALL_ULONG:
        code, constructor = buffer[at + 2], buffer[at + 3]
        if DATA <= code <= VALUE:
            return True
        if constructor == LIST0:
            after = at + 4
        elif constructor in (LIST8, MAP8):
            after = at + 5 + buffer[at + 4]
        elif constructor == MAP32:
            after = at + 8 + int.from_bytes(buffer[at + 4 : at + 8], "big")
        else:
            return False
        if code == PROPERTIES:
            is_short = constructor == LIST8 and _fields_are_plain(buffer, at + 5, min(after, end))
            if constructor != LIST0 and not is_short:
                return False
        elif not DELIVERY_ANNOTATIONS <= code <= APPLICATION_PROPERTIES or _has_mark(buffer, at, after):
            return False
        at = after
    return False


def _has_mark(buffer: bytes, at: int, end: int) -> bool:
    return any(buffer.find(mark, at, end) >= 0 for mark in _MARKS)


def _fields_are_plain(buffer: bytes, at: int, end: int) -> bool:
    """Whether the list of properties, from its count on, has neither an absolute expiry time nor a group."""
    count = buffer[at]
    at += 1
    try:
        for field in range(count if count > PLAIN_FIELDS_MAX else 0):
            if field in _TELLING and buffer[at] != NULL:
                return False
            at = skip_value(buffer, at, end)
    except (PeerFault, IndexError):
        return False
    return True


def _traits(run: Run, index: int) -> Traits:
    """One message, decoded. What is malformed says nothing: the broker passes on what it cannot read."""
    payload = bytes(run.payload(index))
    try:
        sections = scan_sections(payload, 0, len(payload))
        values: dict[str, Any] = {}
        if sections.properties >= 0:
            properties = decode_properties(payload, sections.properties, sections.end)[0]
            values["expires_ms"] = max(properties.absolute_expiry_time or 0, 0)
            values["group_id"] = (properties.group_id or "")[:KEY_SIZE_MAX]
            values["group_sequence"] = _signed(properties.group_sequence or 0)
        if sections.message_annotations >= 0:
            annotations = decode_annotations(payload, sections.message_annotations, sections.end)[0]
            if ORIGIN_ADDRESS in annotations:
                values["expires_ms"] = 0  # it has lived its life; where it was moved to, it stays
            values["deliver_at_ms"] = _number(annotations.get(DELIVERY_TIME))
            values["delay_ms"] = 0 if values["deliver_at_ms"] else _number(annotations.get(DELIVERY_DELAY))
        if sections.application_properties >= 0:
            named = decode_application_properties(payload, sections.application_properties, sections.end)[0]
            values["duplicate_id"] = _key(named.get(DUPLICATE_ID))
            values["last_value"] = last_value_of(named.get(LAST_VALUE))
        return Traits(**values)
    except PeerFault:
        return PLAIN


def _number(value: Any) -> int:
    return max(int(value), 0) if isinstance(value, int) and not isinstance(value, bool) else 0


def _signed(value: int) -> int:
    """JMS's group sequence is signed, AMQP's is not: -1, which closes a group, arrives as 2**32 - 1."""
    return value - (1 << 32) if value >= 1 << 31 else value


def _key(value: Any) -> bytes:
    if value is None:
        return b""
    key = value if isinstance(value, bytes) else str(value).encode()
    # Cut off, two long ids could be one, and the second message would be dropped.
    return key if len(key) <= KEY_SIZE_MAX else sha256(key).digest()


def last_value_of(value: Any) -> str:
    """The key by which a message replaces another, of the property that has it; empty: it replaces none."""
    if value is None:
        return ""
    key = str(value)
    # As above: of two long keys with one beginning the second would replace what it has nothing to do with.
    return key if len(key) <= KEY_SIZE_MAX else sha256(key.encode()).hexdigest()
