"""The directory of large messages: one file for each, by its id.

Invariants: a file that is finished with a sync is on disk, with its name, before that is told; a write or sync that
failed makes its file useless for good, because after a failed sync the kernel takes pages for clean that are not on
disk. Methods raise OSError. Source: docs/adr/0009-large-messages.md.
"""

from __future__ import annotations

import errno
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from mqbroker.io.disk.files import Files

OPEN_MAX = 64  # files that are being written and kept open; of others the data is synced before they are closed
_NAME = re.compile(r"(0|[1-9][0-9]{0,19})\.msg")


class LargeDirectory:
    """`sizes` first; then `write`, `finish` and `delete` belong to one thread, reads to any."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self._files = Files() if files is None else files
        self._open: OrderedDict[int, int] = OrderedDict()  # file -> descriptor, that which was used last at the end
        self._failed: dict[int, OSError] = {}
        self._is_made = False

    def path_of(self, file: int) -> Path:
        return self.path / f"{file}.msg"

    def sizes(self) -> dict[int, int]:
        """Bytes of all files that are there, by id."""
        try:
            names = self._files.names(self.path)
        except FileNotFoundError:
            return {}
        ids = (int(match[1]) for name in names if (match := _NAME.fullmatch(name)))
        return {file: self._files.size(self.path_of(file)) for file in sorted(ids)}

    def strangers(self) -> list[str]:
        """Names of what is no file of a large message."""
        try:
            return [name for name in self._files.names(self.path) if not _NAME.fullmatch(name)]
        except FileNotFoundError:
            return []

    def write(self, file: int, offset: int, chunks: Sequence[bytes]) -> None:
        """The piece at offset 0 makes the file."""
        self._check(file)
        try:
            fd = self._descriptor(file, is_new=offset == 0)
            self._files.write(fd, chunks, offset)
        except OSError as error:
            self._failed[file] = error
            raise

    def finish(self, file: int, *, sync: bool) -> None:
        """Nothing more is written to the file; `sync`: it has to be on disk. Raises OSError."""
        self._check(file)
        try:
            fd = self._descriptor(file, is_new=False)
            if sync:
                self._files.sync(fd)
                self._files.sync_directory(self.path)
            del self._open[file]
            self._files.close(fd)
        except OSError as error:
            self._failed[file] = error
            raise

    def read(self, file: int, offset: int, size_bytes: int) -> bytes:
        """So many bytes of the file from an offset on; raises OSError where there are fewer."""
        data = self._files.read_piece(self.path_of(file), offset, size_bytes)
        if len(data) != size_bytes:
            raise OSError(errno.EIO, f"{len(data)} bytes at byte {offset}, not {size_bytes}", str(self.path_of(file)))
        return data

    def read_cached(self, file: int, offset: int, size_bytes: int) -> bytearray | None:
        """The same where the kernel has it in memory, else None: for who must not wait for the disk."""
        try:
            return self._files.read_cached(self.path_of(file), offset, size_bytes)
        except OSError:
            return None  # not at hand, or a file system that cannot tell; an error comes again to who may wait

    def delete(self, file: int) -> None:
        """Also of a file that was never made. Not synced: what a power cut brings back, a start deletes again."""
        self._failed.pop(file, None)
        fd = self._open.pop(file, None)
        if fd is not None:
            os.close(fd)
        try:
            self._files.unlink(self.path_of(file))
        except FileNotFoundError:
            return

    def close(self) -> None:
        """Close all files that are open."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _check(self, file: int) -> None:
        error = self._failed.get(file)
        if error is not None:
            raise error

    def _descriptor(self, file: int, *, is_new: bool) -> int:
        fd = self._open.pop(file, None)
        if fd is None:
            self._make_room()
            if is_new:
                self._make()
            fd = self._files.create(self.path_of(file)) if is_new else self._files.open(self.path_of(file))
        self._open[file] = fd
        return fd

    def _make(self) -> None:
        """Once in each process, also where it is there: whoever made it may have died before its name was on disk."""
        if not self._is_made:
            self.path.mkdir(mode=0o700, exist_ok=True)
            self._files.sync_directory(self.path.parent)
            self._is_made = True

    def _make_room(self) -> None:
        """An error that comes when its data is written out is told to descriptors that are open: so sync first."""
        while len(self._open) >= OPEN_MAX:
            file, fd = self._open.popitem(last=False)
            try:
                self._files.sync(fd)
            except OSError as error:
                self._failed[file] = error
            finally:
                os.close(fd)
