"""Digests of message ids: equal for equal sets in any order, and other ones for sets that differ."""

from __future__ import annotations

import random

import pytest
from mqbroker.core.cluster.id_digest import NO_IDS, PACKED_SIZE_BYTES, IdDigest


def digest_of(ids: list[int]) -> IdDigest:
    found = NO_IDS
    for each in ids:
        found = found.plus(each, 1)
    return found


@pytest.mark.parametrize("first", [1, 7, 2**40, 2**63 - 100])
def test_a_range_is_what_its_ids_are_in_any_order(first: int) -> None:
    ids = list(range(first, first + 100))
    random.Random(first).shuffle(ids)
    assert digest_of(ids) == NO_IDS.plus(first, 100)
    assert NO_IDS.plus(first, 30).plus(first + 30, 70) == NO_IDS.plus(first, 100)


def test_one_that_is_missing_or_twice_or_another_one_is_seen() -> None:
    whole = digest_of([1, 2, 3, 4])
    others = ([1, 2, 3], [1, 2, 3, 4, 4], [1, 2, 3, 5], [0, 3, 3, 4], [2, 2, 2, 4])
    assert all(digest_of(each) != whole for each in others)


def test_what_came_since_and_the_way_over_a_link() -> None:
    before = NO_IDS.plus(2**63, 5)
    after = before.plus(10, 3)
    assert after.since(before) == NO_IDS.plus(10, 3)
    assert len(after.packed()) == PACKED_SIZE_BYTES
    assert IdDigest.of(after.packed()) == after
    assert IdDigest(*after.numbers) == after
    assert str(NO_IDS) == "0:0000000000000000:0000000000000000"
