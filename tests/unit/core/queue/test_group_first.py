"""The mark on a group's first message: a property more, whatever the message has or lacks."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.queue.group_first import marked
from mqbroker.core.queue.message_view import MessageView
from mqbroker.wire.sections import Header, Properties, build_message, describe_message


@pytest.mark.parametrize(
    "fields",
    [{}, {"header": Header(durable=True)}, {"properties": Properties(group_id="g")},
     {"application_properties": {"n": 5}}, {"application_properties": {"first": False, "z": "ä"}}],
)  # fmt: skip
def test_only_the_property_is_new(fields: dict[str, Any]) -> None:
    before = build_message("body", **fields)
    after = marked(before, "first")
    assert MessageView(after).value_of("first") is True
    told_before, told_after = describe_message(before), describe_message(after)
    named = {**told_before.pop("application_properties", {}), "first": True}
    assert told_after.pop("application_properties") == named
    assert told_after == told_before
    assert marked(after, "first") == after


@pytest.mark.parametrize("payload", [b"", b"\0\x53\x70\x45"])
def test_a_message_without_a_body_gets_it_too(payload: bytes) -> None:
    assert marked(payload, "first").startswith(payload)
    assert MessageView(marked(payload, "first")).value_of("first") is True


def test_what_cannot_be_read_stays_as_it_is() -> None:
    assert marked(b"\0\x53\x74\xc1\xff", "first") == b"\0\x53\x74\xc1\xff"
