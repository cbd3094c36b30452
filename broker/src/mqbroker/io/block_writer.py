"""Writes to a file that is opened past the page cache (O_DIRECT), where only whole blocks can be written.

Owns a buffer in aligned memory and, at its beginning, what the last block of the file holds so far: an entry that ends
in the middle of a block is followed by zeros, as in a file of zeros, and that block is written again with the next one.
What was written before stands in it unchanged, so a torn write of the block changes nothing of it. Not thread-safe.

Why: a small write and its sync cost half as much processor time as through the page cache (docs/PERFORMANCE.md).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable

from mqbroker.io.files import Files
from mqbroker.journal.format import Chunk

# The largest logical block that disks have; a multiple of all smaller ones.
BLOCK_BYTES = 4096
BUFFER_BYTES = 1 << 20
_ZEROS = bytes(BLOCK_BYTES)


class BlockWriter:
    """For one file at a time, written from its front to its end."""

    def __init__(self, files: Files) -> None:
        self._files = files
        # An anonymous mapping begins at a page.
        self._buffer = memoryview(mmap.mmap(-1, BUFFER_BYTES))
        self._filled = 0

    def begin(self, last_block: bytes) -> None:
        """Another file, of which the block that the next write begins in holds so much."""
        self._buffer[: len(last_block)] = last_block
        self._filled = len(last_block)

    def write(self, fd: int, chunks: Iterable[Chunk], offset: int) -> None:
        """All of `chunks` at `offset`, which is where the last write ended. Raises OSError."""
        filled = self._filled
        block_offset = offset - filled
        for chunk in chunks:
            start, size = 0, len(chunk)
            while start < size:
                stop = min(size, start + BUFFER_BYTES - filled)
                self._buffer[filled : filled + stop - start] = memoryview(chunk)[start:stop]
                filled += stop - start
                start = stop
                if filled == BUFFER_BYTES:
                    self._files.write(fd, (self._buffer,), block_offset)
                    block_offset += BUFFER_BYTES
                    filled = 0
        self._filled = self._write_last(fd, filled, block_offset)

    def _write_last(self, fd: int, filled: int, block_offset: int) -> int:
        """What is left in the buffer; how much of the last block is used."""
        used = filled % BLOCK_BYTES
        last = filled - used
        if used:
            self._buffer[filled : last + BLOCK_BYTES] = _ZEROS[used:]
        if filled:
            end = last + BLOCK_BYTES if used else last
            self._files.write(fd, (self._buffer[:end],), block_offset)
        if last:
            self._buffer[:used] = self._buffer[last:filled]
        return used
