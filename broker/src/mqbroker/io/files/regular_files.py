"""Opening files that people name, to be read: whatever stands in their place, nothing waits for it.

Owns one rule: what is no regular file is refused. A FIFO waits for somebody who writes, and all that the broker does
would wait with it. Where only we put files, in a data directory, a symbolic link is refused as well: whoever may write
there could have root change a file elsewhere. Source: fifo(7), open(2).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


class NotRegular(OSError):
    """Something else stands in the place of a file."""


def opened(file: Path) -> BinaryIO:
    """The file, to be read. Raises OSError, whose `strerror` says as well what it is instead of a regular file."""
    # To open a device may do something already, and of a socket it says nothing; what is true may change until then.
    _check(os.stat(file), file)
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor), file)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def opened_of_ours(path: Path, flags: int, mode: int = 0) -> int:
    """A descriptor of a file in a directory that is ours, whose name is no link. Raises OSError."""
    try:
        check_of_ours(path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        _check(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_of_ours(path: Path) -> os.stat_result:
    """What the system says of such a file. Raises OSError."""
    status = os.lstat(path)
    _check(status, path)
    return status


def _check(status: os.stat_result, file: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise NotRegular(errno.EINVAL, f"Is {kind} and no regular file", str(file))
