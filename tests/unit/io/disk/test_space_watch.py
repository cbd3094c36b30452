"""The node is told when room on the disk becomes scarce, and when there is enough again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mqbroker.io.disk import space_watch
from mqbroker.io.disk.space_watch import SpaceWatch
from mqbroker.node.values.inputs import JournalSpace


def test_changes_are_told_once_and_with_a_margin() -> None:
    async def told() -> list[JournalSpace]:
        found: list[JournalSpace] = []
        watch = SpaceWatch(found.append, "/", 1000)
        for free_bytes in (5000, 2000, 1999, 1000, 999, 0, 1100, 1249, 1250, 1000, 10, 2499, 2500):
            watch.saw(free_bytes)
        watch.stop()
        return found

    assert asyncio.run(told()) == [
        JournalSpace(False, 1999, is_scarce=True),
        JournalSpace(True, 999, is_scarce=True),
        JournalSpace(False, 1250, is_scarce=True),
        JournalSpace(True, 10, is_scarce=True),
        JournalSpace(False, 2499, is_scarce=True),
        JournalSpace(False, 2500),
    ]


def test_room_is_scarce_also_where_publishers_are_never_held_back() -> None:
    async def told() -> list[JournalSpace]:
        found: list[JournalSpace] = []
        watch = SpaceWatch(found.append, "/", 0)
        for free_bytes in (1 << 40, (1 << 29) - 1, 0, 1 << 40):
            watch.saw(free_bytes)
        watch.stop()
        return found

    assert [(each.is_low, each.is_scarce) for each in asyncio.run(told())] == [(False, True), (False, False)]


@pytest.mark.option("journal.min-disk-free-bytes")
@pytest.mark.parametrize("free_bytes_min", [0, 1 << 49])
def test_it_looks_at_the_file_system_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes_min: int
) -> None:
    monkeypatch.setattr(space_watch, "HELD_FREE_BYTES_MIN", 1 << 49)

    async def first() -> JournalSpace:
        found: asyncio.Queue[JournalSpace] = asyncio.Queue()
        watch = SpaceWatch(found.put_nowait, str(tmp_path), free_bytes_min)
        watch.start()
        seen = await asyncio.wait_for(found.get(), 60)
        watch.stop()
        assert found.empty()
        return seen

    seen = asyncio.run(first())
    assert (seen.is_low, seen.is_scarce) == (bool(free_bytes_min), True)
