"""A node that runs, as the source of a backup: the files that it holds while this one reads them.

The node lists them over its admin socket (admin/backups.py) and goes on. They are read beside it, no faster than was
asked for. At the end the node says whether it held them all the time: else what was read counts for nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mqbroker import __version__
from mqbroker.app.admin_requests import LocalAdmin
from mqbroker.app.backup import reading
from mqbroker.app.backup.manifest import BackupManifest, CopiedFile, id_of, large_name, segment_name
from mqbroker.base.errors import ConfigFault


class Throttle:
    """Lets so many bytes through in a second; 0: all."""

    def __init__(
        self, bytes_per_s: int, clock_s: Callable[[], float] = time.monotonic,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._bytes_per_s = bytes_per_s
        self._clock_s = clock_s
        self._sleep_s = sleep_s
        self._free_s = clock_s()  # from then on the next piece may come

    def passed(self, size_bytes: int) -> None:
        """So many bytes were read: wait for as long as they take. Time in which nothing was read is not made up for."""
        if not self._bytes_per_s:
            return
        now_s = self._clock_s()
        self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s
        self._sleep_s(self._free_s - now_s)


class RunningNode:
    """The source of one backup. Methods raise ConfigFault."""

    def __init__(self, session: LocalAdmin, hold_ms: int, throttle: Throttle) -> None:
        self._session = session
        self._throttle = throttle
        self._found: dict[str, Any] = session.call("backup-begin", hold_ms=hold_ms)
        self._directory = Path(self._found["data_directory"])

    def manifest(self) -> BackupManifest:
        """All files with their checksums: each is read once for that."""
        told, made = self._found, datetime.now(UTC).isoformat(timespec="seconds")
        with self._told():
            files = [self._looked_at(segment_name(number), used) for number, used in told["segments"]]
            files += [self._looked_at(large_name(file), None) for file in told["large"]]
        return BackupManifest(
            id_of(told["node"], made), told["node"], told["node_id"], made, __version__,
            told["boot"], told["term"], told["position"], tuple(files),
        )  # fmt: skip

    def content(self, file: CopiedFile) -> Iterator[bytes]:
        """The bytes of a file, piece by piece, as far as it is used."""
        with self._told():
            for piece in reading.pieces(self._directory / file.name, file.used_bytes):
                self._throttle.passed(len(piece))
                yield piece

    def end(self) -> None:
        """All is read, and it was held until now."""
        self._session.call("backup-end")

    def _looked_at(self, name: str, used_bytes: int | None) -> CopiedFile:
        path = self._directory / name
        size_bytes = path.stat().st_size
        used_bytes = size_bytes if used_bytes is None else used_bytes
        digest = hashlib.sha256()
        for piece in reading.pieces(path, used_bytes):
            digest.update(piece)
            self._throttle.passed(len(piece))
        for piece in reading.zeros(size_bytes - used_bytes):
            digest.update(piece)
        return CopiedFile(name, size_bytes, used_bytes, digest.hexdigest())

    def _told(self) -> _Told:
        return _Told(self)


class _Told:
    """What cannot be read because the node let go of it is told as that."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            self._node.end()  # says why it is not there any more
            raise ConfigFault(str(error.filename), f"cannot be read: {error.strerror}") from None
