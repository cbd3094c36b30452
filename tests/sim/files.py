"""A simulated file system beneath the broker's own journal directory: pages, a disk with a cache, and names.

What a process writes is in the pages of its file at once. A sync hands those on to the disk, and tells it to put them
where a power cut does not reach. Names last once their directory is synced. After a power cut each sector is as it was
at some time since it was last safe, and some first part of the changes of names has happened.

The disk may lie: then a sync is confirmed, and what it was for stays in the disk's cache. It may also put sectors
elsewhere: behind or before their place, or into another file. The pages are right for as long as they are in memory.
The power may go off at any call: it fails, and so do all behind it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mqbroker.io.disk.files import Files
from mqbroker.io.disk.journal_directory import UNNAMED_SUFFIX
from mqbroker.journal.entry import Chunk
from mqbroker.journal.format import SECTOR_BYTES

DIRECTORY: Final = Path("/simulated/journal")
FREE_BYTES: Final = 1 << 40
# How far behind or before its place a write lands, in sectors.
SHIFTS: Final = (-64, -8, -3, -1, 1, 2, 8, 64)


class PowerIsOff(OSError):
    """Nothing that is asked for happens any more."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, "the power is off")


class SimFile:
    """`pages` are what processes see, `safe` what a power cut leaves; `dirty` was never handed to the disk."""

    def __init__(self) -> None:
        self.pages = bytearray()
        self.safe = bytearray()
        self.dirty: list[tuple[int, bytes]] = []  # offset, whole sectors

    def write(self, offset: int, data: bytes) -> None:
        """Into the pages."""
        _put(self.pages, offset, data)
        start = offset - offset % SECTOR_BYTES
        stop = min(-(-(offset + len(data)) // SECTOR_BYTES) * SECTOR_BYTES, len(self.pages))
        self.dirty.append((start, bytes(self.pages[start:stop])))


class SimFiles(Files):
    """One directory on one disk."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.named: dict[str, SimFile] = {}
        self._safely_named: dict[str, SimFile] = {}
        self._changes: list[dict[str, SimFile | None]] = []  # of names, since the directory was synced
        self._cache: list[tuple[SimFile, int, bytes]] = []  # of the disk, in its order
        self._open: dict[int, SimFile] = {}
        self._fd = 0
        self.is_lying = False
        self.lies = 0
        self.is_misdirecting = False  # the next sync puts the last write elsewhere
        self.misdirected = 0
        self.used_again = 0  # files that became another segment's
        self.calls_left: int | None = None  # until the power goes off
        self.is_off = False
        self.when_off: Callable[[], None] = lambda: None

    # -- what the broker calls -----------------------------------------------------------------------------------------

    def number(self, kind: str) -> int:
        if self.is_off:
            raise PowerIsOff
        if self.calls_left is not None and kind in ("create", "write", "sync", "sync_directory", "rename", "unlink"):
            self.calls_left -= 1
            if self.calls_left < 0:
                self.is_off = True
                self.when_off()
                raise PowerIsOff
        return super().number(kind)

    def make_directory(self, directory: Path) -> None:
        self.number("make_directory")

    def names(self, directory: Path) -> list[str]:
        self.number("names")
        return sorted(self.named)

    def read(self, path: Path) -> bytes:
        self.number("read")
        return bytes(self._file(path).pages)

    def read_piece(self, path: Path, offset: int, size_bytes: int) -> bytes:
        self.number("read_piece")
        return bytes(self._file(path).pages[offset : offset + size_bytes])

    def size(self, path: Path) -> int:
        self.number("size")
        return len(self._file(path).pages)

    def free_bytes(self, path: Path) -> int:
        return FREE_BYTES

    def create(self, path: Path) -> int:
        self.number("create")
        file = SimFile()
        self._change({path.name: file})
        return self._opened(file)

    def open(self, path: Path) -> int:
        self.number("open")
        return self._opened(self._file(path))

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)

    def write(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        data = b"".join(map(bytes, chunks))
        try:
            self.number("write")
        except PowerIsOff:
            if fd in self._open:
                self._open[fd].write(offset, data[: self._rng.randrange(len(data) + 1)])
            raise
        self._open[fd].write(offset, data)

    def can_write_synced(self, directory: Path) -> bool:
        return False

    def write_synced(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        self.write(fd, chunks, offset)
        self.sync(fd)

    def sync(self, fd: int) -> None:
        self.number("sync")
        file = self._open[fd]
        dirty, file.dirty = file.dirty, []
        if self.is_misdirecting and dirty:
            self.is_misdirecting = False
            self._misdirect(file, *dirty.pop())
        self._cache += [(file, offset, data) for offset, data in dirty]
        self._confirm()

    def sync_directory(self, directory: Path) -> None:
        self.number("sync_directory")
        if directory == DIRECTORY and not self.is_lying:
            self._safely_named, self._changes = dict(self.named), []
        self._confirm()

    def rename(self, old: Path, new: Path) -> None:
        self.number("rename")
        self.used_again += old.suffix == new.suffix == UNNAMED_SUFFIX
        self._change({old.name: None, new.name: self._file(old)})

    def unlink(self, path: Path) -> None:
        self.number("unlink")
        self._file(path)
        self._change({path.name: None})

    # -- faults --------------------------------------------------------------------------------------------------------

    def end(self, *, power_cut: bool) -> None:
        """The process is gone, and with a power cut what was in any memory."""
        self._open.clear()
        if power_cut or self.is_off:
            self._lose()
        self.calls_left, self.is_off = None, False

    def evict(self) -> None:
        """Clean pages go from memory: what is read next is what the disk has."""
        for file in self.named.values():
            if not file.dirty and all(held is not file for held, *_ in self._cache):
                file.pages = bytearray(file.safe)

    def put_back(self, files: dict[str, bytes]) -> None:
        """A backup in the place of all that is there."""
        self.named = {}
        for name, content in files.items():
            file = self.named[name] = SimFile()
            file.pages, file.safe = bytearray(content), bytearray(content)
        self._safely_named, self._changes, self._cache = dict(self.named), [], []

    def _lose(self) -> None:
        names = dict(self._safely_named)
        for change in self._changes[: self._rng.randrange(len(self._changes) + 1)]:
            _apply(names, change)
        for file in {id(each): each for each in [*self.named.values(), *names.values()]}.values():
            self._cache += [(file, offset, data) for offset, data in file.dirty]
            file.dirty = []
        self._keep_sectors()
        self.named, self._safely_named, self._changes = names, dict(names), []
        for file in names.values():
            file.pages = bytearray(file.safe)

    def _keep_sectors(self) -> None:
        """Each as it was at some time; in half of the cases, as it was before or as it is now."""
        is_torn, share = self._rng.random() < 0.5, self._rng.choice((0.0, 0.5, 1.0))
        sectors: dict[tuple[int, int], list[tuple[SimFile, bytes]]] = {}
        for file, offset, data in self._cache:
            for at in range(0, len(data), SECTOR_BYTES):
                key = id(file), offset + at
                sectors.setdefault(key, []).append((file, data[at : at + SECTOR_BYTES]))
        for (_, offset), pieces in sectors.items():
            kept = self._rng.randrange(len(pieces) + 1) if is_torn else len(pieces) * (self._rng.random() < share)
            for file, piece in pieces[:kept]:
                _put(file.safe, offset, piece)
        self._cache.clear()

    def _misdirect(self, file: SimFile, offset: int, data: bytes) -> None:
        self.misdirected += 1
        target = file
        if self._rng.random() < 0.5:
            target = self._rng.choice([self.named[name] for name in sorted(self.named)])
        else:
            offset += SECTOR_BYTES * self._rng.choice(SHIFTS)
        if self._rng.random() < 0.2:
            offset = SECTOR_BYTES * self._rng.randrange(max(len(target.safe) // SECTOR_BYTES, 1))
        data = data[: max(len(target.safe) - offset, 0)]  # elsewhere on the disk there is nothing of ours
        if offset >= 0 and data:
            self._cache.append((target, offset, data))

    # -- bookkeeping ---------------------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        if self.is_lying:
            self.lies += 1
            return
        for file, offset, data in self._cache:
            _put(file.safe, offset, data)
        self._cache.clear()

    def _change(self, change: dict[str, SimFile | None]) -> None:
        self._changes.append(change)
        _apply(self.named, change)

    def _file(self, path: Path) -> SimFile:
        if path.name not in self.named:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return self.named[path.name]

    def _opened(self, file: SimFile) -> int:
        self._fd += 1
        self._open[self._fd] = file
        return self._fd


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content += bytes(offset - len(content))
    content[offset : offset + len(data)] = data


def _apply(names: dict[str, SimFile], change: dict[str, SimFile | None]) -> None:
    for name, file in change.items():
        names.pop(name, None)
        if file is not None:
            names[name] = file
