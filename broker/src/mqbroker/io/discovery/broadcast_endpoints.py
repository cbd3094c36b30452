"""Where announcements go and come from, whatever carries them: one interface, so that groups need not know.

An endpoint raises Unreachable, with a sentence for people, and may be used again afterwards: it starts anew then.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Protocol


class EndpointUnreachable(Exception):
    """It cannot be sent to or listened at now; the text says why and what to do."""


class Listener(Protocol):
    """Whom an ear tells. To be called in the loop's thread."""

    def heard(self, source: str, data: bytes) -> None:
        """A datagram has come from `source`."""

    def resolved(self, places: tuple[tuple[str, str, int], ...]) -> None:
        """Names lead to these places: (name, host, port), all that there are now."""

    def looked(self, why: str) -> None:
        """Looks fail now, and why; or they work again, where it is empty."""


Work = Coroutine[Any, Any, None]


class Mouth(Protocol):
    """The endpoint of a broadcast group."""

    def send(self, data: bytes) -> Work:
        """Send, now. Raises Unreachable."""

    def close(self) -> None:
        """Give back what the endpoint holds: sockets, threads."""


class Ear(Protocol):
    """The endpoint of a discovery group."""

    def join(self, listener: Listener) -> Work:
        """Listen from now on, or anew where it did already. Raises Unreachable."""

    def close(self) -> None:
        """Give back what the endpoint holds: sockets, threads."""


class PollingEar(ABC):
    """An ear that has to look. Invariant: one look at a time; its listener hears of trouble only when that changes."""

    def __init__(self, period_ms: int) -> None:
        self._period_s = period_ms / 1000
        self._task: asyncio.Task[None] | None = None

    async def join(self, listener: Listener) -> None:
        """Begin to look, the first time before it returns: that look must succeed."""
        self.close()
        await self.begin(listener)
        self._task = asyncio.get_running_loop().create_task(self._poll(listener))

    def close(self) -> None:
        """Look no more; the look that is under way is cancelled."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def begin(self, listener: Listener) -> None:
        """What has to succeed before looks begin. Raises Unreachable."""
        await self.look(listener)

    @abstractmethod
    async def look(self, listener: Listener) -> None:
        """Look once, and tell what is there. Raises Unreachable."""

    async def _poll(self, listener: Listener) -> None:
        is_failing = False
        while True:
            await asyncio.sleep(self._period_s)
            why = ""
            try:
                await self.look(listener)
            except EndpointUnreachable as fault:
                why = str(fault)
            if bool(why) != is_failing:
                is_failing = bool(why)
                listener.looked(why)
