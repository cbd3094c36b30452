"""When Python's collector looks for objects that know each other and that nobody else knows.

What ends lets go of itself: connections, links, queues, transactions, bridges (tests/unit/node/test_no_cycles.py). So a
look at all objects, which stops everybody for some 0.4 µs an object, has nothing to find, and is not made whenever a
quarter more objects are there, as Python would. It guards against what nobody knows of: it is made while the node has
nearly nothing to do, once the process has grown by half and by `GROWN_BYTES_MIN` since the last. Young objects are
looked at as ever, some thousands at a time. Source: docs/adr/0020-collector.md.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqbroker.base.time import NS_PER_MS, NS_PER_S
from mqbroker.io.loop.log import Log

PERIOD_S: Final = 10.0
IDLE_NS_MAX: Final = NS_PER_S // 10  # of work within a period
GROWN_BYTES_MIN: Final = 256 << 20
NEVER: Final = 0x7FFFFFFF
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Collector:
    """See the module's docstring. `worked_ns`: how long the node has worked since it began; `resident`: as below."""

    def __init__(self, log: Log, worked_ns: Callable[[], int], resident: Callable[[], int] | None = None) -> None:
        self._log = log
        self._worked_ns = worked_ns
        self._resident = resident or resident_bytes
        self._thresholds = gc.get_threshold()
        self._worked_before_ns = 0
        self._looked_bytes = 0  # resident memory after the last look
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Everything made so far lives as long as the process: nobody need look at it again."""
        self._thresholds = young, middle, _ = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(young, middle, NEVER)
        self._worked_before_ns, self._looked_bytes = self._worked_ns(), self._resident()
        self._wait()

    def stop(self) -> None:
        """Leave it to Python again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.set_threshold(*self._thresholds)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._on_time)

    def _on_time(self) -> None:
        self._wait()
        worked_ns = self._worked_ns()
        is_idle = worked_ns - self._worked_before_ns <= IDLE_NS_MAX
        self._worked_before_ns = worked_ns
        if is_idle and is_due(self._resident(), self._looked_bytes):
            self.look()

    def look(self) -> None:
        """Collect over all generations now, and tell what it took."""
        began_ns, before_bytes = time.monotonic_ns(), self._resident()
        freed_count = gc.collect()
        took_ms = (time.monotonic_ns() - began_ns) // NS_PER_MS
        self._looked_bytes = self._resident()
        self._log.info("memory-looked-through", found=freed_count, took_ms=took_ms,
                       resident_bytes=self._looked_bytes, before_bytes=before_bytes)  # fmt: skip


def is_due(resident: int, looked: int) -> bool:
    """Whether the process has grown by so much, since it had that many bytes, that all is to be looked at."""
    return resident - looked >= max(GROWN_BYTES_MIN, looked // 2)


def resident_bytes() -> int:
    """Resident memory of this process, see proc_pid_statm(5); 0 where nobody says."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except OSError:
        return 0
