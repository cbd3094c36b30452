"""Deadlines that come late: who judges others by what came in time is asked when there was time to read."""

from __future__ import annotations

import pytest
from mqbroker.node.values.timers import LATE_NS, READ_NS, Timers


class Owner:
    """Has a deadline; `fired_ns` is when it was told of it."""

    def __init__(self, due_ns: int, *, judges_others: bool) -> None:
        self.judges_others = judges_others
        self.due_ns = due_ns
        self.scheduled_ns = 0
        self.fired_ns: list[int] = []

    def on_time(self, now_ns: int) -> None:
        self.fired_ns.append(now_ns)
        self.due_ns = 0


DUE_NS = 1_000


@pytest.mark.parametrize(("judges_others", "late_ns", "waits"), [
    (True, LATE_NS, True), (True, LATE_NS - 1, False), (False, 100 * LATE_NS, False),
])  # fmt: skip
def test_who_judges_others_is_asked_later_where_it_is_late_for_that(
    judges_others: bool, late_ns: int, waits: bool
) -> None:
    timers, owner = Timers(), Owner(DUE_NS, judges_others=judges_others)
    timers.add(owner)
    now_ns = DUE_NS + late_ns
    timers.fire(now_ns)
    assert owner.fired_ns == ([] if waits else [now_ns])
    assert timers.wake_at_ns == (now_ns + READ_NS if waits else None)


def test_it_waits_once_for_a_deadline_however_late_it_is_then() -> None:
    timers, owner = Timers(), Owner(DUE_NS, judges_others=True)
    timers.add(owner)
    first_ns = DUE_NS + LATE_NS
    timers.fire(first_ns)
    second_ns = first_ns + READ_NS + 10 * LATE_NS
    timers.fire(second_ns)
    assert owner.fired_ns == [second_ns]
    owner.due_ns = second_ns + 1
    timers.add(owner)
    timers.fire(second_ns + 1 + LATE_NS)
    assert owner.fired_ns == [second_ns], "the next deadline is another one"


def test_what_moved_meanwhile_does_not_fire_and_has_its_time_once_more() -> None:
    timers, owner = Timers(), Owner(DUE_NS, judges_others=True)
    timers.add(owner)
    first_ns = DUE_NS + LATE_NS
    timers.fire(first_ns)
    owner.due_ns = first_ns + 1_000 * READ_NS  # it was heard
    timers.fire(first_ns + READ_NS)
    assert owner.fired_ns == []
    assert timers.wake_at_ns == owner.due_ns
    timers.fire(owner.due_ns + LATE_NS)
    assert owner.fired_ns == []


def test_who_has_nothing_to_judge_any_more_is_not_looked_at_again() -> None:
    timers, owner = Timers(), Owner(DUE_NS, judges_others=True)
    timers.add(owner)
    owner.due_ns = 0
    timers.fire(DUE_NS + LATE_NS)
    assert timers.wake_at_ns is None
