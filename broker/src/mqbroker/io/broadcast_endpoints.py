"""Where announcements go and come from, whatever carries them: one interface, so that groups need not know.

An endpoint raises Unreachable, with a sentence for people, and may be used again afterwards: it starts anew then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Heard = Callable[[str, bytes], None]  # source, data


class Unreachable(Exception):
    """It cannot be sent to or listened at now; the text says why and what to do."""


class Mouth(Protocol):
    """The endpoint of a broadcast group."""

    def send(self, data: bytes) -> None:
        """Send, now. Raises Unreachable."""

    def close(self) -> None:
        """Give back what it holds."""


class Ear(Protocol):
    """The endpoint of a discovery group."""

    def join(self, heard: Heard) -> None:
        """Listen from now on, or anew where it did already; each datagram is given to `heard`. Raises Unreachable."""

    def close(self) -> None:
        """Give back what it holds."""
