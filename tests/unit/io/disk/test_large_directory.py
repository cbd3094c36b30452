"""Files of large messages: what is on disk when it is said to be, and what becomes of calls that fail."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from mqbroker.io.disk import large_directory
from mqbroker.io.disk.files import Files
from mqbroker.io.disk.large_directory import LargeDirectory

from tests.crash.faulty_files import FaultyFiles, Point


def test_what_is_written_in_pieces_is_read_in_others(tmp_path: Path) -> None:
    directory = LargeDirectory(tmp_path / "large-messages")
    assert directory.sizes() == {}
    directory.write(7, 0, (b"abc", b"def"))
    directory.write(7, 6, (b"ghi",))
    directory.finish(7, sync=True)
    assert directory.read(7, 2, 5) == b"cdefg"
    assert directory.sizes() == {7: 9}
    assert (tmp_path / "large-messages" / "7.msg").stat().st_mode & 0o777 == 0o600


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("not ours")
    (tmp_path / "12.msg").write_bytes(b"four")
    assert LargeDirectory(tmp_path).sizes() == {12: 4}


def test_a_read_behind_the_end_is_an_error(tmp_path: Path) -> None:
    directory = LargeDirectory(tmp_path)
    directory.write(1, 0, (b"abc",))
    directory.finish(1, sync=False)
    with pytest.raises(OSError, match="1 bytes at byte 2, not 5"):
        directory.read(1, 2, 5)


def test_what_is_not_there_is_deleted_too(tmp_path: Path) -> None:
    directory = LargeDirectory(tmp_path)
    directory.write(1, 0, (b"abc",))
    directory.delete(1)
    directory.delete(1)
    assert directory.sizes() == {}


def test_many_that_are_written_at_once_need_few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_directory, "OPEN_MAX", 2)
    files = Files()
    directory = LargeDirectory(tmp_path, files)
    for piece in range(3):
        for file in range(1, 6):
            directory.write(file, piece, (b"x",))
    assert files.calls["sync"] > 0, "closed without a sync, a late error would be told to nobody"
    for file in range(1, 6):
        directory.finish(file, sync=False)
    assert directory.sizes() == dict.fromkeys(range(1, 6), 3)


@pytest.mark.parametrize("kind", ["create", "write", "sync", "sync_directory"])
def test_after_a_failed_call_its_file_is_of_no_use_and_others_are(tmp_path: Path, kind: str) -> None:
    """Also where a second try would succeed."""
    path = tmp_path / "large-messages"
    path.mkdir()
    files = FaultyFiles(path, Point(kind, 1, "error", errno.ENOSPC), 1)
    directory = LargeDirectory(path, files)
    directory.sizes()
    with pytest.raises(OSError, match="No space left"):
        upload(directory, 1)
    with pytest.raises(OSError, match="No space left"):
        directory.finish(1, sync=True)
    directory.delete(1)
    upload(directory, 2)
    assert directory.sizes() == {2: 3}


def upload(directory: LargeDirectory, file: int) -> None:
    directory.write(file, 0, (b"abc",))
    directory.finish(file, sync=True)


@pytest.mark.parametrize("mode", ["lost", "sectors", "byte"])
def test_what_was_finished_with_a_sync_outlives_a_power_cut(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "large-messages"
    path.mkdir()
    files = FaultyFiles(path, None, 5)
    directory = LargeDirectory(path, files)
    directory.sizes()
    upload(directory, 1)
    directory.write(2, 0, (b"x" * 2000,))
    files.leave(mode)
    assert LargeDirectory(path).sizes()[1] == 3
    assert LargeDirectory(path).read(1, 0, 3) == b"abc"
