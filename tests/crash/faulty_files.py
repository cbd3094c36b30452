"""Files that remember what a power cut would leave: real files beneath, and of each the part that was synced.

A `Point` names one call by kind and number, and what happens there. `named_again` is no call but an instant: a file
that was another segment's has its new name, on disk. From a power cut on every call fails, as for a process that is
gone, and `FaultyFiles.leave` turns the real directory into what the next boot would find:

    kill      the page cache survives: everything that was handed over, the interrupted write up to some byte
    lost      nothing that was not synced, names of files included
    sectors   of what was not synced some sectors of 512 bytes, and some first part of the renames and deletions
    byte      of what was not synced the first part up to some byte, in the order of the calls
    error     no power cut: this one call fails with `code`. After a failed sync the next process still reads all of the
              file, but part of it is not on disk and, unless it is written again, never will be
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mqbroker.io.disk.files import Files
from mqbroker.io.disk.journal_directory import UNNAMED_SUFFIX
from mqbroker.journal.entry import Chunk
from mqbroker.journal.format import SECTOR_BYTES

MODES = ("kill", "lost", "sectors", "byte")


class Point(NamedTuple):
    kind: str
    number: int
    mode: str
    code: int = 0


class Inode:
    """One file: what is on disk for certain, and the writes that are not."""

    def __init__(self) -> None:
        self.durable = b""
        self.pending: list[tuple[int, bytes]] = []

    def now(self) -> bytes:
        content = self.durable
        for offset, data in self.pending:
            content = overwrite(content, offset, data)
        return content


def overwrite(content: bytes, offset: int, data: bytes) -> bytes:
    return content.ljust(offset, b"\0")[:offset] + data + content[offset + len(data) :]


class FaultyFiles(Files):
    """Over one directory. `before`: the same machine goes on, with what it holds in memory; else it has just booted."""

    def __init__(self, directory: Path, point: Point | None, seed: int, before: FaultyFiles | None = None) -> None:
        super().__init__()
        self.point = point
        self.is_off = False
        self._used_again: list[Inode] = []  # files that became another segment's
        self._is_named_again = False
        self._random = random.Random(seed)
        self._seed = seed
        self._directory = directory
        self._lock = threading.RLock()
        self._names: dict[str, Inode] = {}
        self._open: dict[int, Inode] = {}
        self._changes: list[tuple[str, Inode | None]] = []
        directory.mkdir(exist_ok=True)
        if before is not None:
            self._names, self._durable_names, self._changes = before._names, before._durable_names, before._changes
            return
        for path in directory.iterdir():
            self._names[path.name] = inode = Inode()
            inode.durable = path.read_bytes()
        self._durable_names = dict(self._names)

    def number(self, kind: str) -> int:
        with self._lock:
            if self.is_off:
                raise OSError(errno.EIO, "the power is off")
            n = super().number(kind)
            if self.point is not None and self.point[:2] == (kind, n):
                self.is_off = self.point.mode != "error"
                raise OSError(self.point.code or errno.EIO, os.strerror(self.point.code or errno.EIO))
            return n

    def create(self, path: Path) -> int:
        with self._lock:
            fd = super().create(path)
            self._open[fd] = inode = Inode()
            self._rename(path.name, inode)
            return fd

    def open(self, path: Path) -> int:
        with self._lock:
            fd = super().open(path)
            self._open[fd] = self._names[path.name]
            return fd

    def can_write_synced(self, directory: Path) -> bool:
        """Every other seed stands for a file system that cannot."""
        return self._seed % 2 == 0

    def write_synced(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        """What the one call leaves is what one of the two leaves, so they are taken apart."""
        with self._lock:
            self.write(fd, chunks, offset)
            self.sync(fd)

    def write(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        data = b"".join(chunks)
        with self._lock:
            inode = self._open[fd]
            try:
                super().write(fd, chunks, offset)
            except OSError:
                # The interrupted call has done some part of its work.
                done = data[: self._random.randrange(len(data) + 1)]
                os.pwrite(fd, done, offset)
                inode.pending.append((offset, done))
                raise
            inode.pending.append((offset, data))

    def sync(self, fd: int) -> None:
        with self._lock:
            inode = self._open[fd]
            try:
                super().sync(fd)
            except OSError:
                if self.point is not None and self.point.mode == "error":
                    # As Linux does it: the pages are clean, and a second sync succeeds without writing them.
                    inode.pending = inode.pending[: self._random.randrange(len(inode.pending) + 1)]
                raise
            inode.durable, inode.pending = inode.now(), []

    def sync_directory(self, directory: Path) -> None:
        with self._lock:
            super().sync_directory(directory)
            if directory != self._directory:
                return
            self._durable_names, self._changes = dict(self._names), []
            if self._is_named_again:
                self._is_named_again = False
                self.number("named_again")

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            super().rename(old, new)
            inode = self._names[old.name]
            if old.suffix == new.suffix == UNNAMED_SUFFIX:
                self._used_again.append(inode)
            elif old.suffix == UNNAMED_SUFFIX and inode in self._used_again:
                self._is_named_again = True
            self._rename(new.name, inode)
            self._rename(old.name, None)

    def unlink(self, path: Path) -> None:
        with self._lock:
            super().unlink(path)
            self._rename(path.name, None)

    def _rename(self, name: str, inode: Inode | None) -> None:
        self._changes.append((name, inode))
        self._names.pop(name, None)
        if inode is not None:
            self._names[name] = inode

    def leave(self, mode: str) -> None:
        """Make the real directory what the next boot finds."""
        names = dict(self._names)
        if mode != "kill":
            names = dict(self._durable_names)
            kept = 0 if mode == "lost" else self._random.randrange(len(self._changes) + 1)
            for name, inode in self._changes[:kept]:
                names.pop(name, None)
                if inode is not None:
                    names[name] = inode
        for path in self._directory.iterdir():
            path.unlink()
        for name, inode in names.items():
            (self._directory / name).write_bytes(self._content(inode, mode))

    def _content(self, inode: Inode, mode: str) -> bytes:
        if mode == "kill":
            return inode.now()
        if mode == "lost":
            return inode.durable
        if mode == "byte":
            return self._up_to_some_byte(inode)
        return self._some_sectors(inode)

    def _up_to_some_byte(self, inode: Inode) -> bytes:
        left = self._random.randrange(sum(len(data) for _, data in inode.pending) + 1)
        content = inode.durable
        for offset, data in inode.pending:
            content = overwrite(content, offset, data[:left])
            left = max(0, left - len(data))
        return content

    def _some_sectors(self, inode: Inode) -> bytes:
        old, new = inode.durable, inode.now()
        old = old.ljust(len(new), b"\0")
        share = self._random.random()
        sectors = [
            (new if self._random.random() < share else old)[at : at + SECTOR_BYTES]
            for at in range(0, len(new), SECTOR_BYTES)
        ]
        return b"".join(sectors)
