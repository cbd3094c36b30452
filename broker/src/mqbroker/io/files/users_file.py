"""The file of users: read as a whole, replaced as a whole, mode 0600, owned by whoever owns its directory.

Changes from several processes are serialised by a lock file beside it; a crash leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from mqbroker.base.errors import ConfigFault
from mqbroker.config.users import UserVerifier, users_from_text, users_to_text
from mqbroker.io.files import durable_files, regular_files

FILE_BYTES_MAX = 16 * 1024 * 1024
ASIDE_MAX = 100


def read(file: Path) -> dict[str, UserVerifier]:
    """All users; none where there is no file yet. Raises ConfigFault."""
    try:
        with regular_files.opened(file) as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        why = f"cannot be read: {error.strerror}; it must be a file that the broker's user may read"
        raise ConfigFault(str(file), why) from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigFault(str(file), f"is larger than {FILE_BYTES_MAX} bytes; this is no file of users")
    try:
        return users_from_text(content.decode())
    except UnicodeDecodeError:
        raise ConfigFault(str(file), "is not UTF-8; restore it or set the users again") from None
    except ConfigFault as fault:
        raise ConfigFault(f"{file}: {fault.path}", fault.why) from None


def set_aside(file: Path) -> Path:
    """Move away what stands there and cannot be read; where it is now. Call it inside `locked`. Raises ConfigFault."""
    for number in range(1, ASIDE_MAX + 1):
        aside = file.with_name(f"{file.name}.damaged{'' if number == 1 else f'.{number}'}")
        if os.path.lexists(aside):
            continue
        try:
            file.rename(aside)
            durable_files.sync_directory(file.parent)
        except OSError as error:
            raise ConfigFault(str(file), f"cannot be moved away: {error.strerror}") from None
        return aside
    raise ConfigFault(str(file), f"cannot be read, and {ASIDE_MAX} like it are set aside already; remove some")


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock for a change of `file`; waits for other changers. Raises ConfigFault."""
    lock = file.with_name(file.name + ".lock")
    try:
        descriptor = regular_files.opened_of_ours(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        why = f"cannot be made: {error.strerror}; the directory must exist and be writable"
        raise ConfigFault(str(lock), why) from None
    try:
        durable_files.give_to_owner(descriptor, file.parent)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(file: Path, users: dict[str, UserVerifier]) -> None:
    """Replace the file. Call it inside `locked`. Raises ConfigFault; then the old file still stands."""
    try:
        durable_files.replace(file, users_to_text(users).encode())
    except OSError as error:
        raise ConfigFault(str(file), f"cannot be written: {error.strerror}") from None
