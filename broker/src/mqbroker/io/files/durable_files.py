"""Small files that must be wholly old or wholly new after a crash: mode 0600, owned like their directory, synced."""

from __future__ import annotations

import os
from pathlib import Path

MODE = 0o600


def replace(file: Path, content: bytes) -> None:
    """Put `content` in the place of `file`, whether it exists or not. Raises OSError; then the old file stands."""
    temporary = _written(file, content)
    try:
        temporary.replace(file)
    except OSError:
        temporary.unlink()
        raise
    sync_directory(file.parent)


def create(file: Path, content: bytes) -> None:
    """Make `file` unless it exists. Raises FileExistsError, also if another process makes it in this moment."""
    temporary = _written(file, content)
    try:
        os.link(temporary, file)
    finally:
        temporary.unlink()
    sync_directory(file.parent)


def make_directory(path: Path) -> None:
    """Make a directory (0700), and those above it, unless they are there; their names survive a power cut."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in reversed(missing):
        sync_directory(each.parent)


def give_to_owner(descriptor: int, directory: Path) -> None:
    """Root acts on behalf of the broker's own user, who must be able to read and replace the file."""
    if os.geteuid() == 0:
        owner = directory.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def give_path_to_owner(file: Path) -> None:
    """The same for a file that something else made."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        give_to_owner(descriptor, file.parent)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make names in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _written(file: Path, content: bytes) -> Path:
    temporary = file.with_name(f"{file.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)  # of a process before us that was killed, or of somebody who may write there
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, MODE)
        give_to_owner(descriptor, file.parent)
        stream.write(content)
        stream.flush()
        os.fsync(descriptor)
    return temporary
