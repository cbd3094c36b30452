"""A deadline by which somebody else has to have done something: a handshake, an answer, a request.

Where the process stood still meanwhile, what came in time lies unread, and the loop looks at clocks before it looks at
sockets. So one that is late for that is not over at once: how long it is late is given to the other side, once, and no
more than it had. What the core waits for is judged likewise (node/values/timers.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mqbroker.base.time import LATE_NS, NS_PER_S

LATE_S: Final = LATE_NS / NS_PER_S


class JudgingTimer:
    """Calls `action` after that time, unless it is cancelled before. For the thread of the loop that runs."""

    def __init__(self, delay_s: float, action: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay_s = delay_s
        self._action: Callable[[], object] | None = action
        self._has_spared = False
        self._due_s = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._wait(delay_s)

    def cancel(self) -> None:
        """Also where its time has come. What was to be called may know who has this timer, and is let go of."""
        self._action = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wait(self, delay_s: float) -> None:
        self._due_s = self._loop.time() + delay_s
        self._handle = self._loop.call_later(delay_s, self._on_time)

    def _on_time(self) -> None:
        self._handle = None  # each would keep the other one for ever
        late_s = self._loop.time() - self._due_s
        if late_s >= LATE_S and not self._has_spared:
            self._has_spared = True
            self._wait(min(late_s, self._delay_s))
            return
        action, self._action = self._action, None
        if action is not None:
            action()
