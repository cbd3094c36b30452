"""Files of the journal that are used again: which ones, how many, in what order things are on disk, and what if not."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mqbroker.base.errors import StorageFault
from mqbroker.config.declarations.options import defaults
from mqbroker.io.disk.files import Files
from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.io.disk.segment_pool import JournalSegmentPool
from mqbroker.io.disk.segment_stock import PAUSE_FACTOR, JournalSegmentStock
from mqbroker.journal.entry import Chunk
from mqbroker.journal.format import FILE_HEADER_BYTES, decode_file_header, file_name
from mqbroker.journal.records import encode_attributes
from mqbroker.node.values.effects import DeleteJournalSegment
from mqbroker.node.values.inputs import Done, Failed, Input

from tests.support.patience import PATIENCE_S
from tests.unit.io.disk.test_disk import Node, bodies, until

NODE_ID = b"n" * 16
MIB = 1 << 20
FILE_BYTES = 2 * MIB + 8192  # two pieces of zeros and the rest
PIECES = 3


class ToldFiles(Files):
    """Notes what is done to which file, lets the room on the file system be what the test says, and fails when told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []
        self.room_bytes = 1 << 50
        self.failing: dict[str, int] = {}  # kind -> code
        self.gate = threading.Event()
        self.gate.set()
        self._names: dict[int, str] = {}

    def _tell(self, kind: str, *facts: Any) -> None:
        self.told.append((kind, *facts))
        if kind in self.failing:
            raise OSError(self.failing[kind], os.strerror(self.failing[kind]), str(facts))

    def create(self, path: Path) -> int:
        self._tell("create", path.name)
        fd = super().create(path)
        self._names[fd] = path.name
        return fd

    def open(self, path: Path) -> int:
        self._tell("open", path.name)
        fd = super().open(path)
        self._names[fd] = path.name
        return fd

    def write(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        self._tell("write", self._names[fd], offset, sum(map(len, chunks)))
        super().write(fd, chunks, offset)

    def can_write_synced(self, directory: Path) -> bool:
        return False

    def sync(self, fd: int) -> None:
        self._tell("sync", self._names[fd])
        assert self.gate.wait(PATIENCE_S)
        super().sync(fd)

    def sync_directory(self, directory: Path) -> None:
        self._tell("sync_directory")
        super().sync_directory(directory)

    def rename(self, old: Path, new: Path) -> None:
        self._tell("rename", old.name, new.name)
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._tell("unlink", path.name)
        super().unlink(path)

    def free_bytes(self, path: Path) -> int:
        self.number("free_bytes")
        return self.room_bytes


class Site:
    """A directory with segments that are full of old entries, and a stock."""

    def __init__(self, path: Path, segments: int, **changes: Any) -> None:
        values: dict[str, Any] = {"journal_file_size_bytes": FILE_BYTES, **changes}
        self.files = ToldFiles()
        self.directory = JournalDirectory(path, NODE_ID, replace(defaults().journal, **values), self.files)
        self.directory.load()
        for number in range(1, segments + 1):
            self.make(number, FILE_BYTES)
        self.stock = JournalSegmentStock(self.directory)
        self.files.told.clear()

    def make(self, number: int, size_bytes: int) -> None:
        segment = self.directory.prepare(number, size_bytes)
        self.directory.name(segment)
        os.pwrite(segment.fd, b"old" * 1000, FILE_HEADER_BYTES)
        os.pwrite(segment.fd, b"old" * 1000, size_bytes - 3000)
        os.close(segment.fd)

    def inode(self, name: str) -> int:
        return (self.directory.path / name).stat().st_ino

    @property
    def names(self) -> list[str]:
        return sorted(os.listdir(self.directory.path))

    def wipe_all(self) -> int:
        """How many times the stock wanted to work."""
        count = 0
        while self.stock.wait_s != 5.0 and self.stock.wait_s is not None:
            self.stock.work()
            count += 1
        return count


def unnamed(number: int) -> str:
    return file_name(number) + ".unused"


@pytest.mark.parametrize("is_wiped_before", [True, False])
def test_a_file_becomes_the_next_segment_with_zeros_all_over(tmp_path: Path, is_wiped_before: bool) -> None:
    site = Site(tmp_path, 1)
    inode = site.inode(file_name(1))
    site.stock.keep(1)
    assert site.names == [unnamed(1)]
    if is_wiped_before:
        assert site.wipe_all() == 3
    segment = site.stock.prepare(7)
    assert segment is not None
    site.directory.name(segment)
    os.close(segment.fd)
    assert site.inode(file_name(7)) == inode
    content = (tmp_path / file_name(7)).read_bytes()
    header = decode_file_header(content[:FILE_HEADER_BYTES])
    assert header is not None
    assert (header.size_bytes, header.seed) == (FILE_BYTES, segment.seed)
    assert content[FILE_HEADER_BYTES:] == bytes(FILE_BYTES - FILE_HEADER_BYTES)
    assert site.stock.prepare(8) is None


def test_each_step_is_on_disk_before_the_next(tmp_path: Path) -> None:
    site = Site(tmp_path, 1)
    site.stock.keep(1)
    site.wipe_all()
    segment = site.stock.prepare(2)
    assert segment is not None
    site.directory.name(segment)
    os.close(segment.fd)
    assert site.files.told == [
        ("rename", file_name(1), unnamed(1)),
        ("sync_directory",),
        ("open", unnamed(1)),
        ("write", unnamed(1), 0, MIB),
        ("sync", unnamed(1)),
        ("write", unnamed(1), MIB, MIB),
        ("sync", unnamed(1)),
        ("write", unnamed(1), 2 * MIB, 8192),
        ("sync", unnamed(1)),
        ("rename", unnamed(1), unnamed(2)),
        ("open", unnamed(2)),
        ("write", unnamed(2), 0, FILE_HEADER_BYTES),
        ("sync", unnamed(2)),
        ("rename", unnamed(2), file_name(2)),
        ("sync_directory",),
    ]


@pytest.mark.option("journal.journal-pool-files")
@pytest.mark.parametrize("files", [0, 2, 3])
def test_no_more_files_are_kept_than_wanted(tmp_path: Path, files: int) -> None:
    site = Site(tmp_path, 4, journal_pool_files=files)
    for number in range(1, 5):
        site.stock.keep(number)
        if number == 1:
            site.wipe_all()  # those that have their zeros count too
    assert site.names == [unnamed(number) for number in range(1, files + 1)]
    assert len(site.stock) == files


@pytest.mark.parametrize("size_bytes", [FILE_BYTES - 4096, FILE_BYTES + 4096])
def test_files_of_another_size_are_deleted(tmp_path: Path, size_bytes: int) -> None:
    site = Site(tmp_path, 0)
    site.make(1, size_bytes)
    site.stock.keep(1)
    assert site.names == []
    assert site.files.told[-1] == ("sync_directory",)


def test_a_segment_that_is_gone_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Site(tmp_path, 0).stock.keep(1)


def test_a_file_that_can_not_be_renamed_is_deleted(tmp_path: Path) -> None:
    site = Site(tmp_path, 1)
    site.files.failing["rename"] = errno.EIO
    site.stock.keep(1)
    assert site.names == []
    assert site.files.told[-2:] == [("unlink", file_name(1)), ("sync_directory",)]


def test_while_its_name_may_come_back_a_file_is_not_overwritten(tmp_path: Path) -> None:
    site = Site(tmp_path, 1)
    site.files.failing["sync_directory"] = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        site.stock.keep(1)
    assert site.names == []
    assert not len(site.stock)
    assert "write" not in [kind for kind, *_ in site.files.told]


@pytest.mark.parametrize("kind", ["open", "write", "sync"])
@pytest.mark.parametrize("is_wiped_before", [True, False])
def test_a_file_that_can_not_be_written_is_deleted(tmp_path: Path, kind: str, is_wiped_before: bool) -> None:
    """At its zeros or at its header: nothing is tried again."""
    site = Site(tmp_path, 2)
    site.stock.keep(1)
    if is_wiped_before:
        site.wipe_all()
    site.files.told.clear()
    site.files.failing[kind] = errno.EIO
    fds = os.listdir("/proc/self/fd")
    assert site.stock.prepare(9) is None
    assert not len(site.stock)
    assert [call for call, *_ in site.files.told].count(kind) == 1
    assert os.listdir("/proc/self/fd") == fds
    site.files.failing.clear()
    made = site.directory.prepare(9, FILE_BYTES)  # what the pool does then
    site.directory.name(made)
    os.close(made.fd)
    assert site.names == [file_name(2), file_name(9)]


@pytest.mark.option("journal.min-disk-free-bytes")
@pytest.mark.parametrize(
    ("room_bytes", "free_bytes_min", "is_kept"), [(1250, 1000, True), (1249, 1000, False), (0, 0, True)]
)
def test_nothing_is_kept_when_room_is_scarce(
    tmp_path: Path, room_bytes: int, free_bytes_min: int, is_kept: bool
) -> None:
    site = Site(tmp_path, 3, min_disk_free_bytes=free_bytes_min)
    site.stock.keep(1)
    site.wipe_all()
    site.stock.keep(2)
    site.stock.work()  # the second one is half done
    site.files.room_bytes = room_bytes
    site.stock.keep(3)
    assert len(site.stock) == (3 if is_kept else 2)
    site.stock.work()
    assert site.names == ([unnamed(number) for number in (1, 2, 3)] if is_kept else [])
    assert (site.stock.prepare(4) is None) is not is_kept


def test_the_disk_rests_between_pieces(tmp_path: Path) -> None:
    site = Site(tmp_path, 1)
    assert site.stock.wait_s is None
    site.stock.keep(1)
    site.files.gate.clear()
    threading.Timer(0.2, site.files.gate.set).start()
    started_s = time.monotonic()
    site.stock.work()
    took_s = time.monotonic() - started_s
    assert site.stock.wait_s is not None
    assert 0.19 <= site.stock.wait_s / PAUSE_FACTOR <= took_s


def test_it_rests_longer_when_enough_files_have_their_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0.0, 0.02)  # each piece takes 20 ms
    monkeypatch.setattr("mqbroker.io.disk.segment_stock.time", SimpleNamespace(monotonic=lambda: next(ticks)))
    site = Site(tmp_path, 6)
    for number in range(1, 7):
        site.stock.keep(number)
    pauses_s = []
    for _ in range(5 * PIECES):
        site.stock.work()
        pauses_s.append(site.stock.wait_s)
    assert pauses_s == pytest.approx([0.06] * (4 * PIECES - 1) + [0.4] * (PIECES + 1))
    for number in (7, 8):
        made = site.stock.prepare(number)
        assert made is not None
        os.close(made.fd)
    assert site.stock.wait_s == pytest.approx(0.06), "there are too few again"


class Pool(JournalSegmentPool):
    """With what it posted."""

    def __init__(self, site: Site) -> None:
        self.posted: list[Input] = []
        self.changed = threading.Condition()
        self.faults: list[StorageFault] = []
        super().__init__(site.directory, self._note, self.faults.append)

    def _note(self, item: Input) -> None:
        with self.changed:
            self.posted.append(item)
            self.changed.notify_all()

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.posted) >= count, PATIENCE_S)


def test_deletions_and_the_next_file_wait_for_one_piece_of_zeros(tmp_path: Path) -> None:
    site = Site(tmp_path, 3, journal_pool_files=1)
    files = site.files
    files.gate.clear()
    pool = Pool(site)
    pool.delete(1, 1, None)
    until(lambda: ("sync", unnamed(1)) in files.told)
    pool.delete(2, 2, None)
    pool.delete(3, 3, None)
    pool.prepare(4)
    assert pool.posted == [Done(1)]  # before its zeros
    files.gate.set()
    pool.wait(3)
    assert pool.posted == [Done(1), Done(2), Done(3)]
    segment = pool.take(4, FILE_BYTES)
    os.close(segment.fd)
    pool.close(PATIENCE_S)
    told = [call for call in files.told if call[:2] == ("write", unnamed(1)) or call[0] in ("unlink", "create")]
    assert told[:5] == [
        ("write", unnamed(1), 0, MIB),
        ("unlink", file_name(2)),
        ("unlink", file_name(3)),
        ("write", unnamed(1), MIB, MIB),
        ("write", unnamed(1), 2 * MIB, 8192),
    ]
    assert ("create", unnamed(4)) not in told
    assert ("create", unnamed(5)) in told, "the stock was empty"


def test_a_deletion_that_fails_is_reported(tmp_path: Path) -> None:
    site = Site(tmp_path, 1)
    site.files.failing["sync_directory"] = errno.EIO
    pool = Pool(site)
    pool.delete(7, 1, None)
    pool.delete(8, 1, None)
    pool.wait(2)
    assert [type(item) for item in pool.posted] == [Failed, Done]
    assert pool.faults == [], "the file is only not needed any more"
    pool.close(PATIENCE_S)


def test_what_says_that_a_file_may_go_is_on_disk_before_it_goes(tmp_path: Path) -> None:
    """Nobody knows what is on disk after a sync that failed: the file stays, and the node ends."""
    site = Site(tmp_path, 2)
    pool = Pool(site)
    pool.delete(1, 1, 2)
    pool.wait(1)
    assert pool.posted == [Done(1)]
    told = [call for call in site.files.told if call[0] in ("sync", "rename")]
    assert told[:2] == [("sync", file_name(2)), ("rename", file_name(1), unnamed(1))]
    site.files.failing["sync"] = errno.EIO
    pool.delete(2, 2, 2)
    pool.close(PATIENCE_S)
    assert len(pool.faults) == 1
    assert file_name(2) in site.names
    assert pool.posted == [Done(1)]


def test_it_ends_while_zeros_are_written_and_the_next_start_removes_the_files(tmp_path: Path) -> None:
    site = Site(tmp_path, 2)
    site.files.gate.clear()
    pool = Pool(site)
    fds = os.listdir("/proc/self/fd")
    for number in (1, 2):
        pool.delete(number, number, None)
    until(lambda: ("sync", unnamed(1)) in site.files.told)
    threading.Timer(0.1, site.files.gate.set).start()
    started_s = time.monotonic()
    pool.close(10 * PATIENCE_S)
    assert time.monotonic() - started_s < PATIENCE_S, "it waited for longer than for the piece that was being written"
    assert not pool._thread.is_alive()
    assert os.listdir("/proc/self/fd") == fds
    assert site.names == [unnamed(1), unnamed(2)]
    site.directory.load()
    assert site.names == []


def test_an_idle_broker_gives_its_files_back_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqbroker.io.disk.segment_stock.LOOK_PERIOD_S", 0.05)
    site = Site(tmp_path, 1)
    pool = Pool(site)
    pool.delete(1, 1, None)
    pool.wait(1)
    until(lambda: len(pool._stock._clean) == 1)
    site.files.room_bytes = 1000
    until(lambda: site.names == [])
    pool.close(PATIENCE_S)


def test_a_journal_goes_round_in_its_files(tmp_path: Path) -> None:
    """Everything stored is settled again: many segments, few files, and each life loads what is left."""
    files, next_id, left = Files(), 1, 0
    for _ in range(2):
        node = Node(tmp_path, files, min_disk_free_bytes=0)
        assert bodies(node.recovered) == [b"%d" % number * 5000 for number in range(next_id - left, next_id)]
        if not left:
            node.journal.declare(1, encode_attributes({"name": "orders"}))
        for number in range(next_id, next_id + 120):
            if number > 1:
                node.journal.settle(1, number - 1, 1)
            for segment in node.journal.deletable():
                node.disk.delete(DeleteJournalSegment(segment, segment))
            node.wait(node.store(number, b"%d" % number * 5000))
        next_id, left = next_id + 120, 1
        assert node.disk.close()
    looked = node.directory.look()
    assert [run.first_id for run in looked.runs] == [next_id - 1]
    numbers = [use.number for use in looked.segments]
    assert numbers[-1] > 30
    assert files.calls["create"] < numbers[-1] / 2
