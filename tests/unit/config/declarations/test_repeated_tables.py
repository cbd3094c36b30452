"""Repeated tables: what is none is passed over, names are there once, references lead somewhere."""

from __future__ import annotations

import pytest
from mqbroker.config.declarations.repeated_tables import missing, names_twice, rows_of

ROWS = rows_of([{"name": "a"}, 5, {"name": "b"}, {"name": "a"}, {"name": 7}])


@pytest.mark.parametrize("tables", [None, {}, "x", 5, [1, "x", []]])
def test_what_is_no_table_is_passed_over(tables: object) -> None:
    assert rows_of(tables) == []


def test_rows_keep_their_numbers() -> None:
    assert [number for number, _ in ROWS] == [0, 2, 3, 4]


def test_names_are_there_once() -> None:
    assert [str(fault) for fault in names_twice("diverts", ROWS, None)] == [
        "diverts.3.name: a is declared twice, first as diverts.0; rename one of them"
    ]
    assert list(names_twice("diverts", ROWS, "a")) == []


@pytest.mark.parametrize(("wanted", "unknown"), [("a", None), (5, None), ("c", "c"), ("c", "b")])
def test_references_of_which_nothing_is_said(wanted: object, unknown: object) -> None:
    assert list(missing("x", "discovery-groups", wanted, ROWS, unknown)) == []


def test_a_reference_that_leads_nowhere() -> None:
    (fault,) = missing("x.ref", "discovery-groups", "c", ROWS, None)
    assert str(fault) == (
        "x.ref: there is no discovery group c; declare it as [[discovery-groups]] (there are: a, b, a, 7)"
    )
