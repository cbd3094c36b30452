"""What a message says once it was moved: where it was, and no time after which it may not be."""

from __future__ import annotations

from dataclasses import replace

from mqbroker.core.backlog import Segment
from mqbroker.core.moved import CAUSE, ORIGIN_ID, ORIGIN_QUEUE, moved
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.parts import ORIGIN_ADDRESS
from mqbroker.wire.run import single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import (
    Header,
    Properties,
    decode_annotations,
    decode_header,
    decode_properties,
    encode_section,
)
from mqbroker.wire.values import Symbol

BODY = bytes.fromhex("005375a00161")
PROPERTIES = Properties(message_id="m1", to="orders", correlation_id=b"\x00\xff", group_id="g", group_sequence=3)
EXPIRING = replace(PROPERTIES, absolute_expiry_time=1_700_000_000_000)


def bare(properties: Properties) -> bytes:
    return encode_composite(properties) + BODY


def after_move(payload: bytes) -> bytes:
    return bytes(moved(Segment(single(payload), 0, 1, 4), 0, ("orders", "orders.q"), "expired").payload(0))


def test_a_moved_message_has_no_time_of_expiry() -> None:
    head = encode_composite(Header(durable=True, priority=7, ttl=5000, delivery_count=2))
    found = after_move(head + bare(EXPIRING))
    sections = scan_sections(found, 0, len(found))
    assert decode_header(found, 0, len(found))[0] == Header(
        durable=True, priority=7, ttl=None, first_acquirer=False, delivery_count=0
    )
    assert decode_properties(found, sections.properties, len(found))[0] == PROPERTIES
    assert found[sections.body :] == BODY


def test_a_bare_message_that_does_not_expire_is_moved_byte_for_byte() -> None:
    for payload in (bare(PROPERTIES), BODY, bytes.fromhex("005373d00000000f00000001a1026d31") + BODY):
        assert after_move(payload).endswith(payload)


def test_properties_that_cannot_be_read_are_moved_as_they_are() -> None:
    broken = bytes.fromhex("005373c0020141") + BODY  # a message-id that is a boolean
    found = after_move(broken)
    assert found.endswith(broken)
    assert decode_annotations(found, scan_sections(found, 0, len(found)).message_annotations, len(found))[0][CAUSE]


def test_annotations_say_where_it_was() -> None:
    before = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-mine"): 1, Symbol("x-opt-delivery-time"): 2})
    found = after_move(before + bare(EXPIRING))
    notes = decode_annotations(found, scan_sections(found, 0, len(found)).message_annotations, len(found))[0]
    assert notes == {
        Symbol("x-opt-mine"): 1, ORIGIN_ADDRESS: "orders", ORIGIN_QUEUE: "orders.q", ORIGIN_ID: notes[ORIGIN_ID],
        CAUSE: "expired",
    }  # fmt: skip
