"""The clock of the process in which a native build is trained (native_training.py): whoever keeps a world tells the
time.

To be imported before anything of the broker: its modules keep the functions by which they read the time
(io/loop/loop.py), and what takes the place of these later is never asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[], int]  # the time in ns


class Clock:
    """Tells the time of the system, but while somebody else is asked."""

    def __init__(self) -> None:
        self._tell_monotonic: Tell = time.monotonic_ns
        self._tell_wall: Tell = time.time_ns

    def monotonic_ns(self) -> int:
        return self._tell_monotonic()

    def wall_ns(self) -> int:
        return self._tell_wall()

    @contextmanager
    def told_by(self, monotonic_ns: Tell, wall_ns: Tell) -> Iterator[None]:
        """These are asked meanwhile."""
        before = self._tell_monotonic, self._tell_wall
        self._tell_monotonic, self._tell_wall = monotonic_ns, wall_ns
        try:
            yield
        finally:
            self._tell_monotonic, self._tell_wall = before


CLOCK = Clock()
time.monotonic_ns = CLOCK.monotonic_ns
time.time_ns = CLOCK.wall_ns
