"""What a message says once it was moved: where it was, and no time after which it may not be."""

from __future__ import annotations

from dataclasses import replace

from mqbroker.core.address.address import MULTICAST
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.message_view import MessageView
from mqbroker.core.queue.moved_message import (
    CAUSE,
    ORIGIN_ID,
    ORIGIN_QUEUE,
    ORIGIN_ROUTING,
    MessageOrigin,
    forwarded,
    forwarded_alike,
    moved,
    retried,
)
from mqbroker.core.queue.times import deliver_at_ms
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.parts import DELIVERY_TIME, ORIGIN_ADDRESS, parts_of
from mqbroker.wire.run import encode_payloads, heading, parse_run, single
from mqbroker.wire.scan import DATA, MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import (
    Header,
    Properties,
    decode_annotations,
    decode_header,
    decode_properties,
    encode_section,
)
from mqbroker.wire.values import Byte, Symbol

from tests.support.values import replaced

BODY = bytes.fromhex("005375a00161")
PROPERTIES = Properties(message_id="m1", to="orders", correlation_id=b"\x00\xff", group_id="g", group_sequence=3)
EXPIRING = replace(PROPERTIES, absolute_expiry_time=1_700_000_000_000)

ORIGIN = MessageOrigin("orders", "orders.q", MULTICAST)
PROPERTIES_OF_NO_GROUP = Properties(message_id="m1", to="orders")


def bare(properties: Properties) -> bytes:
    return encode_composite(properties) + BODY


def after_move(payload: bytes) -> bytes:
    return bytes(moved(Segment(single(payload), 0, 1, 4), 0, ORIGIN, "expired").payload(0))


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


def test_annotations_whose_names_begin_like_those_of_the_broker_stay() -> None:
    others = {Symbol("x-opt-CAUSED-BY"): "me", Symbol("x-opt-ORIG-QUEUE-TIME"): "t"}
    found = after_move(encode_section(MESSAGE_ANNOTATIONS, others) + bare(PROPERTIES))
    again = bytes(retried(single(found), 0).payload(0))
    assert decode_annotations(again, scan_sections(again, 0, len(again)).message_annotations, len(again))[0] == others


def test_annotations_say_where_it_was() -> None:
    before = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-mine"): 1, Symbol("x-opt-delivery-time"): 2})
    found = after_move(before + bare(EXPIRING))
    notes = decode_annotations(found, scan_sections(found, 0, len(found)).message_annotations, len(found))[0]
    assert notes == {
        Symbol("x-opt-mine"): 1, ORIGIN_ADDRESS: "orders", ORIGIN_QUEUE: "orders.q", ORIGIN_ROUTING: Byte(0),
        ORIGIN_ID: notes[ORIGIN_ID], CAUSE: "expired",
    }  # fmt: skip
    assert MessageOrigin.said_by(MessageView(found)) == ORIGIN


def test_whoever_may_send_there_may_say_anything_of_where_it_was() -> None:
    """Artemis says the routing type of a message in these numbers; an older release says none."""
    numbers = [(1, "anycast"), (0, "multicast"), (2, "")]
    others = [(said, "") for said in (True, False, 1.0, 0.0, "multicast", None)]
    for said, routing in numbers + others:
        notes = {ORIGIN_ADDRESS: "orders", ORIGIN_ROUTING: said}
        found = MessageView(encode_section(MESSAGE_ANNOTATIONS, notes) + BODY)
        assert MessageOrigin.said_by(found) == ("orders", "", routing)
    for address in ("", 7, None):
        found = MessageView(encode_section(MESSAGE_ANNOTATIONS, {ORIGIN_ADDRESS: address}) + BODY)
        assert MessageOrigin.said_by(found) is None


def test_what_is_said_of_an_earlier_queue_is_not_believed() -> None:
    """An older release does not know that it is to go, and writes its own notes behind it."""
    notes = {ORIGIN_ROUTING: Byte(1), Symbol("x-opt-mine"): 1, ORIGIN_ADDRESS: "news", ORIGIN_QUEUE: "s"}
    found = MessageView(encode_section(MESSAGE_ANNOTATIONS, notes) + BODY)
    assert MessageOrigin.said_by(found) == ("news", "s", "")


def test_annotations_say_nothing_of_where_it_was_before_that() -> None:
    """A dead letter that goes astray was in no queue of the address that it was to go to."""
    first = after_move(bare(PROPERTIES))
    found = bytes(moved(Segment(single(first), 0, 1, 0), 0, MessageOrigin("gone"), "no queue").payload(0))
    notes = decode_annotations(found, scan_sections(found, 0, len(found)).message_annotations, len(found))[0]
    assert notes == {ORIGIN_ADDRESS: "gone", ORIGIN_ID: notes[ORIGIN_ID], CAUSE: "no queue"}


def on_its_way(payload: bytes, now_ms: int, *, deliveries: int = 0, expires_ms: int = 0) -> bytes | None:
    run = parts_of(single(payload))[0]
    run.arrived_ms, run.expires_ms = 1000, expires_ms
    run.deliver_at_ms = deliver_at_ms(run)
    return forwarded(Segment(run, 0, 1, deliveries), 0, now_ms)


def test_what_goes_to_another_node_stays_as_it_is_where_nothing_counts() -> None:
    assert on_its_way(encode_composite(Header(durable=True)) + bare(PROPERTIES), 2000) is None


def test_what_is_left_of_a_life_and_how_often_it_was_delivered_go_along() -> None:
    payload = encode_composite(Header(durable=True, priority=7, ttl=5000)) + bare(PROPERTIES)
    found = on_its_way(payload, 2500, deliveries=3, expires_ms=6000)
    assert found is not None
    expected = Header(durable=True, priority=7, ttl=3500, first_acquirer=False, delivery_count=3)
    assert decode_header(found, 0, len(found))[0] == expected
    assert found.endswith(bare(PROPERTIES))


def test_one_that_is_past_its_time_expires_there_at_once() -> None:
    found = on_its_way(bare(PROPERTIES), 9000, expires_ms=6000)
    assert found is not None
    assert decode_header(found, 0, len(found))[0].ttl == 1


def test_a_delay_does_not_begin_again_on_the_other_node() -> None:
    delay = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-delivery-delay"): 7000, Symbol("x-opt-mine"): 1})
    found = on_its_way(delay + bare(PROPERTIES), 2000)
    assert found is not None
    at = scan_sections(found, 0, len(found)).message_annotations
    assert decode_annotations(found, at, len(found))[0] == {Symbol("x-opt-mine"): 1, DELIVERY_TIME: 8000}


def together(payloads: list[bytes], *, deliveries: int = 0, expires_ms: int = 0) -> Segment:
    block = encode_payloads(payloads, heading(0, 0, False), 0)
    parsed = parse_run(block, 0, len(block), len(payloads), 1 << 20)
    assert parsed is not None
    (run,) = parts_of(parsed.run)
    assert run.count == len(payloads)
    run.expires_ms = expires_ms
    run.arrived_ms = 1000
    run.deliver_at_ms = deliver_at_ms(run)
    return Segment(run, 1, run.count - 1, deliveries)


def test_many_go_as_each_of_them_would_alone() -> None:
    for header in (b"", encode_composite(Header(durable=True, priority=7, ttl=5000))):
        bodies = [encode_section(DATA, b"x" * size) for size in (1, 3, 0, 9)]
        lasting = encode_composite(PROPERTIES_OF_NO_GROUP)
        segment = together([header + lasting + body for body in bodies], expires_ms=6000)
        one_by_one = [forwarded(segment, index, 2500) for index in range(1, 4)]
        assert forwarded_alike(segment, 3, 2500) == one_by_one
        assert forwarded_alike(replaced(segment, deliveries=2), 3, 2500) == [
            forwarded(replaced(segment, deliveries=2), index, 2500) for index in range(1, 4)
        ]


def test_many_that_say_nothing_or_have_a_delay_do_not() -> None:
    assert forwarded_alike(together([bare(PROPERTIES_OF_NO_GROUP)] * 3), 2, 2000) == []
    delay = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-delivery-delay"): 7000})
    assert forwarded_alike(together([delay + bare(PROPERTIES_OF_NO_GROUP)] * 3, expires_ms=6000), 2, 2000) == []
