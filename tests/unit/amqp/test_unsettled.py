"""Ranges of unsettled deliveries against a dictionary of single ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqbroker.amqp import unsettled
from mqbroker.amqp.settling import Portion
from mqbroker.amqp.unsettled import Taken, Unsettled

from tests.support.bytecodes import Bytecodes
from tests.unit.wire.strategies import steady

FEW = Portion(2, 3, 0, 0)
Single = tuple[int, str, str, int]  # delivery id, link, token, index within the token

operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 9), st.sampled_from("abc"), st.integers(0, 2)),
        st.tuples(st.just("take"), st.integers(0, 60), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("back"), st.integers(0, 60), st.integers(0, 12), st.integers(0, 1)),
        st.tuples(st.just("head"), st.integers(1, 9), st.just(0), st.just(0)),
        st.tuples(st.just("piece"), st.integers(0, 60), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("some"), st.sampled_from("abc"), st.just(0), st.just(0)),
        st.tuples(st.just("link"), st.sampled_from("abc"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def singles(taken: list[Taken]) -> list[tuple[str, str, int]]:
    return [(each.link, each.token, each.skip + n) for each in taken for n in range(each.n)]


def play(script: list[tuple[str, int | str, int | str, int]]) -> None:
    real = Unsettled()
    model: dict[int, tuple[str, str, int]] = {}
    next_id = tokens = 0
    for what, first, second, third in script:
        if what == "add":
            assert isinstance(first, int)
            next_id += third  # gaps: deliveries that were sent settled
            tokens += 1
            real.add(next_id, first, second, f"t{tokens}")
            model |= {next_id + n: (str(second), f"t{tokens}", n) for n in range(first)}
            next_id += first
            continue
        if what == "back":
            assert isinstance(first, int)
            assert isinstance(second, int)
            numbered = real.take_numbered(first, first + second)
            ids = [key + n for key, each in numbered for n in range(each.n)]
            assert ids == [key for key in sorted(model) if first <= key <= first + second]
            for key, each in numbered[:: -1 if third else 1]:
                real.put_back(key, each)
            wanted, got = [], []
        elif what == "some":
            own = [key for key, single in model.items() if single[0] == first]
            before = [each.n for each in real if each.link == first]
            is_more = real.has_more_than(FEW, first)
            assert is_more is (len(before) > FEW.entries_max or sum(before) > FEW.messages_max)
            got = real.take_some(first, FEW)
            assert len(got) <= FEW.entries_max
            assert min(len(own), 1) <= sum(each.n for each in got) <= FEW.messages_max
            assert is_more or sum(each.n for each in got) == len(own)
            keys = {single: key for key, single in model.items()}
            wanted = [keys[single] for single in singles(got)]
            got.sort(key=lambda each: keys[each.link, each.token, each.skip])
        elif what == "link":
            wanted = [key for key, single in model.items() if single[0] == first]
            got = real.take_link(first)
        else:
            assert isinstance(first, int)
            assert isinstance(second, int)
            low = min(model, default=0) if what == "head" else first
            high = low + first - 1 if what == "head" else low + second
            if what == "piece":
                has_any = any(low <= key <= high for key in model)
                assert real.has_any(low, high) is has_any
                whole, high = high, real.piece_of(low, high, FEW)
                count = sum(low <= key <= high for key in model)
                assert (high == whole) or 0 < count <= FEW.messages_max
                assert count <= FEW.messages_max
            wanted = [key for key in model if low <= key <= high]
            got = real.take(low, high)
        assert singles(got) == [model.pop(key) for key in sorted(wanted)]
        assert real.count == len(model)
        assert singles(list(real)) == [model[key] for key in sorted(model)]


@steady
@given(operations)
def test_ranges_say_what_single_deliveries_would(script: list[tuple[str, int | str, int | str, int]]) -> None:
    play(script)


@settings(steady, max_examples=30)
@given(operations)
def test_the_same_while_the_head_is_cut_off_early(script: list[tuple[str, int | str, int | str, int]]) -> None:
    before = unsettled.COMPACT_AT
    unsettled.COMPACT_AT = 2
    try:
        play(script)
    finally:
        unsettled.COMPACT_AT = before


def test_memory_follows_what_is_unsettled() -> None:
    real = Unsettled()
    for number in range(100_000):
        real.add(number, 1, "a", number)
        if number >= 10:
            assert real.take(number - 10, number - 10) == [Taken("a", number - 10, 0, 1)]
    assert real.count == 10
    assert len(real._firsts) < 3 * unsettled.COMPACT_AT


def test_ids_that_are_not_there_are_passed_over() -> None:
    real = Unsettled()
    assert real.take(0, 1 << 32) == []
    real.add(5, 3, "a", "t")
    assert real.take(0, 4) == []
    assert real.take(8, 100) == []
    assert singles(real.take(-5, 6)) == [("a", "t", 0), ("a", "t", 1)]
    assert real.take_link("b") == []
    assert singles(real.take_link("a")) == [("a", "t", 2)]


def work_of_one_among(others: int, own: int) -> int:
    """Bytecodes to take a link's own out of so many more."""
    real, work = Unsettled(), Bytecodes()
    for first in range(others + own):
        is_own = first % (others // own) == 0 and first // (others // own) < own
        real.add(first, 1, "own" if is_own else f"other {first % 7}", f"t{first}")
    assert len(work.of(lambda: real.take_link("own"))) == own
    assert real.count == others
    assert work.of(lambda: real.take_link("nobody")) == []
    return work.count


@pytest.mark.parametrize("own", [1, 20])
def test_what_a_link_takes_with_it_costs_no_more_where_others_have_much(own: int) -> None:
    assert work_of_one_among(4000, own) < 1.2 * work_of_one_among(400, own)


@pytest.mark.slow
def test_where_nearly_all_is_a_links_own_each_costs_little() -> None:
    real, work = Unsettled(), Bytecodes()
    for first in range(4000):
        real.add(first, 1, "own" if first % 10 else "other", f"t{first}")
    taken = work.of(lambda: real.take_link("own"))
    assert [each.token for each in taken] == [f"t{first}" for first in range(4000) if first % 10]
    assert work.count < 60 * 4000


def test_entries_that_begin_within_a_range_are_told_and_stay() -> None:
    kept = Unsettled()
    for number in range(4):
        kept.add(number * 10, 3, "a", f"t{number}")
    kept.take(0, 2)
    found = list(kept.begun_in(10, 22))
    assert [(first, entry.token, entry.n) for first, entry in found] == [(10, "t1", 3), (20, "t2", 3)]
    assert list(kept.begun_in(11, 19)) == []
    assert list(kept.begun_in(0, 9)) == []
    assert kept.count == 9
