"""What may be sent again is among the last that went out, as many as the other node knows at least."""

from __future__ import annotations

import random

import pytest
from mqbroker.core.cluster import arrivals
from mqbroker.core.cluster.arrivals import ArrivedRanges
from mqbroker.core.queue import unanswered_forwards
from mqbroker.core.queue.backlog import Backlog, Segment
from mqbroker.core.queue.unanswered_forwards import HandedOver
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

WINDOW = unanswered_forwards.WINDOW


def test_what_is_not_settled_holds_back_what_is_new() -> None:
    handed = HandedOver()
    handed.sent(1, WINDOW)
    assert handed.room == 0
    assert handed.fitting(WINDOW + 1, 5) == 0
    assert handed.fitting(WINDOW - 3, 10) == 4, "what may be sent again always goes"
    handed.settled(2, 11)
    assert handed.room == 0, "the oldest counts"
    handed.settled(1, 2)
    assert (handed.room, handed.fitting(WINDOW + 1, 500)) == (10, 10)


def test_everything_settled_is_all_the_room() -> None:
    handed = HandedOver()
    for first in range(1, 100_000, 1000):
        handed.sent(first, 1000)
        handed.settled(first, first + 1000)
    assert handed.room == WINDOW == arrivals.IDS_MAX // 2


@pytest.mark.parametrize("seed", range(10))
def test_what_is_sent_again_is_known_whatever_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ends with a small memory, and a link that loses messages and answers, in all orders."""
    monkeypatch.setattr(arrivals, "IDS_MAX", 20)
    monkeypatch.setattr(unanswered_forwards, "WINDOW", 10)
    rng = random.Random(seed)
    handed, there, taken = HandedOver(), ArrivedRanges(), dict[int, int]()
    waiting = rng.sample(range(1, 500), 499)  # as priorities would have it
    for number in range(1, 10_000):
        again = [each for first, end in handed.ids for each in range(first, end)]
        message = rng.choice(again) if again and (rng.random() < 0.3 or not waiting) else waiting[-1] if waiting else 0
        if not message:
            break
        if message in waiting:
            if not handed.fitting(message, 1):
                continue
            waiting.pop()
        handed.sent(message, 1)
        if rng.random() < 0.8:  # it arrives
            for _ in there.fresh(message, 1):
                taken[message] = taken.get(message, 0) + 1
                there.add(number, message, 1)
            if rng.random() < 0.6:  # and so does the answer
                handed.settled(message, message + 1)
    assert not handed.ids.count
    assert taken == dict.fromkeys(range(1, 500), 1)


def test_what_the_other_node_may_have_is_so_until_it_answers() -> None:
    handed = HandedOver()
    handed.sent(10, 5)
    handed.sent(20, 5)
    assert (handed.free_count(5, 10), handed.free_count(10, 3), handed.free_count(15, 5)) == (5, 0, 5)
    assert (handed.awaited_count(12, 10), handed.awaited_count(12, 2), handed.awaited_count(16, 2)) == (3, 2, 0)
    handed.settled(10, 12)
    handed.refused(13, 15)
    assert [each for each in range(10, 25) if not handed.free_count(each, 1)] == [12, *range(20, 25)]
    assert list(handed.ids) == [(12, 13), (20, 25)], "what it refused is as if it had not gone out"
    handed.given_up()
    assert (handed.free_count(1, 100), list(handed.ids)) == (100, [(12, 13), (20, 25)])
    handed.sent(22, 1)
    assert [each for each in range(10, 30) if not handed.free_count(each, 1)] == [22]


def test_what_it_refused_and_was_sent_again_is_awaited_again() -> None:
    """What was answered before says nothing of it any more."""
    handed = HandedOver()
    handed.begun_before(12)
    for first in (10, 20):
        handed.sent(first, 2)
        handed.answered.add(first, first + 2)
        handed.refused(first, first + 2)
        assert handed.free_count(first, 2) == 2
        handed.sent(first, 2)
        for taken in handed.take_answered():
            handed.settled(*taken)
        assert handed.awaited_count(first, 2) == 2
        handed.settled(first, first + 1)
        assert list(handed.ids)[-1] == (first + 1, first + 2)


def test_before_the_first_id_there_is_nothing_to_wait_for() -> None:
    handed = HandedOver()
    handed.begun_before(1)
    assert handed.free_count(1, 10) == 10
    handed.begun_before(8)
    assert (handed.free_count(7, 1), handed.free_count(8, 1), handed.room) == (0, 1, WINDOW)
    handed.refused(2, 4)
    assert (handed.awaited_count(1, 9), handed.free_count(2, 9), handed.awaited_count(4, 9)) == (1, 2, 4)
    handed.begun_before(8)
    assert handed.awaited_count(1, 9) == 7, "nobody knows what has become of them since"


def backlog_of(*ids: int) -> Backlog:
    backlog = Backlog()
    for first in ids:
        run = single(build_message(b"x"))
        run.first_id = first
        backlog.add(Segment(run, 0, 1, 0))
    return backlog


def test_what_is_back_in_the_queue_without_an_answer_is_counted() -> None:
    handed = HandedOver()
    handed.sent(3, 4)
    assert handed.awaited_in(backlog_of(1, 2)) == 0
    assert handed.awaited_in(backlog_of(1, 2, 3, 5, 7)) == 2
    handed.refused(5, 6)
    assert handed.awaited_in(backlog_of(1, 2, 3, 5, 7)) == 1
    handed.given_up()
    assert handed.awaited_in(backlog_of(3, 5, 7)) == 0


def test_of_what_a_process_before_had_nobody_knows_which_went() -> None:
    handed = HandedOver()
    handed.begun_before(10)
    assert handed.awaited_in(backlog_of(11, 12)) == 0
    assert handed.awaited_in(backlog_of(9, 11, 12)) == 3
    assert (handed.is_old(9), handed.is_old(10)) == (True, False)
    handed.sent(9, 1)
    handed.refused(9, 10)
    assert handed.awaited_in(backlog_of(9, 11, 12)) == 0
