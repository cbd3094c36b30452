"""Decisions come true in the order in which they were made, and never before their append is committed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqbroker.core.address.decisions import Decisions

from tests.unit.wire.strategies import steady


def test_nothing_waits_where_nothing_is_outstanding() -> None:
    done: list[str] = []
    decisions = Decisions(0)
    decisions.wait_for_earlier(done.append, "now")
    assert done == ["now"]
    assert decisions.is_idle


def test_a_decision_waits_for_its_append_and_those_behind_it_too() -> None:
    done: list[str] = []
    decisions = Decisions(0)
    decisions.wait(done.append, "a")
    decisions.wait_for_earlier(done.append, "b")
    decisions.seal(5)
    decisions.wait_for_earlier(done.append, "c")
    decisions.release(4)
    assert (done, decisions.is_idle) == ([], False)
    assert [decisions.waits_behind(position) for position in (4, 5)] == [True, False]
    decisions.release(5)
    assert (done, decisions.is_idle, decisions.committed) == (["a", "b", "c"], True, 5)


def test_what_a_decision_decides_waits_for_its_own_append() -> None:
    done: list[str] = []
    decisions = Decisions(0)
    decisions.wait(lambda: decisions.wait(done.append, "later"))
    decisions.seal(1)
    decisions.release(1)
    assert (done, decisions.is_forming, decisions.waits_behind(1)) == ([], True, True)
    decisions.seal(2)
    decisions.release(2)
    assert done == ["later"]


def test_a_position_that_goes_back_changes_nothing() -> None:
    decisions = Decisions(7)
    decisions.release(3)
    assert decisions.committed == 7


@steady
@given(st.lists(st.sampled_from(["wait", "earlier", "seal", "sync"]), max_size=60))
def test_any_history(script: list[str]) -> None:
    decisions = Decisions(0)
    made: list[tuple[int, int]] = []  # number, position that it needs
    done: list[int] = []
    position = synced = 0
    for number, what in enumerate(script):
        if what == "wait":
            made.append((number, position + 1))
            decisions.wait(done.append, number)
        elif what == "earlier":
            needs = max([need for _, need in made if need > synced], default=synced)
            made.append((number, needs))
            decisions.wait_for_earlier(done.append, number)
        elif what == "seal" and decisions.is_forming:
            position += 1
            decisions.seal(position)
        elif what == "sync" and position:
            synced = (synced + position + 1) // 2
            decisions.release(synced)
        assert done == [each for each, need in made if need <= synced]
