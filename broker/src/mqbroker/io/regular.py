"""Opening files that people name, to be read: whatever stands in their place, nothing waits for it.

Owns one rule: what is no regular file is refused. A FIFO waits for somebody who writes, and all that the broker does
would wait with it. Source: fifo(7), open(2).
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
}


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


def _check(found: os.stat_result, file: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"Is {kind} and no regular file", str(file))
