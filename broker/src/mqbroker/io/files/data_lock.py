"""Keeps a second process out of a data directory.

An open-file-description lock on the file `lock`: the kernel releases it with the last descriptor, so a killed holder
never leaves a stale one, and unlike fcntl's process locks another open and close of the file in this process does not
drop it.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from mqbroker.base.errors import StorageFault
from mqbroker.io.files import regular_files

_FLOCK = struct.Struct("hhqqi")  # struct flock of Linux: type, whence, start, length, pid


class DataLock:
    """Held from construction to `release`. Raises StorageFault when somebody else holds it."""

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        try:
            self._fd = regular_files.opened_of_ours(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            why = f"the lock can't be opened: {error.strerror}"
            remedy = "the directory must exist and belong to the broker's user"
            raise StorageFault(str(path), -1, why, remedy) from error
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            holder = os.pread(self._fd, 64, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise _refusal(path, error, holder) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Let others in. Later calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _refusal(path: Path, error: OSError, holder: str) -> StorageFault:
    if not isinstance(error, BlockingIOError | PermissionError):
        why = f"it can't be locked: {error.strerror}"
        return StorageFault(str(path), -1, why, "use a file system that knows locks of open files")
    why = f"another process{f' (pid {holder})' if holder else ''} uses this data directory"
    return StorageFault(str(path), -1, why, "stop that one first, or give this node a directory of its own")
