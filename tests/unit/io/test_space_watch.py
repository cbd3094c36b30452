"""The node is told when room on the disk becomes scarce, and when there is enough again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mqbroker.io.space_watch import SpaceWatch
from mqbroker.node.values.inputs import JournalSpace


def test_changes_are_told_once_and_with_a_margin() -> None:
    async def told() -> list[JournalSpace]:
        found: list[JournalSpace] = []
        watch = SpaceWatch(found.append, "/", 1000)
        for free_bytes in (5000, 1000, 999, 0, 1100, 1249, 1250, 1000, 10):
            watch.saw(free_bytes)
        watch.stop()
        return found

    assert asyncio.run(told()) == [JournalSpace(True, 999), JournalSpace(False, 1250), JournalSpace(True, 10)]


@pytest.mark.option("journal.min-disk-free-bytes")
@pytest.mark.parametrize("free_bytes_min", [0, 1 << 50])
def test_it_looks_at_the_file_system_from_the_start(tmp_path: Path, free_bytes_min: int) -> None:
    async def first() -> JournalSpace | None:
        found: asyncio.Queue[JournalSpace] = asyncio.Queue()
        watch = SpaceWatch(found.put_nowait, str(tmp_path), free_bytes_min)
        watch.start()
        seen = await asyncio.wait_for(found.get(), 60) if free_bytes_min else None
        watch.stop()
        assert found.empty()
        return seen

    seen = asyncio.run(first())
    assert (seen is not None and seen.is_low) == bool(free_bytes_min)
