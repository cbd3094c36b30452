"""The range map against a plain dictionary."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from mqbroker.journal.ranges import RangeMap, merge, subtract

END = 40
span = st.tuples(st.integers(0, END), st.integers(0, END)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(st.tuples(span, st.sampled_from(["a", "b", None])), max_size=30))
def test_assign_is_the_same_as_id_by_id(calls: list[tuple[tuple[int, int], str | None]]) -> None:
    ranges: RangeMap[str] = RangeMap()
    truth: dict[int, str | None] = {}
    for (first, end), owner in calls:
        ranges.assign(first, end, owner)
        truth.update(dict.fromkeys(range(first, end), owner))
    assert [ranges.at(number) for number in range(END + 5)] == [truth.get(number) for number in range(END + 5)]
    pieces = list(ranges.pieces(0, END + 5))
    assert [owner for first, end, owner in pieces for _ in range(first, end)] == [truth.get(n) for n in range(END + 5)]
    assert all(left[2] is not right[2] for left, right in itertools.pairwise(pieces)), "pieces are joined"


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab")), max_size=30))
def test_append_reaches_to_infinity(calls: list[tuple[int, str]]) -> None:
    ranges: RangeMap[str] = RangeMap()
    truth: dict[int, str] = {}
    first = 0
    for gap, owner in calls:
        first += gap
        ranges.append(first, owner)
        truth.update(dict.fromkeys(range(first, 200), owner))
    assert [ranges.at(number) for number in range(200)] == [truth.get(number) for number in range(200)]
    for owner in "ab":
        owned = [n for f, e in ranges.owned_by(owner) for n in range(f, 200 if e is None else e)]
        assert owned == [number for number in range(200) if truth.get(number) == owner]


@given(st.lists(span, max_size=8), span)
def test_subtract(spans: list[tuple[int, int]], hole: tuple[int, int]) -> None:
    ids = sorted({number for first, end in spans for number in range(first, end)})
    ranges = [(first, end - first) for first, end in zip(*[iter(merge_ids(ids))] * 2, strict=True)]
    left = subtract(ranges, *hole)
    assert [first + i for first, n in left for i in range(n)] == [n for n in ids if not hole[0] <= n < hole[1]]


def merge_ids(ids: list[int]) -> list[int]:
    return merge([bound for number in ids for bound in (number, number + 1)])


@given(st.sets(st.integers(0, 60)))
def test_merge(ids: set[int]) -> None:
    merged = merge_ids(sorted(ids, key=lambda number: number * 7919 % 61))
    assert [n for first, end in zip(merged[::2], merged[1::2], strict=True) for n in range(first, end)] == sorted(ids)
    assert all(merged[at] < merged[at + 1] for at in range(len(merged) - 1))
