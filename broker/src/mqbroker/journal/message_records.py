"""The two records that messages make, as they are written: RUN and SETTLE.

Their layout is in records.py, which reads all and writes the others. This half is apart from it because each durable
message pays for it: it is compiled in a native build, and reading is not.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

RUN: Final = 1
SETTLE: Final = 2
RANGE_COUNT_MAX: Final = 0xFFFF_FFFF
RANGE: Final = struct.Struct(">QI")  # first id, count

_RUN: Final = struct.Struct(">BIQIQH")
_RUN_ONE: Final = struct.Struct(">BIQIQHQ")
_SETTLE: Final = struct.Struct(">BIQ")
_SETTLE_ONE: Final = struct.Struct(">BIQQI")
_RUN_BODY_BYTES: Final = 22  # without its queues
_RANGE_BYTES: Final = 12


def encode_run_head(
    first_id: int, count: int, queue_ids: Sequence[int], frames_bytes: int, arrived_ms: int = 0
) -> bytes:
    """The record up to its frames, which follow as a chunk of their own: they are never copied."""
    n = len(queue_ids)
    body_bytes = _RUN_BODY_BYTES + 8 * n + frames_bytes
    if n == 1:
        return _RUN_ONE.pack(RUN, body_bytes, first_id, count, arrived_ms, 1, queue_ids[0])
    return _RUN.pack(RUN, body_bytes, first_id, count, arrived_ms, n) + struct.pack(f">{n}Q", *queue_ids)


def encode_settle(queue_id: int, bounds: list[int]) -> bytes:
    """`bounds` is flat: first id, id behind the last, first id, …"""
    if len(bounds) == 2 and bounds[1] - bounds[0] <= RANGE_COUNT_MAX:
        return _SETTLE_ONE.pack(SETTLE, 8 + _RANGE_BYTES, queue_id, bounds[0], bounds[1] - bounds[0])
    parts = [b""]
    for at in range(0, len(bounds), 2):
        first, end = bounds[at], bounds[at + 1]
        while end - first > RANGE_COUNT_MAX:
            parts.append(RANGE.pack(first, RANGE_COUNT_MAX))
            first += RANGE_COUNT_MAX
        parts.append(RANGE.pack(first, end - first))
    parts[0] = _SETTLE.pack(SETTLE, 8 + (len(parts) - 1) * _RANGE_BYTES, queue_id)
    return b"".join(parts)
