"""Which formats of journal files all nodes read: one that says nothing, and one that nobody knows, read the first."""

from __future__ import annotations

import pytest
from mqbroker.cluster.journal_formats import UNSAID, read_by, read_by_all
from mqbroker.cluster.notices import Member, Version

from tests.unit.cluster.neighbours import A


def member(*formats: int) -> Member:
    return Member(A, "a" * 32, "mq1", (), Version(1, 0), journal_formats=formats)


def test_who_says_nothing_reads_the_first() -> None:
    assert (read_by(member()), read_by(member(1, 2)), read_by(member(2))) == (UNSAID, (1, 2), (2,))


@pytest.mark.parametrize(
    ("said", "is_anybody_unknown", "expected"),
    [
        ([(1, 2), (1, 2)], False, (1, 2)),
        ([(1, 2), (1, 2)], True, (1,)),
        ([(1, 2), ()], False, (1,)),
        ([(1, 2), (2, 3)], False, (2,)),
        ([(2,), ()], False, ()),
        ([(2,)], True, ()),
        ([], False, ()),
    ],
)
def test_what_all_read_is_what_each_reads(
    said: list[tuple[int, ...]], is_anybody_unknown: bool, expected: tuple[int, ...]
) -> None:
    found = read_by_all([member(*each) for each in said], is_anybody_unknown=is_anybody_unknown)
    assert found == expected
