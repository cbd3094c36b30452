"""The disk thread on real files: order, groups, inline commits, rolling, deletion, failure, back-pressure."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.base.errors import StorageFault
from mqbroker.config.declarations.options import defaults
from mqbroker.io.disk.disk import GROUP_BYTES_MAX, INLINE_BYTES_MAX, Disk
from mqbroker.io.disk.files import Files
from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.io.files.data_lock import DataLock
from mqbroker.journal.entry import ENTRY_MARK, Chunk
from mqbroker.journal.format import FILE_HEADER_BYTES, file_name
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import encode_attributes
from mqbroker.journal.recovered import Recovered
from mqbroker.node.values.effects import DeleteJournalSegment
from mqbroker.node.values.inputs import Done, Input, Synced

from tests.support.patience import PATIENCE_S
from tests.support.processor import undelayed

NODE_ID = b"n" * 16


class SlowFiles(Files):
    """Syncs wait until `gate` is open, then fail if told to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.sync_error: int | None = None
        self.synced_by: list[str] = []  # names of threads: the next segment is made, and synced, beside the others

    def sync(self, fd: int) -> None:
        assert self.gate.wait(PATIENCE_S)
        if self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(fd)
        self.synced_by.append(threading.current_thread().name)

    def write_synced(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        self.write(fd, chunks, offset)
        self.sync(fd)


class Node:
    """A journal with its disk thread, and what came back."""

    def __init__(self, path: Path, files: Files | None = None, **changes: Any) -> None:
        self.options = replace(defaults().journal, **{"journal_file_size_bytes": 64 << 10, **changes})
        self.directory = JournalDirectory(path, NODE_ID, self.options, files)
        self.recovered: Recovered = self.directory.load()
        self.journal = Journal(self.options, self.recovered)
        self.inputs: list[Input] = []
        self.faults: list[StorageFault] = []
        self.changed = threading.Condition()
        self.disk = Disk(self.directory, self.recovered, self.post, self.faults.append)

    def post(self, item: Input) -> None:
        with self.changed:
            self.inputs.append(item)
            self.changed.notify_all()

    @property
    def positions(self) -> list[int]:
        return [item.position for item in self.inputs if isinstance(item, Synced)]

    def store(self, first_id: int, body: bytes, count: int = 1, is_inline: bool = False, sync: bool = True) -> int:
        self.journal.store(first_id, count, (1,), body)
        append = self.journal.take(sync)
        assert append is not None
        if not (is_inline and self.disk.try_inline(append)):
            self.disk.submit(append)
        return append.position

    def wait(self, position: int, timeout_s: float = PATIENCE_S) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: bool(self.positions) and self.positions[-1] >= position, timeout_s)
        self.journal.synced(position)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "journal")
    node.journal.declare(1, encode_attributes({"name": "orders"}))
    yield node
    node.disk.close()


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def is_used(file: Path) -> bool:
    """There, and not only made ahead."""
    return file.exists() and any(file.read_bytes()[FILE_HEADER_BYTES:])


def bodies(recovered: Recovered) -> list[bytes]:
    return [bytes(run.frames) for run in recovered.runs]


def test_what_was_synced_is_loaded_again(node: Node, tmp_path: Path) -> None:
    wrote = [b"message %d" % number for number in range(300)]
    for number, body in enumerate(wrote, 1):
        position = node.store(number, body)
    node.wait(position)
    assert node.disk.close()
    again = Node(tmp_path / "journal")
    assert bodies(again.recovered) == wrote
    assert again.recovered.last_position == position
    assert again.disk.close()


def test_positions_come_back_ascending_and_a_group_shares_one_sync(tmp_path: Path) -> None:
    files = SlowFiles()
    node = Node(tmp_path, files)
    node.journal.declare(1, encode_attributes({}))
    node.wait(node.store(1, b"x"))
    syncs = files.synced_by.count("disk")
    files.gate.clear()
    for number in range(2, 52):
        position = node.store(number, b"x")
    files.gate.set()
    node.wait(position)
    assert node.positions == sorted(set(node.positions))
    assert files.synced_by.count("disk") - syncs <= 3
    node.disk.close()


def held(path: Path) -> tuple[SlowFiles, Node, int]:
    """A node whose disk is at the commit of this position until the gate of its files is set."""
    files = SlowFiles()
    node = Node(path, files, journal_file_size_bytes=4 << 20)
    node.journal.declare(1, encode_attributes({}))
    node.wait(node.store(1, b"x"))
    files.gate.clear()
    first = node.store(2, b"x")
    until(lambda: node.disk.pending_bytes > 0 and not node.disk._queue)
    return files, node, first


@pytest.mark.parametrize("is_asked", [True, False])
def test_what_waits_is_committed_in_groups_of_a_bounded_size(tmp_path: Path, is_asked: bool) -> None:
    """The publishers of the first group need not wait for all that has gathered behind it, and none is left over."""
    files, node, first = held(tmp_path)
    done = len(node.positions)
    for number in range(3, 3 + 30):
        position = node.store(number, bytes(GROUP_BYTES_MAX // 10), sync=is_asked)
    files.gate.set()
    node.wait(position)
    assert [reported - first for reported in node.positions[done:]] == [0, 10, 20, 30]
    assert node.disk.close()


def test_a_little_that_nobody_waits_for_rides_along_with_the_next_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full group leaves it behind: a sync for it alone would hold up those who wait."""
    monkeypatch.setattr("mqbroker.io.disk.disk.RIDE_ALONG_S", 60.0)
    files, node, first = held(tmp_path)
    done = len(node.positions)
    full = node.store(3, bytes(GROUP_BYTES_MAX))
    node.store(4, b"rides along", sync=False)
    files.gate.set()
    node.wait(full)
    node.wait(node.store(5, b"x"))
    assert [reported - first for reported in node.positions[done:]] == [0, 1, 3]
    assert node.disk.close()


def test_an_inline_commit_is_synced_when_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow this machine's disk is at the moment.
    monkeypatch.setattr("mqbroker.io.disk.disk.INLINE_SYNC_S_MAX", 60.0)
    files = SlowFiles()
    node = Node(tmp_path, files)
    node.journal.declare(1, encode_attributes({}))
    node.wait(node.store(1, b"first"))
    here = threading.current_thread().name
    before = files.synced_by.count(here)
    node.journal.store(2, 1, (1,), b"second")
    append = node.journal.take(sync=True)
    assert append is not None
    deadline_s = time.monotonic() + PATIENCE_S
    # The thread tells what it synced before it is idle again.
    while not node.disk.try_inline(append):
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
    assert node.positions[-1] == append.position
    assert files.synced_by.count(here) == before + 1
    assert node.disk.pending_bytes == 0
    node.disk.close()


def test_inline_takes_along_what_waits_before_it(node: Node) -> None:
    node.wait(node.store(1, b"first"))
    rider = node.store(2, b"nobody waits", sync=False)
    assert node.store(3, b"inline", is_inline=True) == rider + 1
    node.wait(rider + 1)


def test_inline_is_declined_when_big_or_when_the_segment_changes(node: Node) -> None:
    node.journal.store(1, 1, (1,), b"the first append begins a segment")
    append = node.journal.take(sync=True)
    assert append is not None
    assert not node.disk.try_inline(append)
    node.disk.submit(append)
    node.wait(append.position)
    node.journal.store(2, 1, (1,), bytes(INLINE_BYTES_MAX))
    append = node.journal.take(sync=True)
    assert append is not None
    assert not node.disk.try_inline(append)
    node.disk.submit(append)
    node.wait(append.position)


def test_what_nobody_waits_for_is_on_disk_soon(node: Node) -> None:
    node.wait(node.store(1, b"first"))
    started_s = time.monotonic()
    with undelayed(os.getpid()) as seconds:
        node.wait(node.store(2, b"rides along", sync=False))
        assert time.monotonic() - started_s > 0.02
        assert seconds() < 9


def test_segments_roll_and_go(node: Node, tmp_path: Path) -> None:
    for number in range(1, 101):
        position = node.store(number, bytes([number]) * 4000)
    node.wait(position)
    used = [number for number in range(1, 101) if is_used(tmp_path / "journal" / file_name(number))]
    assert len(used) > 5
    node.journal.settle(1, 1, 100)
    for _ in range(3):  # the settling, the TRIM, and then it is safe
        numbers = node.journal.deletable()
        append = node.journal.take(sync=True)
        if append is not None:
            node.disk.submit(append)
            node.wait(append.position)
    assert numbers == used[:-1]
    for number in numbers:
        node.disk.delete(DeleteJournalSegment(1000 + number, number))
    node.disk.delete(DeleteJournalSegment(1, 1))
    with node.changed:
        assert node.changed.wait_for(
            lambda: sum(isinstance(i, Done) for i in node.inputs) == len(numbers) + 1, PATIENCE_S
        )
    assert node.disk.close()
    assert [path.name for path in (tmp_path / "journal").glob("*.mqj")] == [file_name(used[-1])]


def test_an_append_larger_than_a_segment_has_one_of_its_own(node: Node, tmp_path: Path) -> None:
    big = os.urandom(300 << 10)
    for number, body in enumerate((b"before", big, b"behind"), 1):
        position = node.store(number, body)
    node.wait(position)
    assert node.disk.close()
    assert (tmp_path / "journal" / file_name(2)).stat().st_size > len(big)
    again = Node(tmp_path / "journal")
    assert bodies(again.recovered) == [b"before", big, b"behind"]
    again.disk.close()


def test_a_file_has_as_much_room_again_behind_a_checkpoint_that_fills_it(node: Node, tmp_path: Path) -> None:
    """Of very many queues: else each append would have a file of its own, with all of them in front."""
    for number in range(2, 802):
        node.journal.declare(number, encode_attributes({"name": f"queue-{number}" + "x" * 90}))
    position = 0
    for number in range(1, 21):
        position = node.store(number, bytes([number]) * 4000)
    node.wait(position)
    sizes = [path.stat().st_size for path in (tmp_path / "journal").glob("*.mqj")]
    assert len(sizes) <= 4  # the next one is made beside the others, and may be still to come
    assert max(sizes) > 2 * 64 << 10
    assert node.disk.close()
    again = Node(tmp_path / "journal")
    assert bodies(again.recovered) == [bytes([number]) * 4000 for number in range(1, 21)]
    assert len(again.recovered.queues) == 801
    again.disk.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_ends_it_and_nothing_is_reported_after(tmp_path: Path, code: int) -> None:
    files = SlowFiles()
    node = Node(tmp_path, files)
    position = node.store(1, b"x")
    node.wait(position)
    files.sync_error = code
    node.store(2, b"y")
    deadline_s = time.monotonic() + PATIENCE_S
    while not node.faults and time.monotonic() < deadline_s:
        time.sleep(0.005)
    files.sync_error = None
    node.store(3, b"z")
    assert node.store(4, b"z", is_inline=True) not in node.positions
    assert not node.disk.close()
    assert node.positions[-1] == position
    assert len(node.faults) == 1
    assert os.strerror(code) in str(node.faults[0])
    assert str(tmp_path) in str(node.faults[0])
    assert not node.disk.is_alive()


@pytest.mark.option("journal.journal-sync")
@pytest.mark.parametrize("is_one_call", [True, False])
@pytest.mark.parametrize("is_on", [True, False])
def test_without_journal_sync_nothing_waits_for_the_disk(tmp_path: Path, is_on: bool, is_one_call: bool) -> None:
    files = CountingFiles(is_one_call)
    node = Node(tmp_path, files, journal_sync=is_on)
    node.journal.declare(1, encode_attributes({}))
    for number in range(1, 11):
        node.wait(node.store(number, b"x"))
    assert node.disk.close()
    assert files.synced_after_data is is_on
    assert len(bodies(node.directory.load())) == 10


class CountingFiles(Files):
    """Whether entries were synced (a prepared file is too, after its zeros). `is_one_call`: by the write itself."""

    def __init__(self, is_one_call: bool) -> None:
        super().__init__()
        self.synced_after_data = False
        self._is_one_call = is_one_call
        self._data: set[int] = set()

    def can_write_synced(self, directory: Path) -> bool:
        return self._is_one_call

    def write(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        if bytes(chunks[0][: len(ENTRY_MARK)]) == ENTRY_MARK:
            self._data.add(fd)
        super().write(fd, chunks, offset)

    def sync(self, fd: int) -> None:
        self.synced_after_data |= fd in self._data
        super().sync(fd)

    def write_synced(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        assert self._is_one_call
        self.synced_after_data = True
        super().write_synced(fd, chunks, offset)


class ShutFiles(Files):
    """As on a disk that fails after recovery has read it."""

    def open(self, path: Path) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def test_a_last_segment_that_can_not_be_opened_is_a_fault(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.journal.declare(1, encode_attributes({}))
    node.wait(node.store(1, b"x"))
    assert node.disk.close()
    directory = JournalDirectory(tmp_path, NODE_ID, node.options)
    recovered = directory.load()
    directory.files = ShutFiles()
    with pytest.raises(StorageFault, match=rf"{file_name(1)}: {os.strerror(errno.EIO)}; look at the disk"):
        Disk(directory, recovered, node.post, node.faults.append)


class FullFiles(Files):
    """No room for another file, once `is_full`."""

    is_full = False

    def write(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        if self.is_full and len(chunks) == 1 and len(chunks[0]) == 64:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(fd, chunks, offset)


def test_a_full_disk_is_fatal_only_when_the_next_file_is_needed(tmp_path: Path) -> None:
    files = FullFiles()
    node = Node(tmp_path, files)
    node.wait(node.store(1, bytes(20_000)))
    time.sleep(0.2)
    files.is_full = True
    node.wait(node.store(2, bytes(20_000)))
    node.wait(node.store(3, bytes(40_000)))  # the file that was ready
    node.store(4, bytes(40_000))
    assert not node.disk.close()
    assert "No space left" in str(node.faults[0])
    assert "free space" in str(node.faults[0])


@pytest.mark.slow
def test_submit_waits_while_too_much_is_on_its_way(tmp_path: Path) -> None:
    files = SlowFiles()
    node = Node(tmp_path, files, disk_pending_bytes_max=64 << 10)
    node.wait(node.store(1, b"x"))
    files.gate.clear()
    sent: list[int] = []

    def send() -> None:
        sent.extend(node.store(number, bytes(30 << 10)) for number in range(2, 42))

    sender = threading.Thread(target=send)
    sender.start()
    sender.join(0.5)
    assert sender.is_alive()
    assert node.disk.pending_bytes <= (64 << 10) * 8 + (31 << 10)
    files.gate.set()
    sender.join(PATIENCE_S)
    node.wait(sent[-1])
    assert node.disk.pending_bytes == 0
    node.disk.close()


def test_the_lock_keeps_a_second_holder_out(tmp_path: Path) -> None:
    lock = DataLock(tmp_path)
    with pytest.raises(StorageFault, match=rf"another process \(pid {os.getpid()}\) uses this data directory"):
        DataLock(tmp_path)
    lock.release()
    DataLock(tmp_path).release()


def test_the_lock_needs_the_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageFault, match="can't be opened"):
        DataLock(tmp_path / "missing")
