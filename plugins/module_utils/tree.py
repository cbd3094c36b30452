# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A folder as one archive. What comes out belongs to root and may be read by all, whatever it was before."""

from __future__ import annotations

import os
import tarfile
from typing import IO

FILE_MODE, FOLDER_MODE = 0o644, 0o755


class TreeFault(Exception):
    """The archive holds something that is neither a file nor a folder, or that belongs elsewhere."""


def pack(folder: str, archive: IO[bytes]) -> None:
    """Write the files and folders below `folder` into an archive, in the order of their names."""
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for root, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted([*folders, *files]):
                path = os.path.join(root, name)
                tar.add(path, os.path.relpath(path, folder), recursive=False, filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = FOLDER_MODE if entry.isdir() else FILE_MODE
    return entry


def unpack(archive: str, folder: str) -> None:
    """Write what is in the archive into `folder`, which is made. Raises TreeFault, OSError."""
    with tarfile.open(archive) as tar:
        entries = tar.getmembers()
        wrong = [one.name for one in entries if not _belongs(one)]
        if wrong:
            raise TreeFault(f"{wrong[0]} is not unpacked")
        os.makedirs(folder, FOLDER_MODE, exist_ok=True)
        for one in entries:
            tar.extract(one, folder, numeric_owner=True, set_attrs=True)


def _belongs(entry: tarfile.TarInfo) -> bool:
    is_inside = not os.path.isabs(entry.name) and ".." not in entry.name.split("/")
    return is_inside and (entry.isreg() or entry.isdir())
