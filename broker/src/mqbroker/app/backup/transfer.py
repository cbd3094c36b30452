"""A backup on its way between two machines, over any two streams of bytes: a copy is asked for what it lacks only.

    source: the manifest, one line
    target: {"wanted": ["3a7b…", …]}, one line
    source: what is used of each of these files, one behind the other, in the order of the manifest; then {"end": true}
    target: {"result": …}, one line, when all of it is on disk and was read again

Whatever ends before its last line is nothing, and so is what falls silent while somebody waits with the data directory
locked (`Bounded`). Methods raise ConfigFault.
"""

from __future__ import annotations

import io
import json
import os
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from mqbroker.app.backup import manifest as manifests
from mqbroker.app.backup import reading
from mqbroker.app.backup.manifest import MANIFEST_BYTES_MAX, BackupManifest, CopiedFile
from mqbroker.base.errors import ConfigFault

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

WHERE: Final = "the backup on its way"
# Far beyond what a control node that lives makes anybody wait for. One that lost its power ends no connection: without
# a bound the node would be locked until the system gives that up, after two hours.
SILENCE_S: Final = 15 * 60.0


class Bounded(io.RawIOBase):
    """What the other end sends. It is cut off where nothing comes for so long."""

    def __init__(self, come: BinaryIO) -> None:
        self._descriptor = come.fileno()

    def readable(self) -> bool:
        """It is read, and nobody writes to it."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """What has come, at least a byte but at the end. Raises ConfigFault, which mqctl does not take for an echo of
        how the other end fell, as it takes what was "cut off"."""
        if not select.select([self._descriptor], [], [], SILENCE_S)[0]:
            raise ConfigFault(WHERE, f"nothing came for {SILENCE_S:g} s")
        return os.readv(self._descriptor, [buffer])


class BackupSource(Protocol):
    """Where a backup comes from."""

    def manifest(self) -> BackupManifest:
        """The manifest of what is to be copied."""

    def content(self, file: CopiedFile) -> Iterator[bytes]:
        """The bytes of a file, piece by piece, as far as it is used."""

    def end(self) -> None:
        """All was read. Raises ConfigFault where that counts for nothing."""


class BackupTarget(Protocol):
    """Where a backup goes: it says which files it lacks, and takes them."""

    def wanted(self, manifest: BackupManifest) -> list[CopiedFile]:
        """Of each checksum at most one file."""

    def take(self, file: CopiedFile, content: Iterable[bytes]) -> None:
        """Keep one of the wanted files: all its bytes, piece by piece."""

    def finish(self, manifest: BackupManifest) -> Any:
        """All files are there; what is said to whoever asked for the copy."""


def copy(
    source: BackupSource, target: BackupTarget, before_end: Callable[[], object] = lambda: None
) -> tuple[Any, int]:
    """Both are on this machine: what became of it, and how many bytes were copied.

    `before_end`: what is looked at when all is there and nothing counts yet; nothing does where that raises.
    """
    manifest = source.manifest()
    copied = 0
    for file in target.wanted(manifest):
        target.take(file, source.content(file))
        copied += file.used_bytes
    source.end()
    before_end()
    return target.finish(manifest), copied


def send(source: BackupSource, out: BinaryIO, answers: BinaryIO) -> None:
    """The source's side. The other end has it, and has read it, when this returns."""
    manifest = source.manifest()
    with _broken():
        out.write(manifest.text())
        out.flush()
        wanted = set(_line(answers)["wanted"])
        for file in manifest.files:
            if file.sha256 in wanted:
                wanted.discard(file.sha256)
                out.writelines(source.content(file))
        source.end()
        out.write(b'{"end": true}\n')
        out.flush()
        if "result" not in _line(answers):
            raise ConfigFault(WHERE, "did not arrive")


def receive(target: BackupTarget, come: BinaryIO, out: BinaryIO) -> tuple[Any, int]:
    """The target's side, but for the last line: what became of it, and how many bytes were copied."""
    copied = 0
    with _broken():
        manifest = manifests.parse(come.readline(MANIFEST_BYTES_MAX), WHERE)
        wanted = target.wanted(manifest)
        names = {file.sha256 for file in wanted}
        out.write(json.dumps({"wanted": [file.sha256 for file in wanted]}).encode() + b"\n")
        out.flush()
        for file in manifest.files:
            if file.sha256 in names:
                names.discard(file.sha256)
                target.take(file, _content(come, file))
                copied += file.used_bytes
        if _line(come).get("end") is not True:
            raise ConfigFault(WHERE, "was cut off")
    return target.finish(manifest), copied


def wait_for_word(come: BinaryIO, out: BinaryIO) -> None:
    """Say that all is there, and go on when the other end says that it is to count."""
    with _broken():
        out.write(b'{"ready": true}\n')
        out.flush()
        if _line(come).get("end") is not True:
            raise ConfigFault(WHERE, "was cut off")


def _content(come: BinaryIO, file: CopiedFile) -> Iterator[bytes]:
    left = file.used_bytes
    while left:
        piece = come.read(min(left, reading.PIECE_BYTES))
        if not piece:
            raise ConfigFault(WHERE, f"was cut off in {file.name}")
        left -= len(piece)
        yield piece


def _line(stream: BinaryIO) -> dict[str, Any]:
    line = stream.readline(MANIFEST_BYTES_MAX)
    try:
        document = json.loads(line)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ConfigFault(WHERE, "was cut off")
    return document


@contextmanager
def _broken() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ConfigFault(WHERE, "was cut off: the other end is gone") from None
    except KeyError:
        raise ConfigFault(WHERE, "is not as was agreed: the other end may be of another release") from None
