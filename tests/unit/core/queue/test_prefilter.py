"""What is passed over without a look is nothing that a selector would have wanted, and it is most of a backlog."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.core.queue import dispatch, prefilter
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.message_filter import message_filter
from mqbroker.core.queue.message_view import view_of
from mqbroker.core.queue.prefilter import NEEDLES_MAX, Prefilter, needles_of
from mqbroker.core.queue.queue import Queue, QueueKind
from mqbroker.core.selector.selector import compile_selector
from mqbroker.wire.run import Run, runs_of
from mqbroker.wire.sections import Header, build_message
from mqbroker.wire.types import Char, Symbol

from tests.support.bytecodes import Bytecodes
from tests.unit.core.queue.test_dispatch import Taker

MESSAGE_BYTECODES_MAX = 60  # of a backlog of which one in a hundred is wanted; a look at each takes some 500
KINDS = st.sampled_from(
    ["rare", "common", "ra", "rarer", "r", "", "ä", "rä", Char("r"), Symbol("rare"), 7, None, "x" * 300]
)
BODIES = st.sampled_from(["x", "rare", "\x04rare", "y" * 300])
TEXTS = [
    "kind = 'rare'",
    "'rä' = kind",
    "kind IN ('rare', 'ra')",
    "kind = 'rare' AND n < 3",
    "kind = 'ra' OR kind = 'rä'",
    f"kind = '{'x' * 300}'",
    "kind = 'r'",
    "(kind = 'rare' OR n = 2) AND kind = 'rare'",
]
# Of the others no bytes are known, and there is no search (message_filter.py).
SEARCHED = [text for text in TEXTS if needles_of(compile_selector(text).required)]


def message(held: dict[str, Any], body: str = "x", priority: int = 4) -> bytes:
    return build_message(
        body,
        header=Header(priority=priority),
        application_properties={name: value for name, value in held.items() if value is not None},
    )


def wanted(text: str, run: Run) -> set[int]:
    selector = compile_selector(text)
    return {index for index in range(run.count) if selector.matches(view_of(Segment(run, index, 1, 0), index))}


def looked_at(search: Prefilter, segment: Segment) -> list[int]:
    """The messages that are not passed over."""
    found = []
    index, stop = segment.start, segment.start + segment.n
    while index < stop and (index := search.next_index(segment, index)) < stop:
        found.append(index)
        index += 1
    return found


@given(
    st.lists(st.tuples(KINDS, st.integers(0, 4), BODIES), min_size=1, max_size=40), st.sampled_from(SEARCHED), st.data()
)
def test_what_is_wanted_is_never_passed_over(messages: list[Any], text: str, data: st.DataObject) -> None:
    search = Prefilter(needles_of(compile_selector(text).required))
    for run in runs_of([message({"n": n, "kind": kind}, body) for kind, n, body in messages]):
        first = data.draw(st.integers(0, run.count - 1))
        count = data.draw(st.integers(1, run.count - first))
        here = wanted(text, run) & set(range(first, first + count))
        assert here <= set(looked_at(search, Segment(run, first, count, 0)))
        run.compact([(first, count)])
        assert here <= set(looked_at(search, Segment(run, first, count, 0)))


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("kind = 'rare'", {"rare"}),
        ("'rare' = kind", {"rare"}),
        ("kind IN ('a', 'b')", {"a", "b"}),
        ("kind = 'rare' AND n = 1", {"rare"}),
        ("kind IN ('a', 'b') AND color = 'red'", {"red"}),
        ("kind = 'a' OR color = 'b'", {"a", "b"}),
        ("kind = 'a' OR n = 1", set()),
        ("kind <> 'rare'", set()),
        ("NOT kind = 'rare'", set()),
        ("kind NOT IN ('a', 'b')", set()),
        ("NOT (kind = 'a' OR kind = 'b')", set()),
        ("kind IS NULL", set()),
        ("n BETWEEN 1 AND 2", set()),
        ("n NOT BETWEEN 1 AND 2", set()),
        ("'a' = 'b'", set()),
        ("kind", set()),
    ],
)
def test_texts_that_a_selector_requires(text: str, required: set[str]) -> None:
    assert compile_selector(text).required == required


def test_texts_that_are_searched_for() -> None:
    assert needles_of({"rare", "blue"}) == (b"\x04blue", b"\x04rare")
    assert needles_of(set()) == needles_of({"rare", "r"}) == needles_of({""}) == ()
    assert needles_of({f"kind-{number}" for number in range(NEEDLES_MAX + 1)}) == ()
    assert needles_of({"x" * 300}) == (bytes((300 & 0xFF,)) + b"x" * (prefilter.NEEDLE_SIZE_MAX - 1),)


def test_fields_are_not_searched_for_as_they_are_shown_otherwise() -> None:
    assert message_filter(compile_selector("JMSCorrelationID = 'ID:AMQP_ULONG:7'")).needles == ()
    assert message_filter(compile_selector("kind = 'rare'")).needles == (b"\x04rare",)


def test_where_a_needle_is_in_each_message_the_search_ends() -> None:
    (run,) = runs_of([message({"kind": "rare"})] * 100)
    search = Prefilter(needles_of({"rare"}))
    assert looked_at(search, Segment(run, 0, 100, 0)) == list(range(100))
    before = search.looks()
    assert looked_at(search, Segment(run, 0, 100, 0)) == list(range(100))
    assert before > 0
    assert search.looks() == 0


def test_bodies_are_not_searched_where_they_are_long() -> None:
    (run,) = runs_of([message({"kind": "common"}, "x" * prefilter.FRAME_BYTES_MAX)] * 20)
    assert looked_at(Prefilter(needles_of({"rare"})), Segment(run, 0, 20, 0)) == list(range(20))


def test_a_search_is_paid_for_and_goes_on_stretch_by_stretch() -> None:
    (run,) = runs_of([message({"kind": "common"}, "x" * 1000)] * 200)
    search = Prefilter(needles_of({"rare"}))
    segment = Segment(run, 0, 200, 0)
    first = search.next_index(segment, 0)
    assert 10 < first <= prefilter.STRETCH_BYTES // 1000
    assert search.looks() == (prefilter.STRETCH_BYTES + prefilter.CALL_BYTES) // prefilter.LOOK_BYTES
    assert looked_at(search, segment)[-1] < 200


def backlog(kinds: list[str]) -> Queue:
    queue = Queue(QueueKind("orders", "orders"), 1)
    first_id = 1
    for at in range(0, len(kinds), 25):
        for run in runs_of(
            [message({"number": at + place, "kind": kind}) for place, kind in enumerate(kinds[at : at + 25])]
        ):
            run.first_id = first_id
            first_id += run.count
            queue.add(Segment(run, 0, run.count, 0))
    return queue


def taker(text: str | None, credit: int, *, is_browser: bool = False) -> Taker:
    made = Taker(None, 0, is_browser=is_browser)
    made.filter = compile_selector(text) if text else None
    made.credit = credit
    return made


def taken(takers: list[Taker]) -> list[list[int]]:
    return [[*(each.first_id for each in one.held), *one.copies] for one in takers]


def handed_out(kinds: list[str], takers: list[Taker]) -> list[list[int]]:
    """What each got; they get credit now and then."""
    queue = backlog(kinds)
    for each in takers:
        queue.join(each)
    for _ in range(len(kinds)):
        queue.dispatch(1000)
        if not queue.dispatcher.is_unfinished:
            for each in takers:
                each.credit += 1
    return taken(takers)


@given(
    st.lists(st.sampled_from(["rare", "common", "common", "common", "odd", "x"]), min_size=1, max_size=200),
    st.lists(st.tuples(st.sampled_from([*TEXTS[:5], "kind = 'odd'", "number < 9"]), st.integers(0, 30), st.booleans()),
             min_size=1, max_size=3),
)  # fmt: skip
def test_each_gets_what_he_gets_by_a_look_at_each_message(kinds: list[str], made: list[tuple[str, int, bool]]) -> None:
    found = handed_out(kinds, [taker(text, credit, is_browser=browses) for text, credit, browses in made])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "PLAIN_LOOKS", 10**9)
        assert found == handed_out(kinds, [taker(text, credit, is_browser=browses) for text, credit, browses in made])


@pytest.mark.parametrize("is_browser", [False, True])
def test_what_came_before_messages_of_higher_priority_in_the_same_read_is_found(is_browser: bool) -> None:
    low = [message({"kind": "rare" if number == 3 else "common"}) for number in range(10)]
    queue, consumer = Queue(QueueKind("orders", "orders"), 1), taker("kind = 'rare'", 1, is_browser=is_browser)
    first_id = 1
    for run in runs_of([*low, *[message({"kind": "common"}, priority=9)] * 20]):
        run.first_id = first_id
        first_id += run.count
        queue.add(Segment(run, 0, run.count, 0))
    queue.join(consumer)
    queue.dispatch(1000)
    assert taken([consumer]) == [[4]]


def test_what_is_passed_over_for_one_is_still_there_for_another_who_looks_further_on() -> None:
    queue, first, second = Queue(QueueKind("orders", "orders"), 1), taker("n = 99", 1), taker("kind = 'rare'", 1)
    (run,) = runs_of([message({"n": number % 100, "kind": "common"}) for number in (*range(1, 99), *range(1, 100))])
    run.first_id = 1
    queue.add(Segment(run, 0, run.count, 0))
    queue.join(first)
    queue.dispatch(50)
    assert queue.dispatcher.is_unfinished
    queue.join(second)
    while queue.dispatcher.is_unfinished:
        queue.dispatch(1000)
    assert taken([first, second]) == [[197], []]


@pytest.mark.parametrize("is_browser", [False, True])
def test_who_wants_nothing_of_very_much_goes_on_where_the_turn_ended_and_searches_once(is_browser: bool) -> None:
    queue, consumer = Queue(QueueKind("orders", "orders"), 1), taker("kind = 'rare'", 1, is_browser=is_browser)
    (run,) = runs_of([message({"kind": "common"}, "x" * 1000)] * 1000)
    run.first_id = 1
    queue.add(Segment(run, 0, run.count, 0))
    queue.join(consumer)
    turns, looks, is_unfinished = 0, 0, True
    while is_unfinished:
        queue.dispatch(100_000)
        assert queue.dispatcher.looks < 2 * dispatch.LOOKED_AT_MAX
        turns, looks, is_unfinished = turns + 1, looks + queue.dispatcher.looks, queue.dispatcher.is_unfinished
        assert turns < 20
    searched = len(run.buffer) // prefilter.LOOK_BYTES
    assert turns > 3
    assert searched < looks < searched + searched // 16
    queue.dispatch(100_000)
    assert queue.dispatcher.looks == 0


@given(
    st.lists(st.lists(st.sampled_from(["rare", "ra", "common"]), min_size=1, max_size=6), min_size=2, max_size=6),
    st.permutations(range(6)), st.sampled_from(TEXTS[:5]),
)  # fmt: skip
def test_segments_of_one_buffer_are_searched_in_any_order(kinds: list[list[str]], order: list[int], text: str) -> None:
    runs = runs_of([message({"kind": kind}, priority=place % 2) for place, some in enumerate(kinds) for kind in some])
    search = Prefilter(needles_of(compile_selector(text).required))
    for place in (each for each in order if each < len(runs)):
        run = runs[place]
        assert wanted(text, run) <= set(looked_at(search, Segment(run, 0, run.count, 0)))


@pytest.mark.parametrize("is_browser", [False, True])
def test_what_a_backlog_costs_of_which_little_is_wanted(is_browser: bool) -> None:
    kinds = ["rare" if number % 100 == 0 else "common" for number in range(3000)]
    queue, consumer = backlog(kinds), taker("kind = 'rare'", 1000, is_browser=is_browser)
    queue.join(consumer)
    counted = Bytecodes()
    counted.of(lambda: queue.dispatch(100_000))
    while queue.dispatcher.is_unfinished:
        counted.of(lambda: queue.dispatch(100_000))
    assert taken([consumer]) == [list(range(1, 3001, 100))]
    assert counted.count < MESSAGE_BYTECODES_MAX * len(kinds)
