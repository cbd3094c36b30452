"""Looks for what comes next for a moment before the loop sleeps, as long as it comes that soon.

Who sleeps has to be woken, which takes longer than a step of the core. So where the pauses between turns were short of
late, the selector is asked again and again, for so many µs at most, and others may have the processor in between. Where
pauses are longer the loop sleeps at once, and a broker with little to do costs nothing for it. So it does for a second
after somebody has kept the processor: who only gave way has it back at the next tick of the clock, who sleeps when
something comes. `node.busy-poll-us` sets the limit. Source: docs/adr/0026-busy-poll.md.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Final

from mqbroker.base.time import NS_PER_S, NS_PER_US

# A pause counts as so many limits at most: one long pause among short ones changes nothing, some in a row do.
PAUSE_LIMITS_MAX: Final = 4
# The latest pause is an eighth of the average, which is a shift.
LATEST_SHIFT: Final = 3
# Others who send and receive need the processor for less; who does not give it back has work of another kind.
KEPT_NS: Final = 500 * NS_PER_US
REST_NS: Final = NS_PER_S

_sched_yield: Final = os.sched_yield


class BusyPoll:
    """See the module's docstring. Everything happens in the loop's thread; a limit of 0 turns it off."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_us: int, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._limit_ns = limit_us * NS_PER_US
        self._pause_ns = PAUSE_LIMITS_MAX * self._limit_ns  # how long nothing came after a turn: the average
        self._since_ns = 0  # nothing has come since; 0: a turn goes on
        self._is_looking = False
        self._rests_until_ns = 0

    def turn_begins(self, now_ns: int) -> None:
        """Something came, or was due."""
        if self._since_ns:
            pause_ns = min(now_ns - self._since_ns, PAUSE_LIMITS_MAX * self._limit_ns)
            self._pause_ns += (pause_ns - self._pause_ns) >> LATEST_SHIFT
            self._since_ns = 0

    def turn_ends(self) -> None:
        """Nothing is there for another turn."""
        if not self._limit_ns:
            return
        self._since_ns = self._clock()
        is_soon = self._pause_ns < self._limit_ns and self._since_ns >= self._rests_until_ns
        if is_soon and not self._is_looking:
            self._is_looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Between two looks of the loop at its selector: whether there is to be one more before it sleeps."""
        now_ns = self._clock()
        if not self._since_ns or now_ns - self._since_ns >= self._limit_ns:
            self._is_looking = False
            return
        # Whose message is to come may need this very processor to send it.
        _sched_yield()
        back_ns = self._clock()
        if back_ns - now_ns >= KEPT_NS:
            self._rests_until_ns = back_ns + REST_NS
            self._is_looking = False
            return
        self._loop.call_soon(self._look)
