"""The log of a broker of `mqctl dev`, which is a file: the last lines, and those that come."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mqctl.brokers.journald import LEVELS
from mqctl.errors import CommandError

TAIL_BYTES_MAX = 4 << 20
LOOK_S = 0.2


def last_lines(path: Path, count: int) -> list[dict[str, Any]]:
    """The last lines; what is no line of the broker's has no time."""
    with _opened(path) as file:
        return [_row(line) for line in _tail(file).splitlines()[-count:]]


def followed(path: Path, count: int) -> Iterator[dict[str, Any]]:
    """The last lines and then those that come. A file that was begun anew is read from its start."""
    return _lines(_opened(path), count)


def _lines(file: BinaryIO, count: int) -> Iterator[dict[str, Any]]:
    with file:
        # What follows the last end of a line is one that is being written.
        *lines, rest = _tail(file).split(b"\n")
        yield from map(_row, lines[-count:])
        while True:
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)
                rest = b""
            *lines, rest = (rest + file.read(TAIL_BYTES_MAX)).split(b"\n")
            if len(rest) > TAIL_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            yield from map(_row, lines)
            if not lines:
                time.sleep(LOOK_S)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as fault:
        raise CommandError(f"{path}: {fault.strerror}", "mqctl dev status") from None


def _tail(file: BinaryIO) -> bytes:
    file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES_MAX, 0))
    return file.read()


def _row(content: bytes) -> dict[str, Any]:
    line = content.decode(errors="replace")
    moment, _, rest = line.partition(" ")
    level, _, message = rest.partition(" ")
    if moment.endswith("Z") and level.lower() in LEVELS:
        return {"time": moment, "level": level.lower(), "message": message.strip()}
    return {"time": "", "level": "", "message": line}
