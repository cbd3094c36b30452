"""Time of the processor that code takes: the machine may have more to do than a test, and so may its process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def processor_time() -> Iterator[Callable[[], float]]:
    """Seconds since it began. Without collections of garbage: what other tests have left takes a second to look at."""
    was_enabled = gc.isenabled()
    gc.disable()
    started_s = time.process_time()
    try:
        yield lambda: time.process_time() - started_s
    finally:
        if was_enabled:
            gc.enable()
