"""The demo's own check has to notice what it says cannot happen."""

from __future__ import annotations

import pytest

from demo.ledger import Ledger


def bodies(first: int, last: int) -> list[str]:
    return [f"order {number}" for number in range(first, last + 1)]


def test_each_once() -> None:
    ledger = Ledger(10)
    assert ledger.take(bodies(1, 4)) == [1, 2, 3, 4]
    assert ledger.faults(4) == []
    ledger.take(bodies(5, 10))
    assert ledger.faults(10) == []
    assert ledger.arrived == 10


def test_a_lost_one_is_named() -> None:
    ledger = Ledger(10)
    ledger.take([*bodies(1, 6), *bodies(8, 10)])
    assert ledger.faults(10) == ["9 different messages arrived instead of 10; the first that is missing is order 7"]


def test_a_second_delivery_is_named() -> None:
    ledger = Ledger(10)
    ledger.take(bodies(1, 10))
    ledger.take(["order 3"])
    assert ledger.faults(10) == ["1 arrived more than once, the first of them order 3"]


@pytest.mark.parametrize("body", ["order 0", "order 11", "order x", "order ", "", "other 3", "order ²"])
def test_what_nobody_sent_is_named(body: str) -> None:
    ledger = Ledger(10)
    assert ledger.take([body]) == []
    assert ledger.faults(0) == [f"1 are none of those that were sent, such as {body!r}"]


def test_half_before_the_rest() -> None:
    ledger = Ledger(10)
    ledger.take(bodies(1, 6))
    assert ledger.faults(5) == ["6 different messages arrived instead of 5"]


def test_others_begin_otherwise() -> None:
    ledger = Ledger(3, "parcel ")
    assert ledger.take(["parcel 1", "parcel 3"]) == [1, 3]
    assert ledger.faults(3) == ["2 different messages arrived instead of 3; the first that is missing is parcel 2"]
