"""The threads for large messages: one answer for each effect, and the end of the node where there can be none."""

from __future__ import annotations

import errno
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqbroker.base.errors import StorageFault
from mqbroker.io.disk.files import Files
from mqbroker.io.disk.large_directory import LargeDirectory
from mqbroker.io.disk.large_messages import LargeMessageFiles
from mqbroker.node.values.effects import DeleteLarge, FinishLarge, ReadLarge, WriteLarge
from mqbroker.node.values.inputs import Done, Failed, Input

from tests.support.patience import PATIENCE_S

WAIT_S = PATIENCE_S


class Desk:
    """The threads, and what they say."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.said: queue.Queue[Input | StorageFault] = queue.Queue()
        self.large = LargeMessageFiles(LargeDirectory(path, files), self.said.put, self.said.put)

    def next(self) -> Input | StorageFault:
        return self.said.get(timeout=WAIT_S)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "large-messages")
    yield made
    made.large.close()


def test_effects_come_back_in_their_order(desk: Desk) -> None:
    desk.large.write(WriteLarge(1, 5, 0, (b"abc",)))
    desk.large.write(WriteLarge(2, 5, 3, (b"def",)))
    desk.large.finish(FinishLarge(3, 5, 6, (), True))
    assert [desk.next() for _ in range(3)] == [Done(1), Done(2), Done(3)]
    desk.large.read(ReadLarge(4, 5, 1, 4))
    assert desk.next() == Done(4, b"bcde")
    desk.large.delete(DeleteLarge(5, 5))
    desk.large.finish(FinishLarge(6, 6, 0, (b"gh", b"i"), False))
    assert desk.next() == Done(6)  # of a deletion only the failure is told
    assert desk.large.directory.sizes() == {6: 3}
    desk.large.read(ReadLarge(7, 6, 0, 3))
    assert desk.next() == Done(7, b"ghi")


def test_a_write_that_fails_says_so_and_so_does_the_finish(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "large-messages").write_text("in the way")
    desk.large.write(WriteLarge(1, 5, 0, (b"abc",)))
    desk.large.finish(FinishLarge(2, 5, 3, (b"def",), True))
    for effect_id in (1, 2):
        answer = desk.next()
        assert isinstance(answer, Failed)
        assert answer.id == effect_id
        assert "File exists" in answer.why


def test_a_read_that_fails_ends_the_node(desk: Desk, tmp_path: Path) -> None:
    desk.large.read(ReadLarge(1, 5, 0, 4))
    fault = desk.next()
    assert isinstance(fault, StorageFault)
    assert fault.file == str(tmp_path / "large-messages" / "5.msg")


def test_what_was_asked_for_is_done_before_the_end(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.large.write(WriteLarge(1, 5, 0, (b"abc",)))
    desk.large.delete(DeleteLarge(2, 5))
    desk.large.close()
    assert desk.next() == Done(1)
    assert desk.large.directory.sizes() == {}


def test_what_was_written_a_moment_ago_is_read_without_a_thread(desk: Desk) -> None:
    desk.large.finish(FinishLarge(1, 5, 0, (b"abc",), False))
    assert desk.next() == Done(1)
    for number, cached in enumerate((True, False)):
        if not cached:
            desk.large._recent.clear()
        desk.large.read(ReadLarge(2 + number, 5, 1, 2))
        assert desk.next() == Done(2 + number, b"bc")
        assert desk.large.directory._files.calls["read_cached"] == 1
        assert desk.large.directory._files.calls["read_piece"] == number


def test_what_the_kernel_has_not_at_hand_is_read_by_the_thread(tmp_path: Path) -> None:
    class Elsewhere(Files):
        def read_cached(self, path: Path, offset: int, size_bytes: int) -> bytearray | None:
            self.number("read_cached")
            if offset:
                raise BlockingIOError(errno.EAGAIN, "not in memory")
            return None

    desk = Desk(tmp_path, Elsewhere())
    desk.large.finish(FinishLarge(1, 5, 0, (b"abc",), False))
    assert desk.next() == Done(1)
    for offset in (0, 1):
        desk.large.read(ReadLarge(2, 5, offset, 2))
        assert desk.next() == Done(2, b"abc"[offset : offset + 2])
    assert desk.large.directory._files.calls["read_cached"] == 2
    desk.large.close()


def test_a_deletion_that_fails_says_so(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "large-messages" / "5.msg").mkdir(parents=True)
    desk.large.delete(DeleteLarge(1, 5))
    answer = desk.next()
    assert isinstance(answer, Failed)
    assert answer.id == 1


def test_only_so_many_files_are_taken_for_recent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqbroker.io.disk.large_messages.RECENT_MAX", 2)
    for file in (1, 2, 3):
        desk.large.finish(FinishLarge(file, file, 0, (b"abc",), False))
        assert desk.next() == Done(file)
    for file in (1, 2, 3):
        desk.large.read(ReadLarge(10 + file, file, 0, 3))
        assert desk.next() == Done(10 + file, b"abc")
    assert desk.large.directory._files.calls["read_cached"] == 2
