"""Bytes of a peer that are there and not taken in, in the order of their coming.

Invariant: a byte is copied a bounded number of times, however small the pieces are in which it came and however often
who takes them in stops on the way: a piece is joined to what is left before it only when that makes a frame whole.
"""

from __future__ import annotations

from collections import deque
from typing import Final

JOINED_BYTES: Final = 64 << 10  # small pieces are joined up to this size, so that messages come in long runs
# A close says what it is in one of these ways (AMQP 1.0 §1.6.10, §2.7.9); nearly all say it in the first.
CLOSE_LEADS: Final = (b"\x00\x53\x18", b"\x00\x80" + (0x18).to_bytes(8, "big"), b"\x00\xa3\x0famqp:close:list")
CLOSE_LOOKS_MAX: Final = 8  # at what stands in one, and looks like the beginning of another
CLOSE_BYTES_MAX: Final = 4 << 10  # that a close may have: an error and its text
_HEAD_BYTES: Final = 8


class Unread:
    """`buffer` from `offset` on comes first."""

    __slots__ = ("_later", "_later_bytes", "buffer", "offset")

    def __init__(self) -> None:
        self.buffer = b""
        self.offset = 0
        self._later: deque[bytes] = deque()
        self._later_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The bytes that have come and are not taken in."""
        return len(self.buffer) - self.offset + self._later_bytes

    def add(self, data: bytes) -> None:
        """Keep these bytes behind all that came before."""
        if self.offset >= len(self.buffer) and not self._later:
            self.buffer, self.offset = data, 0
        else:
            self._later.append(data)
            self._later_bytes += len(data)

    def join(self, needed: int) -> bool:
        """Bring at least `needed` bytes into the buffer, from offset 0 on; False where there are not so many."""
        rest = len(self.buffer) - self.offset
        if not self._later or rest + self._later_bytes < needed:
            return False
        if not rest and (len(self._later) == 1 or len(self._later[0]) >= max(needed, JOINED_BYTES)):
            self.buffer = self._later.popleft()
            self._later_bytes -= len(self.buffer)
        else:
            self._join(max(needed, JOINED_BYTES))
        self.offset = 0
        return True

    def _join(self, wanted: int) -> None:
        parts = [self.buffer[self.offset :]]
        size = len(parts[0])
        while self._later and size < wanted:
            part = self._later.popleft()
            parts.append(part)
            size += len(part)
            self._later_bytes -= len(part)
        self.buffer = b"".join(parts)

    def trim(self) -> None:
        """Let go of what was taken in."""
        if self.offset:
            self.buffer, self.offset = self.buffer[self.offset :], 0

    def clear(self) -> None:
        """None of them is of use any more."""
        self.buffer, self.offset = b"", 0
        self._later.clear()
        self._later_bytes = 0

    @property
    def ends_in_order(self) -> bool:
        """Whether the last of these bytes are a Close (the function `ends_in_order`)."""
        return ends_in_order([self.buffer[max(self.offset, len(self.buffer) - CLOSE_BYTES_MAX) :], *self._later])


def ends_in_order(pieces: list[bytes]) -> bool:
    """Whether the last thing of bytes that came in these pieces looks like a close.

    A walk over all frames would take as long as to take them in, and a look for one in all of them is much where fifty
    are lost together that have much unread. Who makes other bytes look like a close gains nothing.
    """
    last: list[bytes] = []
    missing = CLOSE_BYTES_MAX
    for piece in reversed(pieces):
        if missing <= 0:
            break
        last.append(piece[-missing:])
        missing -= len(piece)
    end = b"".join(reversed(last))
    return any(_ends_with_close(end, lead) for lead in CLOSE_LEADS)


def _ends_with_close(end: bytes, lead: bytes) -> bool:
    """Whether there is a frame of AMQP that begins with this and is the last thing."""
    at = len(end)
    for _ in range(CLOSE_LOOKS_MAX):
        at = end.rfind(lead, 0, at)
        start = at - _HEAD_BYTES
        if start < 0:
            return False
        size = len(end) - start
        if end[start : start + 6] == size.to_bytes(4, "big") + b"\x02\x00":
            return True
    return False
