"""Which messages of another node have arrived."""

from __future__ import annotations

import random

from mqbroker.core import arrivals
from mqbroker.core.arrivals import Arrivals, Ranges

from tests.support.stage import Stage


def test_only_what_has_not_arrived_is_fresh() -> None:
    ranges = Ranges()
    ranges.add(1, 10, 5)
    ranges.add(2, 20, 5)
    assert ranges.fresh(25, 3) == [(0, 3)]
    assert ranges.fresh(10, 5) == []
    assert ranges.fresh(8, 20) == [(0, 2), (7, 5), (17, 3)]
    assert ranges.fresh(12, 8) == [(3, 5)]


def test_fresh_agrees_with_a_set_of_ids() -> None:
    rng = random.Random(7)
    ranges, seen = Ranges(), set[int]()
    for number in range(1, 200):
        first, count = rng.randrange(500), rng.randrange(1, 20)
        wanted = [each for each in range(first, first + count) if each not in seen]
        pieces = ranges.fresh(first, count)
        assert [each for index, n in pieces for each in range(first + index, first + index + n)] == wanted
        for index, n in pieces:
            ranges.add(number * 100 + index, first + index, n)
        seen.update(wanted)


def test_what_is_remembered_of_a_source_is_bounded() -> None:
    ranges = Ranges()
    for number in range(1, 30_001):
        ranges.add(number, number * 2, 1)
    assert ranges.count == arrivals.IDS_MAX
    assert ranges.oldest == 30_000 - arrivals.IDS_MAX + 1
    assert ranges.fresh(2 * ranges.oldest, 1) == []


def test_sources_are_bounded_too() -> None:
    known = Arrivals(Stage().broker.store)
    for number in range(arrivals.SOURCES_MAX + 5):
        known._known(f"source-{number}")
    assert len(known._ranges) == arrivals.SOURCES_MAX
    assert "source-0" not in known._ranges
