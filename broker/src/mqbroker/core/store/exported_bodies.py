"""Bodies of large messages as rows and back: pieces of files before the first message that names them.

    {"type": "file", "file": 4294967297, "offset": 0, "data": "base64"}

Pieces of a file come in order, and all of them before the message, so neither way holds more than one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from mqbroker.wire.large_file import Large

PIECE_BYTES: Final = 512 << 10
FILE_MAX: Final = (1 << 62) - 1

# Called with file, offset and size; the bytes come back.
Read = Callable[[int, int, int], bytes]


class Bodies(Protocol):
    """Where an import puts them. Both raise StorageFault."""

    def write(self, file: int, offset: int, data: bytes) -> None:
        """Write a piece of a large message's body at its offset, in bytes."""

    def finish(self, file: int) -> None:
        """There are no more: all of it is on disk when this returns."""


def rows_of_file(large: Large, read: Read) -> Iterator[dict[str, Any]]:
    """The rows of an export that hold the body of a large message, a piece each."""
    for offset in range(0, large.size_bytes, PIECE_BYTES):
        data = read(large.file, offset, min(PIECE_BYTES, large.size_bytes - offset))
        yield {"type": "file", "file": large.file, "offset": offset, "data": base64.b64encode(data).decode()}


class BodiesIn:
    """What has come of files during an import. Methods say what is wrong, or nothing."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._coming: dict[int, int] = {}  # file -> bytes so far
        self._whole: dict[int, int] = {}

    def take(self, row: dict[str, Any]) -> str:
        """Take the row of a piece in; what is wrong with it, empty: nothing."""
        file, offset, data = int(row["file"]), int(row["offset"]), base64.b64decode(row["data"], validate=True)
        if not 0 < file <= FILE_MAX or file in self._whole or not data:
            return f"file {file} was whole before, or this is no piece of a file"
        if offset != self._coming.get(file, 0):
            return f"the piece of file {file} begins at byte {offset}, and {self._coming.get(file, 0)} came before it"
        self._bodies.write(file, offset, data)
        self._coming[file] = offset + len(data)
        return ""

    def needed(self, large: Large) -> str:
        """A message names a file, which has to be whole; what is wrong, empty: nothing."""
        file, size_bytes = large
        if self._coming.get(file) == size_bytes:
            del self._coming[file]
            self._bodies.finish(file)
            self._whole[file] = size_bytes
        if self._whole.get(file) == size_bytes:
            return ""
        came_bytes = self._whole.get(file, self._coming.get(file, 0))
        return f"it needs {size_bytes} bytes of file {file}, and {came_bytes} came before it"

    def end(self) -> str:
        """No further row comes; what is wrong, empty: nothing."""
        return f"no message needs file {min(self._coming)}" if self._coming else ""
