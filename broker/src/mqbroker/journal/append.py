"""What a step wants on disk: one Append is atomic in recovery, and `position` is its one number."""

from __future__ import annotations

from typing import Final

from mqbroker.base.value import Value


class Append(Value):
    """Chunks of records for one segment. Positions ascend by one; a segment number never goes back.

    `sync`: something waits for this append (a decision keyed by its position). Without it the append may ride along
    with the next group or wait up to 50 ms. `room_bytes`: where it begins a file, so much is to be free behind it.
    """

    __match_args__ = ("position", "segment", "chunks", "size_bytes", "sync", "room_bytes")
    __slots__ = __match_args__

    def __init__(
        self,
        position: int,
        segment: int,
        chunks: list[bytes | bytearray | memoryview],
        size_bytes: int,
        sync: bool,
        room_bytes: int = 0,
    ) -> None:
        self.position: Final = position
        self.segment: Final = segment
        self.chunks: Final = chunks
        self.size_bytes: Final = size_bytes
        self.sync: Final = sync
        self.room_bytes: Final = room_bytes
