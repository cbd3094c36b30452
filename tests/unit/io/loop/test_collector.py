"""Python's collector looks at everything only where the process has grown much and has nearly nothing to do."""

from __future__ import annotations

import asyncio
import gc
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from mqbroker.io.loop import collector
from mqbroker.io.loop.collector import GROWN_BYTES_MIN, IDLE_NS_MAX, Collector, is_due, resident_bytes
from mqbroker.io.loop.log import Log, shape_for

MIB = 1 << 20
OLDEST = 2


@contextmanager
def looks() -> Iterator[list[int]]:
    """The generations that are looked at meanwhile."""
    found: list[int] = []

    def noted(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(noted)
    yield found
    gc.callbacks.remove(noted)


class Process:
    """What the collector sees of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(collector, "PERIOD_S", 0.001)
        self.told = StringIO()
        self.worked_ns = 0
        self.resident = 100 * MIB
        log = Log(self.told, shape_for(self.told, {}))
        self.collector = Collector(log, lambda: self.worked_ns, lambda: self.resident)

    def run(self, then: Callable[[], Any]) -> list[int]:
        """The generations that were looked at after `then`, within some periods."""

        async def some_periods() -> list[int]:
            self.collector.start()
            with looks() as found:
                then()
                for _ in range(20):
                    await asyncio.sleep(0.002)
            self.collector.stop()
            return found

        return asyncio.run(some_periods())

    def grow(self) -> None:
        self.resident += GROWN_BYTES_MIN


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


@pytest.mark.parametrize(("resident", "looked", "due"), [
    (0, 0, False), (255, 0, False), (256, 0, True), (355, 100, False), (356, 100, True), (1499, 1000, False),
    (1500, 1000, True), (500, 1000, False),
])  # fmt: skip
def test_growth_by_half_and_by_much_is_what_counts(resident: int, looked: int, due: bool) -> None:
    assert is_due(resident * MIB, looked * MIB) is due


@pytest.mark.slow
def test_objects_that_come_and_stay_are_not_looked_at_again_and_again(process: Process) -> None:
    held: list[list[int]] = []
    found = process.run(lambda: held.extend([number] for number in range(300_000)))
    assert found, "young objects are looked at"
    assert OLDEST not in found


@pytest.mark.slow
def test_all_are_looked_at_once_where_the_process_has_grown(process: Process) -> None:
    assert process.run(process.grow).count(OLDEST) == 1
    (line,) = process.told.getvalue().splitlines()
    assert "memory-looked-through" in line
    assert f"resident_bytes={process.resident}" in line


def test_nobody_who_works_is_stopped_for_that(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def worked() -> int:
        process.worked_ns += IDLE_NS_MAX + 1
        return process.worked_ns

    monkeypatch.setattr(process.collector, "_worked_ns", worked)
    assert OLDEST not in process.run(process.grow)


def test_what_was_there_at_the_start_is_passed_over_and_all_is_as_before_at_the_end(process: Process) -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    during: list[tuple[int, ...]] = []
    process.run(lambda: during.append((*gc.get_threshold()[:2], gc.get_freeze_count() - frozen)))
    ((young, middle, more),) = during
    assert (young, middle) == before[:2]
    assert more > 0
    assert gc.get_threshold() == before


def test_resident_memory_is_that_of_this_process() -> None:
    before = resident_bytes()
    with mmap.mmap(-1, 64 * MIB) as held:  # which nobody has had before
        for at in range(0, len(held), mmap.PAGESIZE):
            held[at] = 1
        assert 32 * MIB < resident_bytes() - before < 256 * MIB
