"""Writes that are on disk when they return."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mqbroker.io.disk.files import WRITES_SYNCED, Files, file_system_of
from mqbroker.io.files.writes import IOV_MAX, JOIN_BYTES_MAX


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


class Kernel:
    """Passes calls on, as many bytes at once as it likes, and remembers them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_once: int = 1 << 30) -> None:
        self.calls: list[Any] = []
        self._at_once = at_once
        self._pwrite, self._fdatasync = os.pwrite, os.fdatasync
        monkeypatch.setattr("mqbroker.io.files.writes._pwritev", self.pwritev)
        monkeypatch.setattr("os.fdatasync", self.fdatasync)

    def pwritev(self, fd: int, chunks: Sequence[memoryview], offset: int, flags: int = 0) -> int:
        assert len(chunks) <= IOV_MAX
        self.calls.append((offset, flags))
        return self._pwrite(fd, b"".join(chunks)[: self._at_once], offset)

    def fdatasync(self, fd: int) -> None:
        self.calls.append("fdatasync")
        self._fdatasync(fd)


def test_a_synced_write_is_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    with opened(tmp_path / "file") as fd:
        Files().write_synced(fd, (b"head", b"body", b"end"), 3)
    assert kernel.calls == [(3, os.RWF_DSYNC)]
    assert (tmp_path / "file").read_bytes() == b"\0\0\0headbodyend"


def test_what_the_kernel_left_of_a_synced_write_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, at_once=40_000)
    chunks = (b"a" * JOIN_BYTES_MAX, b"b" * 10_000)
    with opened(tmp_path / "file") as fd:
        Files().write_synced(fd, chunks, 0)
    assert kernel.calls == [(0, os.RWF_DSYNC), (40_000, os.RWF_DSYNC)]
    assert (tmp_path / "file").read_bytes() == b"".join(chunks)


def test_more_than_a_call_takes_is_synced_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    chunks = [b"%05d" % number * 20 for number in range(IOV_MAX + 1)]
    with opened(tmp_path / "file") as fd:
        Files().write_synced(fd, chunks, 0)
    assert kernel.calls == [(0, 0), (IOV_MAX * 100, 0), "fdatasync"]
    assert (tmp_path / "file").read_bytes() == b"".join(chunks)


def test_a_synced_write_fails_as_a_write_does(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            Files().write_synced(fd, (b"x",), 0)
    finally:
        os.close(fd)


@pytest.mark.parametrize("place", ["/proc", "/dev/shm", "/"])
def test_file_systems_are_found_by_their_device(place: str) -> None:
    said = subprocess.run(["findmnt", "-nfo", "FSTYPE", place], capture_output=True, text=True, check=True)
    kind = file_system_of(os.stat(place).st_dev)
    assert kind == said.stdout.strip()
    assert Files().can_write_synced(Path(place)) is (kind in WRITES_SYNCED)


def test_a_file_system_that_is_not_found_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert file_system_of(os.makedev(4000, 1)) == ""
    monkeypatch.setattr("mqbroker.io.disk.files.MOUNTS", tmp_path / "none")
    assert not Files().can_write_synced(tmp_path)
