"""A set of ids in stretches is a set of ids."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from mqbroker.core.queue.id_ranges import IdRanges

ID_MAX = 60


def ids_of(pieces: list[tuple[int, int]]) -> list[int]:
    return [each for first, end in pieces for each in range(first, end)]


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_a_set(seed: int) -> None:
    rng = random.Random(seed)
    ranges, ids = IdRanges(), set[int]()
    for _ in range(300):
        first = rng.randrange(ID_MAX)
        end = first + rng.randrange(1, 12)
        asked = range(first, end)
        assert ids_of(ranges.missing(first, end)) == [each for each in asked if each not in ids]
        assert ids_of(ranges.within(first, end)) == [each for each in asked if each in ids]
        assert ranges.first_within(first, end) == min((each for each in asked if each in ids), default=end)
        if rng.random() < 0.5:
            ranges.add(first, end)
            ids.update(asked)
        else:
            ranges.remove(first, end)
            ids.difference_update(asked)
        pieces = list(ranges)
        assert ids_of(pieces) == sorted(ids)
        assert all(before[1] < after[0] for before, after in pairwise(pieces)), "joined where they touch"
        assert (ranges.count, len(ranges)) == (len(ids), len(pieces))


def test_what_comes_in_order_is_one_stretch() -> None:
    ranges = IdRanges()
    for first in range(0, 1000, 10):
        ranges.add(first, first + 10)
    assert list(ranges) == [(0, 1000)]
