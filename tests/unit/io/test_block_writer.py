"""Whole blocks, whatever is written: the file holds the same as if it had been written byte by byte."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from mqbroker.io.block_writer import BLOCK_BYTES, BUFFER_BYTES, BlockWriter
from mqbroker.io.files import Files
from mqbroker.journal.format import Chunk


class StrictFiles(Files):
    """Refuses what a disk would refuse that has large blocks."""

    def write(self, fd: int, chunks: Sequence[Chunk], offset: int) -> None:
        (chunk,) = chunks
        address = ctypes.addressof(ctypes.c_char.from_buffer(chunk))
        assert offset % BLOCK_BYTES == len(chunk) % BLOCK_BYTES == address % BLOCK_BYTES == 0
        super().write(fd, chunks, offset)


def written(path: Path, content: bytes, pieces: Sequence[Sequence[bytes]], restart: float, seed: int) -> bytes:
    """What is in the file after `pieces`, where some of them are written by a writer that began there."""
    chance = random.Random(seed)
    path.write_bytes(content.ljust(64 * BLOCK_BYTES, b"\0"))
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    writer, offset = BlockWriter(StrictFiles()), len(content)
    writer.begin(content[offset - offset % BLOCK_BYTES :])
    for chunks in pieces:
        writer.write(fd, chunks, offset)
        offset += sum(map(len, chunks))
        if chance.random() < restart:
            writer = BlockWriter(StrictFiles())
            writer.begin(path.read_bytes()[offset - offset % BLOCK_BYTES : offset])
    os.close(fd)
    return path.read_bytes()


@pytest.mark.parametrize("seed", range(20))
def test_bytes_are_where_they_belong(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    usual = (1, 31, 32, 100, 1100, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 9 * BLOCK_BYTES)
    head = chance.randbytes(chance.choice((0, 64, BLOCK_BYTES)))
    pieces = [
        [chance.randbytes(chance.choice(usual)) for _ in range(chance.randrange(1, 5))]
        for _ in range(chance.randrange(1, 30))
    ]
    expected = head + b"".join(b"".join(chunks) for chunks in pieces)
    found = written(tmp_path / "file", head, pieces, 0.2, seed)
    assert found[: len(expected)] == expected
    assert not any(found[len(expected) :]), "what follows is zeros"
    assert len(found) % BLOCK_BYTES == 0


@pytest.mark.parametrize("more", [-BLOCK_BYTES - 1, -1, 0, 1, 3 * BUFFER_BYTES + 7])
def test_more_than_the_buffer_holds(tmp_path: Path, more: int) -> None:
    body = random.Random(more).randbytes(BUFFER_BYTES + more)
    found = written(tmp_path / "file", b"head", [[body[:5], body[5:]], [b"end"]], 0, 1)
    assert found[: len(body) + 7] == b"head" + body + b"end"
    assert not any(found[len(body) + 7 :])
