"""Announcements as JSON: what is said arrives, and nothing else does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqbroker.cluster.discovery.announcement import (
    HEARS_MAX,
    JSON_BYTES_MAX,
    Connector,
    MalformedField,
    from_json,
    to_json,
)

from tests.unit.cluster.discovery.sayings import BOOTS, HERE, THERE, said


def row(**changes: Any) -> bytes:
    found = {**json.loads(to_json(said())), **changes}
    return json.dumps({key: value for key, value in found.items() if value is not ...}).encode()


def test_what_is_said_arrives() -> None:
    announcement = said(2, 3, 2**63 - 1, connectors=(HERE, THERE), period_ms=50)
    assert from_json(to_json(announcement)) == announcement
    yielded = replace(announcement, started_ms=1_700_000_000_000, has_yielded=True)
    assert from_json(to_json(yielded)) == yielded
    of_a_term = replace(announcement, term=7)
    assert from_json(to_json(of_a_term)) == of_a_term
    assert b"term" not in to_json(announcement)
    hearing = replace(announcement, hears=tuple(BOOTS[:HEARS_MAX]))
    assert from_json(to_json(hearing)) == hearing


def test_an_earlier_release_says_less() -> None:
    assert from_json(row(started_ms=..., yielded=..., hears=...)) == said()


def test_the_longest_one_fits() -> None:
    longest = said(name="n" * 63, connectors=(Connector("c" * 63, "amqps", "h" * 253, 65_535),),
                   started_ms=2**63 - 1, has_yielded=True, hears=tuple(BOOTS[:HEARS_MAX]),
                   term=2**63 - 1)  # fmt: skip
    assert len(to_json(longest)) < JSON_BYTES_MAX


def test_a_later_release_may_say_more() -> None:
    assert from_json(row(zone="east", flags=[1, {"a": None}])) == said()


def test_connectors_as_people_read_them() -> None:
    assert [THERE.uri, Connector("x", "amqp", "::1", 5).uri] == ["amqps://mq2.example.org:5674", "amqp://[::1]:5"]


FAULTY_CONNECTORS: list[Any] = [
    ..., None, {}, [], [None], [{}], [json.loads(to_json(said()))["connectors"][0]] * 9,
    [{"name": "a", "scheme": "http", "host": "h", "port": 1}],
    [{"name": "a", "scheme": ["amqp"], "host": "h", "port": 1}],
    [{"name": "a", "scheme": "amqp", "host": "", "port": 1}],
    [{"name": "a", "scheme": "amqp", "host": "h h", "port": 1}],
    [{"name": "a", "scheme": "amqp", "host": "h", "port": 0}],
    [{"name": "a", "scheme": "amqp", "host": "h", "port": 65_536}],
    [{"name": "a", "scheme": "amqp", "host": "h", "port": "1"}],
    [{"name": "a", "scheme": "amqp", "host": "h\n", "port": 1}],
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b"\xff{}", b"[" * 1400, b'{"seq":1,"seq":1}', b"9" * 1400, b'{"a":' * 200,
        row(node_id=...), row(node_id="x"), row(node_id=said().node_id.upper().replace("0", "A")),
        row(node_id=said().node_id + "\n"), row(node_id=7), row(boot_id=""), row(boot_id="g" * 32), row(boot_id=...),
        row(seq=0), row(seq=-1), row(seq=True), row(seq=1.0), row(seq="1"), row(seq=2**63), row(seq=...),
        row(name="a b"), row(name="a" * 64), row(name=...), row(name="ä"),
        row(started_ms=-1), row(started_ms="1"), row(started_ms=None), row(yielded=1), row(yielded=None),
        row(term=-1), row(term=True), row(term="1"), row(term=2**63), row(term=None),
        row(hears=None), row(hears=BOOTS[0]), row(hears=BOOTS[: HEARS_MAX + 1]), row(hears=["g" * 32]), row(hears=[7]),
        row(period_ms=0), row(period_ms=3_600_001), row(period_ms=...),
        *(row(connectors=each) for each in FAULTY_CONNECTORS),
    ],
)  # fmt: skip
def test_what_no_announcement_says_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedField):
        from_json(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(sorted(json.loads(to_json(said())))), VALUES))
def test_any_values_give_an_announcement_or_malformed(changes: dict[str, Any]) -> None:
    try:
        found = from_json(row(**changes))
    except MalformedField:
        return
    assert from_json(to_json(found)) == found


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=1500))
def test_any_bytes_give_an_announcement_or_malformed(text: bytes) -> None:
    with pytest.raises(MalformedField):
        from_json(text)
