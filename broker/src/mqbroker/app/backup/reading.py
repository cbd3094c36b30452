"""Reads the copy of a data directory as a start would, and says what is in its queues.

Nothing is written. What a start would refuse is refused here, with the file and the place.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mqbroker.app.backup.manifest import BackupManifest, CopiedFile, QueueContents
from mqbroker.base.errors import ConfigFault, StorageFault
from mqbroker.core.address.stored_tables import kinds_in
from mqbroker.core.cluster.id_digest import NO_IDS
from mqbroker.core.queue.large import fault_of
from mqbroker.core.store.journal_export import large_runs, rows_of
from mqbroker.io.disk.files import MappedFiles
from mqbroker.io.files import regular_files
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Recovered

PIECE_BYTES: Final = 1 << 20
ZEROS: Final = bytes(PIECE_BYTES)
FilePlace = Callable[[CopiedFile], Path]
BytesRead = Callable[[int], object]  # is told how many bytes were read, and may take its time


def pieces(path: Path, used_bytes: int) -> Iterator[bytes]:
    """So many bytes of a file, a piece at a time. Raises OSError, also where it has fewer."""
    with regular_files.opened(path) as stream:
        left = used_bytes
        while left:
            piece = stream.read(min(left, PIECE_BYTES))
            if not piece:
                raise OSError(5, f"it has {used_bytes - left} bytes, and {used_bytes} were written", str(path))
            left -= len(piece)
            yield piece


def zeros(size_bytes: int) -> Iterator[bytes]:
    """So many zeros, a piece at a time."""
    for offset in range(0, size_bytes, PIECE_BYTES):
        yield ZEROS[: size_bytes - offset]


def at_will(size_bytes: int) -> None:
    """Nobody counts what is read."""


def checksum_of(path: Path, passed: BytesRead = at_will, used_bytes: int = sys.maxsize) -> str:
    """The SHA-256 of a whole file. Raises OSError. No disk is read for what is behind `used_bytes`: a hole."""
    digest, left = hashlib.sha256(), used_bytes
    for piece in pieces(path, path.stat().st_size):
        digest.update(piece)
        passed(min(len(piece), left))
        left = max(0, left - len(piece))
    return digest.hexdigest()


def check_files(manifest: BackupManifest, place: FilePlace, passed: BytesRead = at_will) -> None:
    """Each file is what it was when it was copied. Raises ConfigFault, which names the first that is not."""
    for file in manifest.files:
        path = place(file)
        try:
            size_bytes, checksum = path.stat().st_size, checksum_of(path, passed, file.used_bytes)
        except OSError as error:
            raise ConfigFault(
                str(path), f"cannot be read ({error.strerror}); it is {file.name} of {manifest.id}"
            ) from None
        if (size_bytes, checksum) != (file.size_bytes, file.sha256):
            raise ConfigFault(str(path), f"is not what was copied: it is {file.name} of {manifest.id}")


def recovered_of(manifest: BackupManifest, place: FilePlace, passed: BytesRead = at_will) -> Recovered:
    """What a start would find, files of large messages included. Raises StorageFault for what it would refuse."""
    recovered = recover(_segments(manifest, place, passed), manifest.node_id_bytes, "stop")
    sizes = {file.large: file.size_bytes for file in manifest.files if file.large is not None}
    for run in large_runs(recovered):
        if (fault := fault_of(run, sizes)) is not None:
            raise fault
    for _ in rows_of(recovered, manifest.node_id):
        pass  # each record is taken apart, as a start would
    if recovered.last_position != manifest.position:
        why = f"ends at position {recovered.last_position}, and the backup was made at {manifest.position}"
        raise StorageFault(manifest.id, -1, why, "take another backup of this node")
    return recovered


def _segments(manifest: BackupManifest, place: FilePlace, passed: BytesRead) -> Iterator[tuple[int, bytes]]:
    """Number and content of each, one after the other."""
    files = MappedFiles()
    for number, file in sorted((file.segment, file) for file in manifest.files if file.segment is not None):
        yield number, files.read(place(file))
        passed(file.used_bytes)  # the next one is asked for when this one was gone through


def contents_of(recovered: Recovered) -> tuple[QueueContents, ...]:
    """What all queues hold, in the order of their names."""
    contents = recovered.queue_contents()
    rows = []
    for queue_id, kind in kinds_in(recovered):
        digest = NO_IDS
        for first, count, _ in contents[queue_id]:
            digest = digest.plus(first, count)
        rows.append(QueueContents(kind.name, kind.address, digest.count, str(digest)))
    return tuple(sorted(rows, key=lambda row: row.name))


def check(manifest: BackupManifest, place: FilePlace, passed: BytesRead = at_will) -> tuple[QueueContents, ...]:
    """Read all of a copy: its checksums, its journal as a start would, and whether in its queues is what was there.
    Raises ConfigFault or StorageFault."""
    check_files(manifest, place, passed)
    contents = contents_of(recovered_of(manifest, place, passed))
    if manifest.queues is not None and contents != manifest.queues:
        raise ConfigFault(manifest.id, "has other messages in its queues than when it was made")
    return contents
