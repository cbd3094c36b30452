"""Announcements by files: what is written, what counts as heard, and directories that are not as they should be."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mqbroker.cluster.discovery.datagram import seal
from mqbroker.cluster.discovery.note import to_note
from mqbroker.config.declarations.clustering import DiscoveryGroupTable
from mqbroker.config.declarations.table_slices import slice_of
from mqbroker.io.discovery import announced_files
from mqbroker.io.discovery.announced_files import FileEar, FileMouth
from mqbroker.io.discovery.broadcast_endpoints import EndpointUnreachable

from tests.unit.cluster.discovery.sayings import KEY, NODES, said
from tests.unit.cluster.discovery.test_broadcaster import OPTIONS as BROADCAST


class Ears:
    """A Listener that writes down what it is told."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.whys: list[str] = []
        self.found: list[tuple[tuple[str, str, int], ...]] = []
        self.news = asyncio.Event()

    def heard(self, source: str, data: bytes) -> None:
        self.data.append(data)
        self.news.set()

    def resolved(self, places: tuple[tuple[str, str, int], ...]) -> None:
        self.found.append(places)
        self.news.set()

    def looked(self, why: str) -> None:
        self.whys.append(why)
        self.news.set()


def mouth(directory: Path) -> FileMouth:
    return FileMouth(replace(BROADCAST, discovery="file", directory=str(directory)))


def ear(directory: Path) -> FileEar:
    fields = {"name": "lan", "discovery": "file", "directory": str(directory), "poll-period": 50}
    return FileEar(slice_of(DiscoveryGroupTable.model_validate(fields)))


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await work()

    asyncio.run(whole())


def test_a_file_is_written_whole_and_goes_at_the_end(tmp_path: Path) -> None:
    async def work() -> None:
        one = mouth(tmp_path)
        for seq in (1, 2):
            await one.send(seal(said(1, seq=seq), KEY))
            (file,) = list(tmp_path.iterdir())
            assert (file.name, file.read_bytes()) == (f"{NODES[1]}.json", to_note(seal(said(1, seq=seq), KEY)))
        one.close()
        one.close()
        assert list(tmp_path.iterdir()) == []

    run(work)


def test_what_a_crash_left_behind_is_replaced(tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / f".{NODES[1]}.json.new").write_bytes(b"half of")
        one = mouth(tmp_path)
        await one.send(seal(said(1), KEY))
        assert [file.name for file in tmp_path.iterdir()] == [f"{NODES[1]}.json"]
        one.close()

    run(work)


def test_only_what_changes_is_heard(tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / f"{NODES[3]}.json").write_bytes(to_note(seal(said(3), KEY)))
        ears, one, two = Ears(), ear(tmp_path), mouth(tmp_path)
        await one.begin(ears)
        assert ears.data == [], "a file that was there before may be that of a node long gone"
        for seq in (1, 2):
            await two.send(seal(said(1, seq=seq), KEY))
            for _ in range(2):
                await one.look(ears)
        assert ears.data == [seal(said(1, seq=seq), KEY) for seq in (1, 2)]
        one.close()
        two.close()

    run(work)


def test_an_ear_looks_again_and_again_and_tells_of_trouble_when_it_changes(tmp_path: Path) -> None:
    async def work() -> None:
        place = tmp_path / "shared"
        place.mkdir()
        ears, one = Ears(), ear(place)
        await one.join(ears)
        place.rmdir()
        await ears.news.wait()
        ears.news.clear()
        place.mkdir()
        await ears.news.wait()
        assert [bool(why) for why in ears.whys] == [True, False]
        assert f"{place} cannot be read: No such file or directory; see that the directory is there" in ears.whys[0]
        one.close()

    run(work)


def test_a_directory_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    async def work() -> None:
        one, two = ear(tmp_path / "no"), mouth(tmp_path / "no")
        with pytest.raises(EndpointUnreachable, match="cannot be read: No such file"):
            await one.join(Ears())
        with pytest.raises(EndpointUnreachable, match="cannot be written: No such file"):
            await two.send(seal(said(1), KEY))
        one.close()
        two.close()

    run(work)


def test_what_is_no_plain_file_of_a_node_is_passed_over_and_what_is_too_long_is_cut(tmp_path: Path) -> None:
    async def work() -> None:
        ears, one = Ears(), ear(tmp_path)
        await one.begin(ears)
        os.mkfifo(tmp_path / f"{NODES[1]}.json")
        (tmp_path / f"{NODES[2]}.json").symlink_to("/etc/passwd")
        (tmp_path / f"{NODES[3]}.json").mkdir()
        (tmp_path / "README.json").write_text("{}")
        (tmp_path / f"{NODES[4]}.json").write_bytes(b"x" * 1_000_000)
        await one.look(ears)
        assert [len(data) for data in ears.data] == [announced_files.NOTE_BYTES_MAX + 1]
        one.close()

    run(work)


def test_too_many_files_are_told_of(tmp_path: Path) -> None:
    async def work() -> None:
        for number in range(announced_files.FILES_MAX + 1):
            (tmp_path / f"{number:08x}-0000-4000-8000-000000000000.json").touch()
        one = ear(tmp_path)
        with pytest.raises(EndpointUnreachable, match="holds 1002 files of nodes, and 1001 may be; remove those"):
            await one.join(Ears())
        one.close()

    run(work)
