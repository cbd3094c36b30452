"""Every call by which the journal and large messages touch their files: no policy, no state but a count of the calls.

The calls are numbered by kind, so "the third `sync`" names one point of a run at which a test can let the power fail.
A test derives from `Files`; production code has no other hook. Failures come out as OSError: what they mean is for
the caller.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from mqbroker.io.files.regular_files import check_of_ours, opened_of_ours
from mqbroker.io.files.writes import write_chunks, write_chunks_synced
from mqbroker.journal.entry import Chunk

ZEROS = bytes(1 << 20)
MOUNTS = Path("/proc/self/mountinfo")
# File systems that sync what is written with RWF_DSYNC as fdatasync does.
WRITES_SYNCED = ("ext4", "xfs")


class Files:
    """The real thing. Thread-safe as far as the operating system is; paths are absolute."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def number(self, kind: str) -> int:
        """Called first by every method: which call of its kind this is, from 1 on."""
        self.calls[kind] += 1
        return self.calls[kind]

    def make_directory(self, directory: Path) -> None:
        """With those above it; it may be there."""
        self.number("make_directory")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def names(self, directory: Path) -> list[str]:
        self.number("names")
        return sorted(os.listdir(directory))

    def read(self, path: Path) -> bytes:
        """A whole file, in memory of its own: the system has it back as soon as nobody looks at it.

        What the allocator gives out by megabytes it keeps for the next time, and only a start reads whole files. Like
        that of `MappedFiles` the mapping is no `bytes`, but nothing changes or fails under whoever looks at it.
        """
        self.number("read")
        with os.fdopen(opened_of_ours(path, os.O_RDONLY), "rb", buffering=0) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if not size_bytes:
                return b""
            content = mmap.mmap(-1, size_bytes)
            view = memoryview(content)
            done = 0
            while done < size_bytes and (count := file.readinto(view[done:])):
                done += count
            if done < size_bytes:
                raise OSError(errno.EIO, "the file became shorter while it was read", str(path))
            return cast(bytes, content)

    def read_piece(self, path: Path, offset: int, size_bytes: int) -> bytes:
        """A piece of a file; less at its end."""
        self.number("read_piece")
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces = []
            while size_bytes and (piece := os.pread(fd, size_bytes, offset)):
                pieces.append(piece)
                offset += len(piece)
                size_bytes -= len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        finally:
            os.close(fd)

    def read_cached(self, path: Path, offset: int, size_bytes: int) -> bytearray | None:
        """A piece of a file without waiting for the disk; None where not all of it is at hand."""
        self.number("read_cached")
        data = bytearray(size_bytes)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return data if os.preadv(fd, [data], offset, os.RWF_NOWAIT) == size_bytes else None
        finally:
            os.close(fd)

    def size(self, path: Path) -> int:
        self.number("size")
        return check_of_ours(path).st_size

    def free_bytes(self, path: Path) -> int:
        """What may be written to the file system of `path`."""
        self.number("free_bytes")
        return free_bytes(path)

    def create(self, path: Path) -> int:
        """Open for writing, empty whatever it held. Only the owner may read: messages are private."""
        self.number("create")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def open(self, path: Path) -> int:
        self.number("open")
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def open_for_reading(self, path: Path) -> int:
        self.number("open_for_reading")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        """`length` bytes, fewer only where the file ends."""
        self.number("read_at")
        parts: list[bytes] = []
        while length and (part := os.pread(fd, length, offset)):
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self, fd: int) -> None:
        self.number("close")
        os.close(fd)

    def write(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        """All of `chunks`, one behind the other, however many calls of the system that takes."""
        self.number("write")
        write_chunks(fd, chunks, offset)

    def can_write_synced(self, directory: Path) -> bool:
        """Whether the file system of `directory` is known to mind RWF_DSYNC. One that passes over it loses messages
        without a sign."""
        return file_system_of(directory.stat().st_dev) in WRITES_SYNCED

    def write_synced(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        """`write` and `sync`, in one call of the system: a thread gives up the interpreter, and waits to have it
        again, half as often. What is left where it fails is what one of the two leaves.

        Not counted, as each durable message pays for it. A test takes it apart."""
        write_chunks_synced(fd, chunks, offset)

    def sync(self, fd: int) -> None:
        """Data, and the metadata that is needed to find it again."""
        self.number("sync")
        os.fdatasync(fd)

    def sync_directory(self, directory: Path) -> None:
        """Make creations, renames and deletions in `directory` last."""
        self.number("sync_directory")
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        self.number("rename")
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        self.number("unlink")
        os.unlink(path)


class MappedFiles(Files):
    """Reads by mapping: what is looked at is in the page cache, not in this process, however large the files are.

    A mapping is no `bytes`, and a compiled function would refuse it: what reads whole files of the journal stays Python
    (docs/adr/0013-native-build.md).
    """

    def read(self, path: Path) -> bytes:
        self.number("read")
        with os.fdopen(opened_of_ours(path, os.O_RDONLY), "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return b""
            # Recovery slices, searches and views it, all of which a mapping does as bytes do.
            return cast(bytes, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def free_bytes(path: Path | str) -> int:
    """What may be written to the file system of `path`. May hang with it. Raises OSError."""
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def file_system_of(device: int) -> str:
    """The type of the file system that is mounted from this device (`st_dev`); empty where that is not to be found."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = MOUNTS.read_text(errors="replace")
    except OSError:
        return ""
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == wanted:
            return source.split()[0]
    return ""
