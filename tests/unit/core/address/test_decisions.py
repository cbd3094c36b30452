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


def test_an_append_for_which_nothing_waits_is_waited_for_too() -> None:
    done: list[str] = []
    decisions = Decisions(0)
    decisions.seal(1)
    decisions.wait_for_earlier(done.append, "a")
    decisions.wait_for_earlier(done.append, "b")
    assert (done, decisions.is_idle) == ([], False)
    decisions.release(1)
    assert (done, decisions.is_idle) == (["a", "b"], True)
    decisions.wait_for_earlier(done.append, "c")
    assert done == ["a", "b", "c"]


def test_what_keeps_to_order_alone_does_not_wait_for_it() -> None:
    done: list[str] = []
    decisions = Decisions(0)
    decisions.seal(1)
    decisions.wait_in_turn(done.append, "a")
    assert done == ["a"]
    decisions.wait(done.append, "b")
    decisions.wait_in_turn(done.append, "c")
    decisions.seal(2)
    decisions.seal(3)
    decisions.wait_in_turn(done.append, "d")
    decisions.wait_for_earlier(done.append, "e")
    decisions.release(2)
    assert done == ["a", "b", "c", "d"]
    decisions.release(3)
    assert done[-1] == "e"


def test_what_is_decided_while_others_come_true_is_behind_those_that_wait() -> None:
    done: list[str] = []
    decisions = Decisions(0)
    decisions.wait(lambda: decisions.wait_for_earlier(done.append, "last"))
    decisions.seal(1)
    decisions.wait(done.append, "first")
    decisions.seal(2)
    decisions.release(2)
    assert done == ["first", "last"]


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
@given(st.lists(st.sampled_from(["wait", "earlier", "turn", "seal", "sync"]), max_size=60))
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
            made.append((number, position + decisions.is_forming))
            decisions.wait_for_earlier(done.append, number)
        elif what == "turn":
            made.append((number, max([need for _, need in made if need > synced], default=synced)))
            decisions.wait_in_turn(done.append, number)
        elif what == "seal":
            position += 1
            decisions.seal(position)
        elif what == "sync" and position:
            synced = (synced + position + 1) // 2
            decisions.release(synced)
        assert done == [each for each, need in made if need <= synced]
