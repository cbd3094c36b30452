"""Who sends more frames than its listener allows is not read for as long as they would have taken."""

from __future__ import annotations

import pytest
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.values import inputs as given
from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import Disposition

from tests.support import frames
from tests.support.floods import FLOODS
from tests.support.stage import Stage, options_with
from tests.unit.node.test_bystander_work import GO

PER_SECOND = 100


def opened(per_second: int = PER_SECOND) -> tuple[Stage, int]:
    """A connection whose bound is all there again."""
    stage = Stage(options_with({"frames_per_second_max": per_second}))
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender("orders"))
    stage.now_ns += 1000 * NS_PER_MS
    return stage, conn


@pytest.mark.option("listeners.frames-per-second-max")
@pytest.mark.parametrize("seconds", [1, 3])
def test_who_sends_too_much_is_not_read_until_that_is_made_up_for(seconds: int) -> None:
    stage, conn = opened()
    stage.talk(conn, EMPTY_FRAME * PER_SECOND)
    assert not stage.paused.get(conn), "a second's worth at once is allowed"
    stage.talk(conn, EMPTY_FRAME * PER_SECOND * seconds)
    assert stage.paused[conn]
    stage.wait(1000 * seconds - 20)
    assert stage.paused[conn]
    stage.wait(40)
    assert not stage.paused[conn]
    assert conn not in stage.closed


def test_nothing_of_it_is_lost() -> None:
    stage, conn = opened()
    messages = b"".join(frames.transfer(each) for each in range(5 * PER_SECOND))
    answer = stage.talk(conn, messages)
    assert sum(each.last - each.first + 1 for each in frames.of_kind(answer, Disposition)) == 5 * PER_SECOND
    assert stage.paused[conn]


def test_a_rate_within_the_bound_goes_on_for_ever() -> None:
    stage, conn = opened()
    for _ in range(50):
        stage.talk(conn, EMPTY_FRAME * (PER_SECOND // 10))
        stage.wait(100)
        assert not stage.paused.get(conn)


def test_a_pause_is_no_silence_and_other_reasons_for_it_hold() -> None:
    stage, conn = opened()
    stage.talk(conn, EMPTY_FRAME * PER_SECOND * 100)
    stage.wait(90_000)  # longer than the idle timeout
    assert stage.paused[conn]
    assert conn not in stage.closed
    stage.give(given.UnsyncedBytes(1 << 40))
    stage.step()
    stage.wait(20_000)
    assert stage.paused[conn], "the disk is behind"
    stage.give(given.UnsyncedBytes(0))
    stage.step()
    assert not stage.paused[conn]


def test_without_the_option_any_rate_is_taken_in() -> None:
    stage, conn = opened(per_second=0)
    stage.talk(conn, FLOODS["empty frames"].bytes_of(50_000))
    stage.wait(100)
    assert not stage.paused.get(conn)
