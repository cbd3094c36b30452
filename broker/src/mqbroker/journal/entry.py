"""An entry of a segment file as the disk thread writes it: what goes before and behind the records of one append.

The layout, and what recovery rests on, is in format.py, which reads entries. This half is apart from it because each
durable message pays for it: it is compiled in a native build, and reading is not, as it is given mapped files.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from mqbroker.base.checksum import crc32

ALIGN_BYTES: Final = 32
END_BYTE: Final = 0xE7
ENTRY_MARK: Final = b"\xa5mQ\x9e"
ENTRY: Final = Struct(">4sIQQI")  # mark, payload length, position, watermark, payload crc
ENTRY_CRC: Final = Struct(">I")
ENTRY_HEADER_BYTES: Final = 32
ENDS: Final = tuple(bytes([END_BYTE]) * size for size in range(ALIGN_BYTES + 1))

Chunk = bytes | bytearray | memoryview


def entry_bytes(payload_length: int) -> int:
    """How much of a file an entry takes, with header and end."""
    return (ENTRY_HEADER_BYTES + payload_length + ALIGN_BYTES) // ALIGN_BYTES * ALIGN_BYTES


def frame_entry(payload: Sequence[Chunk], length: int, place: tuple[int, int], seed: int) -> tuple[bytes, bytes]:
    """What goes before and behind a payload. `place`: (position, watermark). Reads every byte: not for the loop."""
    crc = 0
    for chunk in payload:
        crc = crc32(chunk, crc)
    position, watermark = place
    body = ENTRY.pack(ENTRY_MARK, length, position, watermark, crc)
    header = body + ENTRY_CRC.pack(crc32(body, seed))
    return header, ENDS[entry_bytes(length) - ENTRY_HEADER_BYTES - length]
