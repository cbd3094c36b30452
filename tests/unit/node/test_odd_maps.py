"""Maps that no dict can hold, in what a message says of itself: whatever else it says there holds, in every room."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.client.message import decode_message, encode_message
from mqbroker.core.address.address import ANYCAST
from mqbroker.core.address.ingress import INGRESS_TIME, stamped
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.group_first import marked
from mqbroker.core.queue.message_filter import Candidate, message_filter
from mqbroker.core.queue.message_view import MessageView
from mqbroker.core.queue.moved_message import CAUSE, DELIVERY_TIME, MessageOrigin, moved, retried
from mqbroker.core.selector.selector import compile_selector
from mqbroker.wire.composites import encode_composite
from mqbroker.wire.parts import parts_of
from mqbroker.wire.run import single
from mqbroker.wire.scan import scan_sections
from mqbroker.wire.sections import Properties, decode_annotations, describe_message
from mqbroker.wire.types import Encoded, Symbol, decode_value
from mqbroker.wire.wellformed import Forms

from tests.support.malformed import BODY, HELD_AS_BYTES, mapped, section

TIME = 1_700_000_000_000
TEXTS = {"_AMQ_DUPL_ID": b"\xa1\x02d1", "_AMQ_LVQ_NAME": b"\xa1\x02v1", "color": b"\xa1\x04blue"}
ODD = Symbol("x-opt-odd")


def message(odd: bytes) -> bytes:
    named = [piece for name, value in TEXTS.items() for piece in (b"\xa1" + bytes((len(name),)) + name.encode(), value)]
    return b"".join((
        section(0x72, mapped(
            b"\xa3\x09" + ODD.encode(), odd, b"\xa3\x13x-opt-delivery-time", b"\x83" + TIME.to_bytes(8, "big")
        )),
        encode_composite(Properties(message_id="m", group_id="g", group_sequence=3)),
        section(0x74, mapped(b"\xa1\x03odd", odd, *named)),
        BODY,
    ))  # fmt: skip


def notes_of(payload: bytes) -> dict[Any, Any]:
    at = scan_sections(payload, 0, len(payload)).message_annotations
    return decode_annotations(payload, at, len(payload))[0]


@pytest.fixture(params=HELD_AS_BYTES)
def odd(request: pytest.FixtureRequest) -> bytes:
    return HELD_AS_BYTES[request.param]


def test_what_it_says_of_itself_holds(odd: bytes) -> None:
    run = single(message(odd))
    assert Forms().malformed(run) is None
    assert not run.is_plain
    traits = parts_of(run)[0].traits
    assert (traits.duplicate_id, traits.last_value) == (b"d1", "v1")
    assert (traits.group_id, traits.group_sequence, traits.deliver_at_ms) == ("g", 3, TIME)
    view = MessageView(message(odd))
    assert view.fault is None
    assert view.annotation("x-opt-delivery-time") == TIME


@pytest.mark.parametrize(
    ("text", "is_match"),
    [
        ("color = 'blue'", True), ("color = 'red'", False), ("odd IS NOT NULL", True), ("odd IS NULL", False),
        ("odd = 1", False), ("odd = 'v'", False), ("color = 'blue' AND JMSXGroupID = 'g'", True),
        ('"m.x-opt-odd" IS NOT NULL AND color = \'blue\'', True),
    ],
)  # fmt: skip
def test_selectors_say_the_same_on_both_ways(odd: bytes, text: str, is_match: bool) -> None:
    selector = compile_selector(text)
    assert selector.matches(MessageView(message(odd))) is is_match
    segment = Segment(single(message(odd)), 0, 1, 0)
    assert message_filter(selector).wants(Candidate(segment, 0)) is is_match


def test_what_is_written_anew_keeps_it_byte_for_byte(odd: bytes) -> None:
    payload = message(odd)
    value = decode_value(odd, 0, len(odd))[0]
    origin = MessageOrigin("orders", "orders.q", ANYCAST)
    letter = bytes(moved(Segment(single(payload), 0, 1, 4), 0, origin, "expired").payload(0))
    assert notes_of(letter)[ODD] == value
    assert notes_of(letter)[CAUSE] == "expired"
    assert DELIVERY_TIME not in notes_of(letter)
    assert CAUSE not in notes_of(bytes(retried(single(letter), 0).payload(0)))
    arrived = bytes(stamped(single(payload), TIME)[0].payload(0))
    assert notes_of(arrived)[ODD] == value
    assert notes_of(arrived)[INGRESS_TIME] == TIME
    first = marked(payload, "JMSXGroupFirstForConsumer")
    assert MessageView(first).value_of("JMSXGroupFirstForConsumer") is True
    assert MessageView(first).value_of("odd") == value
    for rewritten in (letter, arrived, first):
        assert odd in rewritten
        assert Forms().malformed(single(rewritten)) is None


def test_applications_and_operators_get_it(odd: bytes) -> None:
    received = decode_message(message(odd))
    assert received.application_properties["color"] == "blue"
    assert describe_message(message(odd))["application_properties"]["color"] == "blue"
    body = decode_message(section(0x77, odd)).body
    assert isinstance(body, Encoded | list)
    assert decode_message(encode_message(decode_message(section(0x77, odd)))).body == body
