"""Remote bindings: consumers are counted by selector, and what another node says cannot raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.core.cluster.remote_binding import NOTHING, RemoteBinding, cluster_name_of
from mqbroker.core.queue.message_view import MessageView
from mqbroker.wire import scan
from mqbroker.wire.sections import encode_section

BLUE, RED, WRONG = "color = 'blue'", "color = 'red'", "color = = 'blue'"


def binding(selector: str = "") -> RemoteBinding:
    return RemoteBinding("orders", "sales", "anycast", selector, "node-b", "node-b", 1)


def message(color: str) -> MessageView:
    return MessageView(encode_section(scan.APPLICATION_PROPERTIES, {"color": color}))


def test_it_is_named_for_its_queue_and_its_owner_and_is_connected_at_first() -> None:
    made = RemoteBinding("orders", "sales", "multicast", "", "node-c", "node-b", 2)
    assert (made.cluster_name, made.is_connected, made.filter) == (cluster_name_of("orders", "node-c"), True, None)
    assert cluster_name_of("orders", "node-b") != made.cluster_name


@pytest.mark.parametrize(
    ("selectors", "blue", "red"),
    [
        ((), False, False),
        (("",), True, True),
        ((BLUE,), True, False),
        ((BLUE, RED), True, True),
        ((RED, ""), True, True),
        ((WRONG,), False, False),
        ((WRONG, BLUE), True, False),
    ],
)
def test_it_accepts_what_at_least_one_consumer_wants(selectors: tuple[str, ...], blue: bool, red: bool) -> None:
    made = binding()
    for selector in selectors:
        made.consumer_created(selector)
    assert (made.accepts(message("blue")), made.accepts(message("red"))) == (blue, red)
    assert (made.consumers_count, made.accepts_all) == (len(selectors), "" in selectors)


def test_a_message_that_cannot_be_read_is_for_those_without_a_selector() -> None:
    made, malformed = binding(), MessageView(b"\x00\x53\x74\xff")
    made.consumer_created(BLUE)
    assert not made.accepts(malformed)
    made.consumer_created("")
    assert made.accepts(malformed)


def test_selectors_are_counted() -> None:
    made = binding()
    assert [made.consumer_created(BLUE) for _ in range(2)] == ["", ""]
    assert made.consumer_filters[BLUE][1] == 2
    assert made.consumer_closed(BLUE)
    assert made.accepts(message("blue"))
    assert made.consumer_closed(BLUE)
    assert (made.accepts(message("blue")), made.consumers_count, made.consumer_filters) == (False, 0, {})


@pytest.mark.parametrize("selector", ["", BLUE, WRONG])
def test_who_was_not_there_cannot_go(selector: str) -> None:
    made = binding()
    made.consumer_created(RED)
    assert not made.consumer_closed(selector)
    assert (made.consumers_count, list(made.consumer_filters)) == (1, [RED])


def test_a_selector_that_cannot_be_read_is_told_once_and_matches_nothing() -> None:
    made = binding()
    assert "column 9" in made.consumer_created(WRONG)
    assert made.consumer_created(WRONG) == ""
    assert made.consumers_count == 2
    assert made.consumer_closed(WRONG)
    assert made.consumer_closed(WRONG)
    assert made.consumers_count == 0


def test_the_queues_own_filter_is_compiled_and_one_that_cannot_be_read_matches_nothing() -> None:
    good, bad = binding(BLUE), binding(WRONG)
    assert good.filter is not None
    assert (good.filter.matches(message("blue")), good.filter.matches(message("red")), good.fault) == (True, False, "")
    assert (bad.filter, NOTHING.matches(message("blue"))) == (NOTHING, False)
    assert "column 9" in bad.fault


def test_consumers_can_be_told_anew() -> None:
    made = binding()
    made.consumer_created("")
    made.consumer_created(BLUE)
    made.forget_consumers()
    assert (made.consumers_count, made.accepts_all, made.accepts(message("blue"))) == (0, False, False)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["", BLUE, RED, WRONG]))))
def test_counts_are_those_of_who_came_and_did_not_go(events: list[tuple[bool, str]]) -> None:
    made, there = binding(), dict.fromkeys(["", BLUE, RED, WRONG], 0)
    for comes, selector in events:
        if comes:
            made.consumer_created(selector)
            there[selector] += 1
        else:
            assert made.consumer_closed(selector) is (there[selector] > 0)
            there[selector] = max(0, there[selector] - 1)
    assert made.consumers_count == sum(there.values())
    assert made.accepts(message("blue")) is bool(there[""] or there[BLUE])
    assert {text: count for text, (_, count) in made.consumer_filters.items()} == {
        text: count for text, count in there.items() if text and count
    }
