"""Time that code takes on a machine that has more to do than a test, and in a process that has.

A test that judges how long something took counts the processor time of whoever does it, or takes the seconds less those
in which it or a process that it waits for could have gone on and had no processor. Neither depends on what else runs.
How fast the machine is they do not say: a limit of processor time is a multiple of what a piece of Python takes there.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

NS_PER_S = 1_000_000_000
RAN, DELAYED = 0, 1  # fields of the kernel's schedstat


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


@contextmanager
def undelayed(*pids: int) -> Iterator[Callable[[], float]]:
    """Seconds since it began, less those in which this thread or one of the processes waited for a processor.

    Who waits for a process waits for its processor too. Where several wait at once each of them counts, so on a busy
    machine it may be less than it was, and never more: what is judged by it is late for a reason of its own.
    """
    before, started_s = delays_ns(pids), time.monotonic()

    def seconds() -> float:
        took_s = time.monotonic() - started_s
        grown_ns = sum(max(now - before.get(task, 0), 0) for task, now in delays_ns(pids).items())
        return max(took_s - grown_ns / NS_PER_S, 0.0)

    yield seconds


def delays_ns(pids: tuple[int, ...]) -> dict[Path, int]:
    """How long this thread, and each of those processes, could have gone on and had no processor, so far."""
    tasks = [Path("/proc/self/task", str(threading.get_native_id()))]
    for pid in pids:
        with suppress(FileNotFoundError):  # it has ended
            tasks += Path(f"/proc/{pid}/task").iterdir()
    found = {}
    for task in tasks:
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread has
            found[task] = schedstat(task, DELAYED)
    return found


def schedstat(task: Path, field: int) -> int:
    """What the kernel counts of a thread, in ns."""
    return int((task / "schedstat").read_text().split()[field])


@cache
def yardstick_s() -> float:
    """Processor time that a piece of Python takes on this machine that is always the same: 0.03 s on one of 2023.

    What is judged in multiples of it depends neither on what else runs nor on how fast the machine is.
    """
    times_s = []
    for _ in range(3):
        with processor_time() as seconds:
            found = {number: number for number in range(200_000)}
            assert sum(found[number] for number in range(0, 400_000, 2) if number in found) > 0
            times_s.append(seconds())
    return min(times_s)


def loop_ns(pid: int) -> int:
    """Processor time of the first thread of a process, which has a broker's loop."""
    return schedstat(Path(f"/proc/{pid}/task/{pid}"), RAN)
