"""What a step wants on disk: one Append is atomic in recovery, and `position` is its one number."""

from __future__ import annotations

from typing import NamedTuple


class Append(NamedTuple):
    """Chunks of records for one segment. Positions ascend by one; a segment number never goes back.

    `sync`: something waits for this append (a decision keyed by its position). Without it the append may ride along
    with the next group or wait up to 50 ms.
    """

    position: int
    segment: int
    chunks: list[bytes | bytearray | memoryview]
    size_bytes: int
    sync: bool
