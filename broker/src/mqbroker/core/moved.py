"""Messages that are moved to another address: dead letters and expired ones, with where they came from and why.

A moved message is a new message: a new id, no delivery count, no time to live, and no time of expiry, because clients
drop by themselves what has expired (Qpid JMS does). The rest of its bare message is what it was; the annotations say
where it comes from. Names are Artemis's (`x-opt-ORIG-ADDRESS` …), and the cause is ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from mqbroker.base.errors import PeerFault
from mqbroker.core.backlog import Segment
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.run import Run, single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, Sections, scan_sections
from mqbroker.wire.sections import Header, decode_annotations, decode_header, decode_properties, encode_section
from mqbroker.wire.values import Long, Symbol

ORIGIN_ADDRESS: Final = Symbol("x-opt-ORIG-ADDRESS")
ORIGIN_QUEUE: Final = Symbol("x-opt-ORIG-QUEUE")
ORIGIN_ID: Final = Symbol("x-opt-ORIG-MESSAGE-ID")
CAUSE: Final = Symbol("x-opt-CAUSE")
CAUSE_SIZE_MAX: Final = 500


def moved(segment: Segment, index: int, origin: tuple[str, str], cause: str) -> Run:
    """Message `index` of the segment's run as it goes to another address. `origin`: its address and its queue."""
    payload = segment.run.payload(index)
    notes = {
        ORIGIN_ADDRESS: origin[0],
        ORIGIN_QUEUE: origin[1],
        ORIGIN_ID: Long(segment.run.first_id + index),
        CAUSE: cause[:CAUSE_SIZE_MAX],
    }
    try:
        return single(_rewritten(bytes(payload), notes))
    except PeerFault:
        # Whatever is wrong with it, it must not be lost for that.
        return single(bytes(payload))


def _rewritten(payload: bytes, notes: dict[Symbol, object]) -> bytes:
    sections = scan_sections(payload, 0, len(payload))
    header = Header()
    if sections.header >= 0:
        header = decode_header(payload, sections.header, sections.end)[0]
    annotations: dict[Any, Any] = {}
    if sections.message_annotations >= 0:
        annotations.update(decode_annotations(payload, sections.message_annotations, sections.end)[0])
    annotations = {name: value for name, value in annotations.items() if not str(name).startswith("x-opt-delivery-")}
    head = encode_composite(replace(header, ttl=None, first_acquirer=False, delivery_count=0))
    return b"".join((head, encode_section(MESSAGE_ANNOTATIONS, annotations | notes), _lasting(payload, sections)))


def _lasting(payload: bytes, sections: Sections) -> bytes:
    """The bare message without an absolute expiry time; one that has none stays as it is, byte for byte."""
    bare = payload[sections.bare :]
    if sections.properties < 0:
        return bare
    try:
        properties, end = decode_properties(payload, sections.properties, sections.end)
    except PeerFault:
        return bare  # what cannot be read says nothing, as in parts.py
    if properties.absolute_expiry_time is None:
        return bare
    return encode_composite(replace(properties, absolute_expiry_time=None)) + payload[end:]
