"""Writing many chunks to one place of a file, however many calls of the system that takes.

Apart from files.py because each durable message pays for it: in a native build this is compiled, and `Files`, which
tests derive from, is not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from mqbroker.journal.entry import Chunk

IOV_MAX: Final = 1024
# Below this, copying chunks together costs less than handing a list of them to the kernel.
JOIN_BYTES_MAX: Final = 64 << 10

_pwritev: Final = os.pwritev  # as in loop.py
_DSYNC: Final = os.RWF_DSYNC


def write_chunks(fd: int, chunks: Sequence[Chunk], offset: int) -> None:
    """All of `chunks`, one behind the other. Raises OSError."""
    _write_pieces(fd, _joined(chunks), offset)


def write_chunks_synced(fd: int, chunks: Sequence[Chunk], offset: int) -> None:
    """The same, and on disk. Where one call writes them all it syncs as well. Raises OSError."""
    chunks = _joined(chunks)
    if len(chunks) <= IOV_MAX:
        _write_all(fd, chunks, offset, _DSYNC)
    else:
        _write_pieces(fd, chunks, offset)
        os.fdatasync(fd)


def _joined(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    if len(chunks) < 2:
        return chunks
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > JOIN_BYTES_MAX:
            return chunks
    return (b"".join(chunks),)


def _write_pieces(fd: int, chunks: Sequence[Chunk], offset: int) -> None:
    for at in range(0, len(chunks), IOV_MAX):
        offset = _write_all(fd, chunks[at : at + IOV_MAX], offset, 0)


def _write_all(fd: int, chunks: Sequence[Chunk], offset: int, flags: int) -> int:
    """Where it ended."""
    left = list(chunks)
    while left:
        written: int = _pwritev(fd, left, offset, flags)
        offset += written
        done = 0
        while done < len(left) and written >= len(left[done]):
            written -= len(left[done])
            done += 1
        left = left[done:]
        if written:
            left[0] = memoryview(left[0])[written:]
    return offset
