"""Announcements by files in a directory that all nodes share: each writes one of its own and reads those of others.

Owns a thread for each endpoint, since a shared file system may hang. A file is put in its place as a whole. It counts
as heard when its content has changed since the last look: the clocks of other hosts mean nothing here, and a file that
is there already at the first look may be that of a node long gone. Files of others are never removed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from mqbroker.cluster.discovery.entries import ENTRIES_MAX
from mqbroker.cluster.discovery.note import NAME, NOTE_BYTES_MAX, file_name, to_datagram, to_note
from mqbroker.config.slices import BroadcastGroupOptions, DiscoveryGroupOptions
from mqbroker.io.discovery.broadcast_endpoints import EndpointUnreachable, Listener, PollingEar
from mqbroker.io.loop.worker import Worker

FILES_MAX = ENTRIES_MAX + 1  # of one directory, our own included
MODE = 0o644  # brokers of other hosts may have other users; it holds no secret
REMOVED_S = 1.0  # the end of the process waits for its file to go, and no longer


class FileMouth:
    """The endpoint of a broadcast group."""

    def __init__(self, options: BroadcastGroupOptions) -> None:
        self._directory = Path(options.directory)
        self._worker: Worker | None = None
        self._written: Path | None = None

    async def send(self, data: bytes) -> None:
        """Write the datagram into its file, in a thread (io/discovery/broadcast_endpoints.py:Mouth)."""
        if self._worker is None:
            self._worker = Worker()
        file = self._written = self._directory / file_name(data)
        try:
            await self._worker.run(lambda: _put(file, to_note(data)))
        except OSError as error:
            raise EndpointUnreachable(_why(error, file, "written")) from None

    def close(self) -> None:
        """Our file goes: who stops in order need not be waited for."""
        worker, file = self._worker, self._written
        self._worker = self._written = None
        if worker is not None and file is not None:
            worker.finish(lambda: _remove(file), REMOVED_S)


class FileEar(PollingEar):
    """The endpoint of a discovery group."""

    def __init__(self, options: DiscoveryGroupOptions) -> None:
        super().__init__(options.poll_period)
        self._directory = Path(options.directory)
        self._worker: Worker | None = None
        self._seen: dict[str, bytes] | None = None

    async def look(self, listener: Listener) -> None:
        """Read all files of the directory, in a thread (io/discovery/broadcast_endpoints.py:PollingEar)."""
        if self._worker is None:
            self._worker = Worker()
        try:
            contents = await self._worker.run(lambda: _contents(self._directory))
        except OSError as error:
            raise EndpointUnreachable(_why(error, self._directory, "read")) from None
        seen, self._seen = self._seen, contents
        for name, content in contents.items():
            if seen is not None and seen.get(name) != content:
                listener.heard(str(self._directory / name), to_datagram(content))

    def close(self) -> None:
        """Look no more, and end the thread (io/discovery/broadcast_endpoints.py:Ear)."""
        super().close()
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _put(file: Path, content: bytes) -> None:
    """Whole or not at all for who reads it. After a power cut it is written again anyway, so nothing is synced."""
    temporary = file.with_name(f".{file.name}.new")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, MODE)
        stream.write(content)
    temporary.replace(file)


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()


def _contents(directory: Path) -> dict[str, bytes]:
    """Name and content of each file that may be an announcement. Raises OSError."""
    names = sorted(name for name in os.listdir(directory) if NAME.fullmatch(name))
    if len(names) > FILES_MAX:
        why = f"it holds {len(names)} files of nodes, and {FILES_MAX} may be; remove those of nodes that are gone"
        raise OSError(0, why)
    contents = {}
    for name in names:
        content = _content(directory / name)
        if content is not None:
            contents[name] = content
    return contents


def _content(file: Path) -> bytes | None:
    """None: it is gone, or no plain file, or may not be read; what is too long is cut and so no announcement."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        is_plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, NOTE_BYTES_MAX + 1) if is_plain else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _why(error: OSError, path: Path, verb: str) -> str:
    what = f"{path} cannot be {verb}: {error.strerror or error}"
    return f"{what}; see that the directory is there, mounted, and the broker's user may use it; it is tried again"
