"""When somebody's time is over, and that it is not over while this process stood still; on both event loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from mqbroker.io.loop.judging_timer import LATE_S, JudgingTimer

from tests.unit.io.conftest import until

Runner = Callable[[Any], Any]
DELAY_S = 0.3


async def turns() -> None:
    """What is due now is called; no time passes but that of some turns of the loop."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_the_time_is_over_once(run: Runner) -> None:
    async def scenario() -> None:
        called: list[float] = []
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        JudgingTimer(0.05, lambda: called.append(loop.time() - began_s))
        await until(lambda: called)
        assert called[0] >= 0.04
        await asyncio.sleep(0.2)
        assert len(called) == 1

    run(scenario())


@pytest.mark.slow
def test_what_is_cancelled_does_not_come(run: Runner) -> None:
    async def scenario() -> None:
        called: list[int] = []
        early, late = JudgingTimer(0.02, lambda: called.append(1)), JudgingTimer(DELAY_S, lambda: called.append(2))
        late.cancel()
        await until(lambda: called)
        early.cancel()
        time.sleep(DELAY_S + LATE_S)
        await asyncio.sleep(2 * DELAY_S)
        assert called == [1]

    run(scenario())


@pytest.mark.slow
def test_who_stood_still_gives_the_time_back_once(run: Runner) -> None:
    async def scenario() -> None:
        called: list[int] = []
        JudgingTimer(DELAY_S, lambda: called.append(1))
        time.sleep(2 * DELAY_S)
        await turns()
        assert called == []
        time.sleep(2 * DELAY_S)
        await turns()
        assert called == [1]

    run(scenario())


@pytest.mark.slow
def test_no_more_than_it_had_is_given(run: Runner) -> None:
    async def scenario() -> None:
        called: list[int] = []
        JudgingTimer(1, lambda: called.append(1))
        time.sleep(4)
        await turns()
        assert called == []
        time.sleep(1.1)
        await turns()
        assert called == [1], "without a bound it would have three seconds"

    run(scenario())
