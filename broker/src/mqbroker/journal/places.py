"""Where records lie: what paging keeps of messages instead of their bytes.

A place is a stretch of a segment that holds whole RUN records, with its checksum. Source: docs/adr/0008-paging.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

EXTENDED_BYTES_MAX: Final = 256 << 10  # neighbours grow into one place up to here


class Slice(NamedTuple):
    """`length` bytes at `offset` of a segment's file, and what their CRC-32 is."""

    segment: int
    offset: int
    length: int
    crc: int


class Written:
    """Consecutive messages that one append stores, all for the same queues, and delivered in vain as often.

    `pins`: queues that will read them here.

    `loose` are those of them that do not have the messages in the journal: nothing else keeps these bytes. Until the
    append has its segment, `segment` is 0 and `offset` counts from the append's first byte.
    """

    __slots__ = ("count", "crc", "deliveries", "first_id", "length", "loose", "offset", "pins", "queue_ids", "segment")

    def __init__(self, first_id: int, offset: int, queue_ids: tuple[int, ...], pins: int) -> None:
        self.first_id = first_id
        self.count = 0
        self.segment = 0
        self.offset = offset
        self.length = 0
        self.crc = 0
        self.queue_ids = queue_ids
        self.pins = pins
        self.loose = 0
        self.deliveries = 0

    def is_followed_by(self, first_id: int, offset: int, queue_ids: tuple[int, ...], length: int) -> bool:
        """Whether this record would be its direct neighbour, for the same queues of the journal."""
        return (
            not self.segment and self.offset + self.length == offset and self.first_id + self.count == first_id
            and self.queue_ids == queue_ids and self.length + length <= EXTENDED_BYTES_MAX
        )  # fmt: skip

    @property
    def slice(self) -> Slice:
        """What to read. Only once it has its segment."""
        return Slice(self.segment, self.offset, self.length, self.crc)
