"""How many frames begin in bytes that come in pieces, without a look into any of them (AMQP 1.0 §2.3)."""

from __future__ import annotations

from typing import Final

SIZE_BYTES: Final = 4
HEADER: Final = b"AMQP"  # a protocol header begins with it, and no frame has that size
HEADER_BYTES: Final = 8
FRAME_BYTES_MIN: Final = 8


class FrameCount:
    """Of one stream of bytes. A protocol header counts as a frame, and so does what is too short to be one."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._head = b""  # of a frame, while its size is not complete
        self._left = 0  # bytes to come of the last frame

    def begun_in(self, data: bytes) -> int:
        """How many of them begin in the next bytes, as far as their sizes are there."""
        count, at, end = 0, self._left, len(data)
        while at < end:
            lead = len(self._head)
            head = self._head + data[at : at + SIZE_BYTES - lead]
            if len(head) < SIZE_BYTES:
                self._head = head
                at = end
                break
            self._head = b""
            size = HEADER_BYTES if head == HEADER else max(int.from_bytes(head, "big"), FRAME_BYTES_MIN)
            at += size - lead
            count += 1
        self._left = at - end
        return count
