"""How long the loop looks for what comes next before it sleeps, and when it does so at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from mqbroker.base.time import NS_PER_US
from mqbroker.io.loop import busy_poll
from mqbroker.io.loop.busy_poll import KEPT_NS, PAUSE_LIMITS_MAX, REST_NS, BusyPoll

LIMIT_US = 100
LOOK_US = 5
SHORT_US, LONG_US = 30, 5_000


class Rounds:
    """A loop whose rounds take 5 µs each, and what it was asked to call in the next one."""

    def __init__(self, limit_us: int = LIMIT_US) -> None:
        self.now_us = 1_000
        self.asked: list[Callable[[], None]] = []
        self.looks = 0
        self.poll = BusyPoll(cast(Any, self), limit_us, lambda: self.now_us * NS_PER_US)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.asked.append(callback)

    def pause(self, us: int) -> int:
        """A turn ends and the next one begins so much later; how often the loop looked in between."""
        self.poll.turn_ends()
        end_us, looks = self.now_us + us, 0
        while self.asked and self.now_us < end_us:
            asked, self.asked = self.asked, []
            self.now_us += LOOK_US
            for callback in asked:
                callback()
            looks += bool(self.asked)
        self.now_us = max(self.now_us, end_us)
        self.poll.turn_begins(self.now_us * NS_PER_US)
        return looks


def warm(rounds: Rounds) -> None:
    """Pauses were short of late."""
    for _ in range(50):
        rounds.pause(SHORT_US)


def test_pauses_have_to_be_short_for_a_while_before_the_loop_looks_through_them() -> None:
    rounds = Rounds()
    looks = [rounds.pause(SHORT_US) for _ in range(30)]
    assert looks[:8] == [0] * 8
    assert looks[-1] == SHORT_US // LOOK_US
    assert looks == sorted(looks)


def test_it_looks_no_longer_than_the_limit_and_then_sleeps() -> None:
    rounds = Rounds()
    warm(rounds)
    assert rounds.pause(LONG_US) == LIMIT_US // LOOK_US - 1
    assert rounds.asked == []


def test_one_long_pause_among_short_ones_changes_nothing_and_some_in_a_row_let_it_sleep_at_once() -> None:
    rounds = Rounds()
    warm(rounds)
    rounds.pause(10**9)
    assert rounds.pause(SHORT_US) > 0
    for _ in range(PAUSE_LIMITS_MAX):
        rounds.pause(LONG_US)
    assert [rounds.pause(LONG_US) for _ in range(100)] == [0] * 100


def test_who_is_seldom_asked_pays_for_no_more_than_a_few_looks() -> None:
    rounds = Rounds()
    assert sum(rounds.pause(LONG_US) for _ in range(1_000)) == 0
    warm(rounds)
    assert sum(rounds.pause(LONG_US) for _ in range(1_000)) <= PAUSE_LIMITS_MAX * LIMIT_US // LOOK_US


def test_a_turn_that_begins_ends_the_look_and_there_is_one_at_a_time() -> None:
    rounds = Rounds()
    warm(rounds)
    for _ in range(10):
        rounds.poll.turn_ends()
        assert len(rounds.asked) == 1
        rounds.poll.turn_begins(rounds.now_us * NS_PER_US)
    (look,) = rounds.asked
    rounds.asked = []
    look()
    assert rounds.asked == []


def test_a_turn_that_makes_two_steps_is_no_pause_between_them() -> None:
    """What was synced within a turn is answered by another step of it."""
    rounds = Rounds()
    for _ in range(50):
        rounds.pause(SHORT_US)
        rounds.poll.turn_begins(rounds.now_us * NS_PER_US)
    assert rounds.pause(SHORT_US) == SHORT_US // LOOK_US


@pytest.mark.parametrize(("kept_us", "has_rest"), [(KEPT_NS // NS_PER_US, True), (KEPT_NS // NS_PER_US - 1, False)])
def test_the_loop_sleeps_at_once_for_a_second_after_somebody_has_kept_the_processor(
    monkeypatch: pytest.MonkeyPatch, kept_us: int, has_rest: bool
) -> None:
    """Other work, of the lowest priority too, has it until the next tick from who gives way, and not from who wakes."""
    rounds = Rounds(10 * LIMIT_US)
    warm(rounds)

    def give_way() -> None:
        rounds.now_us += kept_us

    with monkeypatch.context() as other_work:
        other_work.setattr(busy_poll, "_sched_yield", give_way)
        rounds.pause(SHORT_US)
    end_us = rounds.now_us + REST_NS // NS_PER_US - 1_000
    looks = 0
    while rounds.now_us < end_us:
        looks += rounds.pause(SHORT_US)
    assert (looks == 0) == has_rest
    rounds.now_us += 2_000
    assert rounds.pause(SHORT_US) == SHORT_US // LOOK_US


@pytest.mark.option("node.busy-poll-us")
@pytest.mark.parametrize("us", [SHORT_US, LONG_US])
def test_a_limit_of_0_is_never_looked_through(us: int) -> None:
    rounds = Rounds(0)
    assert sum(rounds.pause(us) for _ in range(200)) == 0
