"""Filters over messages in runs: they say what selectors say of views, remember little, and decode next to nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.core.queue import message_filter as f
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.message_filter import Candidate, MessageFilter, message_filter
from mqbroker.core.queue.message_view import view_of
from mqbroker.core.selector.selector import compile_selector
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, Properties, build_message

from tests.support.bytecodes import Bytecodes
from tests.unit.core.selector.selector_reference import Tree, Values, conditions, meant, values, written

LOOK_BYTECODES = 200  # at what is remembered; a view that decodes takes some 1,200
PROPERTIES = Properties(message_id="ID:7", to="orders", subject="kind", correlation_id="c-1", creation_time=99)


def candidate(held: dict[str, Any], body: str = "x", deliveries: int = 0) -> Candidate:
    payload = build_message(body, header=Header(priority=7), properties=PROPERTIES, application_properties=held)
    return Candidate(Segment(single(payload), 0, 1, deliveries), 0)


def said(text: str, one: Candidate) -> bool:
    return message_filter(compile_selector(text)).wants(one)


@given(conditions, st.lists(values, min_size=1, max_size=4))
def test_what_the_reference_says_whatever_was_asked_before(tree: Tree, messages: list[Values]) -> None:
    for held in messages * 2:
        assert said(written(tree), candidate(held)) == (meant(tree, held) is True)


@pytest.mark.parametrize(
    "text",
    ["JMSPriority = 7", "JMSType = 'kind' AND a = 1", "JMSCorrelationID LIKE 'c%'", "JMSXDeliveryCount = 1",
     "AMQSize < 200", "a = 1 OR JMSTimestamp = 99", "\"m.x\" IS NULL AND a = 1"],
)  # fmt: skip
def test_what_asks_for_more_than_properties_is_asked_each_time(text: str) -> None:
    for one in (candidate({"a": 1}), candidate({"a": 2}), candidate({"a": 1}, "x" * 300, 3)):
        assert said(text, one) == compile_selector(text).matches(view_of(one.segment, 0))
    assert message_filter(compile_selector(text)).looks == f.DECODED_LOOKS


def test_what_differs_only_in_what_is_not_asked_for() -> None:
    assert [said("a = 1", candidate(held)) for held in ({"a": 1}, {"a": 1, "b": 2}, {"b": 2}, {})] == [
        True, True, False, False,
    ]  # fmt: skip
    assert [said("a = b", candidate(held)) for held in ({"a": 1, "b": 1}, {"a": 1, "b": 2})] == [True, False]


def test_what_is_remembered_is_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f, "REMEMBERED_MAX", 50)
    selectors = [compile_selector(f"n > {number}") for number in range(20)]
    for number in range(200):
        for bound, selector in enumerate(selectors):
            assert message_filter(selector).wants(candidate({"n": number})) == (number > bound)
        remembered = f._REMEMBERED.filters.values()
        assert sum(len(each._verdicts) for each in remembered) <= 50
    long = {"n": 5, "text": "x" * f.REMEMBERED_BYTES_MAX}
    assert message_filter(selectors[0]).wants(candidate(long))
    assert all(len(key) <= f.REMEMBERED_BYTES_MAX for each in f._REMEMBERED.filters.values() for key in each._verdicts)


def test_filters_stay_when_verdicts_go_and_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of selectors that look at one message say more than there is room for: they are not made anew."""
    monkeypatch.setattr(f, "REMEMBERED_MAX", 50)
    f._REMEMBERED.filters.clear()
    selectors = [compile_selector(f"n = {number}") for number in range(40)]
    filters = [message_filter(selector) for selector in selectors]
    for number in range(5):
        assert sum(each.wants(candidate({"n": number})) for each in filters) == 1
    assert [message_filter(selector) for selector in selectors] == filters
    for number in range(200):
        message_filter(compile_selector(f"n < {number}"))
        assert len(f._REMEMBERED.filters) <= 50


def test_filters_of_long_selectors_are_bounded_by_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers come and go, each with a selector of its own: what was made of those is not kept for ever."""
    monkeypatch.setattr(f, "FILTERS_SIZE_MAX", 10_000)
    monkeypatch.setattr(f, "_REMEMBERED", f._Remembered())
    for number in range(100):
        names = ", ".join(f"'{number}-{each}'" for each in range(100))
        assert not message_filter(compile_selector(f"n IN ({names})")).wants(candidate({"n": "another"}))
        kept = f._REMEMBERED.filters
        assert sum(len(each.text) for each in kept) <= 10_000
    assert len(kept) > 1
    short = [compile_selector(f"n = {number}") for number in range(20)]
    filters = [message_filter(selector) for selector in short]
    assert [message_filter(selector) for selector in short] == filters


def test_a_look_at_what_is_remembered_decodes_nothing() -> None:
    wanted = MessageFilter(compile_selector("color = 'red'"))
    assert not wanted.wants(candidate({"color": "blue", "weight": 2}))
    for body in ("x", "y" * 5000):
        counted = Bytecodes()
        one = candidate({"color": "blue", "weight": 2}, body)
        assert counted.of(lambda one=one: wanted.wants(one)) is False  # type: ignore[misc]
        assert counted.count < LOOK_BYTECODES


def test_a_value_is_read_without_the_others() -> None:
    few, many = ({"id": number, **{f"p{other}": "x" for other in range(count)}} for number, count in ((1, 2), (2, 60)))
    counts = []
    for held in (few, many):
        counted = Bytecodes()
        one = candidate(held)
        assert counted.of(lambda one=one: said("id > 5", one)) is False  # type: ignore[misc]
        counts.append(counted.count)
    assert counts[1] < counts[0] + 50


def test_properties_are_passed_once_however_many_are_asked_for_and_by_however_many() -> None:
    """Of hundreds of names that are not there each would else have passed thousands of properties."""
    one = candidate({f"p{number:04}": "x" for number in range(1000)})
    few, many = (
        [MessageFilter(compile_selector(" OR ".join(f"z{name} = {one}" for name in range(count)))) for one in range(5)]
        for count in (1, 100)
    )
    counted = Bytecodes()
    assert counted.of(lambda: few[0].wants(one)) is False
    first, counted = counted.count, Bytecodes()
    assert counted.of(lambda: any(each.wants(one) for each in many)) is False
    assert counted.count < first


@pytest.mark.parametrize("text", ["z = 1", "z = 1 AND JMSPriority = 7"])
def test_what_is_long_before_its_body_counts_as_many_looks(text: str) -> None:
    looks = []
    for held, body in (({"a": 1}, "x" * 100_000), ({"a": "x" * 20 * f.LOOK_BYTES}, "x")):
        one = candidate(held, body)
        assert not said(text, one)
        looks.append(one.long_looks)
    assert looks == [0, 20]


def test_another_filter_is_asked_with_a_view() -> None:
    class Subject:
        def matches(self, message: Any) -> bool:
            return bool(message.value_of("JMSType") == "kind")

    assert message_filter(Subject()).wants(candidate({}))
