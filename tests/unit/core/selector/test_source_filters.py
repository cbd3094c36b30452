"""Filters of a source, as clients send them."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.base.errors import Refused
from mqbroker.core.queue.message_view import MessageView
from mqbroker.core.selector.source_filters import NO_FILTER, source_filter
from mqbroker.wire.sections import build_message
from mqbroker.wire.types import Described, Symbol, ULong, decode_value, encode_value

SELECTOR = Symbol("apache.org:selector-filter:string")
NO_LOCAL = Symbol("apache.org:no-local-filter:list")
BLUE = MessageView(build_message("x", application_properties={"color": "blue"}))
RED = MessageView(build_message("x", application_properties={"color": "red"}))


def as_sent(filters: dict[Any, Any]) -> dict[Any, Any]:
    raw = encode_value(filters)
    found: dict[Any, Any] = decode_value(raw, 0, len(raw))[0]
    return found


@pytest.mark.parametrize(
    "filters",
    [
        {Symbol("selector"): Described(SELECTOR, "color = 'blue'")},
        {Symbol("jms-selector"): Described(ULong(0x468C00000004), "color = 'blue'")},
        {SELECTOR: Described(ULong(0x468C00000004), "color = 'blue'")},
        {SELECTOR: Described(0x468C00000004, "color = 'blue'")},
        {SELECTOR: Described(SELECTOR, Symbol("color = 'blue'"))},
        {SELECTOR: "color = 'blue'"},
        {Symbol("jms-selector"): "color = 'blue'"},
        {Symbol("x"): Described(SELECTOR, "color = 'blue'"), Symbol("y"): Described(SELECTOR, " ")},
    ],
)
def test_selectors_as_clients_send_them(filters: dict[Any, Any]) -> None:
    found = source_filter(as_sent(filters), knows_no_local=False)
    assert found.selector is not None
    assert (found.selector.matches(BLUE), found.selector.matches(RED)) == (True, False)
    assert found.accepted == as_sent(filters)
    assert not found.no_local


def test_the_answer_is_encodable_and_says_the_same() -> None:
    filters = as_sent({Symbol("s"): Described(SELECTOR, "a = 1"), Symbol("n"): Described(NO_LOCAL, [])})
    accepted = source_filter(filters, knows_no_local=True).accepted
    assert encode_value(accepted) == encode_value(filters)
    assert all(type(key) is Symbol for key in accepted)


@pytest.mark.parametrize("descriptor", [NO_LOCAL, ULong(0x468C00000003)])
@pytest.mark.parametrize("value", [[], "NoLocalFilter{}", None])
def test_no_local_holds_where_it_is_known(descriptor: Any, value: Any) -> None:
    filters = {Symbol("no-local"): Described(descriptor, value)}
    found = source_filter(as_sent(filters), knows_no_local=True)
    assert (found.no_local, found.selector, found.accepted) == (True, None, as_sent(filters))
    assert source_filter(as_sent(filters), knows_no_local=False) is NO_FILTER


def test_what_is_not_known_is_left_out() -> None:
    selector = {Symbol("s"): Described(SELECTOR, "color = 'red'")}
    others = {
        Symbol("offset"): Described(Symbol("rabbitmq:stream-offset-spec"), "first"),
        Symbol("number"): Described(ULong(5), "x"), Symbol("odd"): Described([1], "x"), Symbol("null"): None,
        Symbol("bare"): "color = 'blue'", Symbol("true"): Described(True, "x"), Symbol("jms-selector"): None,
    }  # fmt: skip
    found = source_filter(as_sent({**others, **selector}), knows_no_local=True)
    assert found.accepted == as_sent(selector)
    assert found.selector is not None
    assert found.selector.text == "color = 'red'"
    assert source_filter(as_sent(others), knows_no_local=True) is NO_FILTER


@pytest.mark.parametrize("filters", [None, {}])
def test_no_filters(filters: dict[Any, Any] | None) -> None:
    assert source_filter(filters, knows_no_local=True) == NO_FILTER


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_blank_selector_is_none(text: str) -> None:
    found = source_filter({SELECTOR: Described(SELECTOR, text)}, knows_no_local=False)
    assert found.selector is None
    assert list(found.accepted) == [SELECTOR]


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        ({SELECTOR: Described(SELECTOR, "color = ")}, "selector, column 8: it ends where"),
        ({SELECTOR: Described(SELECTOR, 5)}, "a selector is a string, not"),
        ({SELECTOR: Described(SELECTOR, None)}, "a selector is a string, not null"),
        ({SELECTOR: Described(SELECTOR, b"a = 1")}, "a selector is a string, not bytes"),
        ({SELECTOR: "color = "}, "selector, column 8"),
        ({Symbol("a"): Described(SELECTOR, "a"), Symbol("b"): Described(SELECTOR, "b")}, "'b' is a second selector"),
    ],
)
def test_faults_are_refused(filters: dict[Any, Any], says: str) -> None:
    with pytest.raises(Refused, match=says) as caught:
        source_filter(as_sent(filters), knows_no_local=True)
    assert caught.value.condition == "amqp:invalid-field"
