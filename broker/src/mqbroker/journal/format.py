"""Bytes of a segment file, format versions 1 and 2: its header and its entries. Everything is big-endian.

A file is written with zeros before it is used, so zeros where an entry could begin mean the end of what was written.

    file header   mark 8 | version u16 | 0 u16 | 0 u32 | segment u64 | file size u64 | node id 16 | term u64 | 0 u32 |
                  crc u32
    entry header  mark 4 | payload length u32 | position u64 | watermark u64 | payload crc u32 | header crc u32
    payload       records (records.py)
    end           1 to 32 bytes END_BYTE, up to the next multiple of 32

Invariants that recovery rests on. Entry headers are aligned to 32 bytes, so none of them straddles a disk sector: a
sector that never reached the disk takes a header wholly or not at all. An entry ends in a byte that is not zero, so
one that was cut short shows. The header's checksum is seeded with the file header's, so bytes of another file (a
misdirected write, a journal file sent as a message) are never taken for entries. `watermark` is the highest position
that was known to be on disk when this entry was written: it proves of an earlier damaged entry that it had been
acknowledged.

A file of version 2 says the term in which it was begun; of version 1 it is 0, and so are its bytes. Nothing else is
different. Terms never go back from one file to the next. Both are read, and 1 is written unless a term is given, since
earlier releases read nothing else. Source: docs/adr/0023-term.md.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from mqbroker.base.checksum import crc32
from mqbroker.base.errors import Bug
from mqbroker.base.term import TERM_MAX
from mqbroker.journal.entry import ENDS, ENTRY, ENTRY_CRC, ENTRY_HEADER_BYTES, ENTRY_MARK, entry_bytes

FORMAT_VERSION = 1  # what is written where no term is given
TERM_VERSION = 2
READ_VERSIONS = (FORMAT_VERSION, TERM_VERSION)
SECTOR_BYTES = 512

FILE_MARK = b"MQOPSJNL"

_FILE = struct.Struct(">8sHHIQQ16sQ4x")
_FILE_CRC = struct.Struct(">I")
FILE_HEADER_BYTES = _FILE.size + _FILE_CRC.size

PAYLOAD_BYTES_MAX = 0xFFFF_FFFF


class FileHeader(NamedTuple):
    """What the first 64 bytes say. `seed` goes into the checksum of every entry of this file."""

    version: int
    segment: int
    size_bytes: int
    node_id: bytes
    seed: int
    term: int = 0


class EntryHeader(NamedTuple):
    """What the first 32 bytes of an entry say."""

    length: int
    position: int
    watermark: int
    payload_crc: int


def file_name(segment: int) -> str:
    """`journal-0000000007.mqj`: names sort as the numbers do."""
    return f"journal-{segment:010d}.mqj"


def encode_file_header(segment: int, size_bytes: int, node_id: bytes, term: int | None = None) -> bytes:
    """`term` None: of the version that has none. Raises Bug for one that no other node could be told of."""
    if term is not None and not 0 <= term <= TERM_MAX:
        raise Bug(f"term {term} is not from 0 to {TERM_MAX}")
    version = FORMAT_VERSION if term is None else TERM_VERSION
    body = _FILE.pack(FILE_MARK, version, 0, 0, segment, size_bytes, node_id, term or 0)
    return body + _FILE_CRC.pack(crc32(body))


def decode_file_header(buffer: bytes) -> FileHeader | None:
    """None: not the header of a journal file, or a damaged one. Nothing but its own checksum is judged here."""
    if len(buffer) < FILE_HEADER_BYTES or buffer[: len(FILE_MARK)] != FILE_MARK:
        return None
    (crc,) = _FILE_CRC.unpack_from(buffer, _FILE.size)
    if crc != crc32(buffer[: _FILE.size]):
        return None
    _, version, _, _, segment, size_bytes, node_id, term = _FILE.unpack_from(buffer)
    return FileHeader(version, segment, size_bytes, node_id, crc, 0 if version < TERM_VERSION else term)


def decode_entry_header(buffer: bytes, offset: int, seed: int) -> EntryHeader | None:
    """None: no entry of this file begins here. The payload's checksum is not looked at."""
    if offset + ENTRY_HEADER_BYTES > len(buffer):
        return None
    mark, length, position, watermark, payload_crc = ENTRY.unpack_from(buffer, offset)
    (crc,) = ENTRY_CRC.unpack_from(buffer, offset + ENTRY.size)
    if mark != ENTRY_MARK or crc != crc32(buffer[offset : offset + ENTRY.size], seed):
        return None
    return EntryHeader(length, position, watermark, payload_crc)


def has_whole_payload(buffer: bytes, offset: int, header: EntryHeader) -> bool:
    """Payload and end bytes are there, as they were written."""
    start = offset + ENTRY_HEADER_BYTES
    stop = start + header.length
    end = offset + entry_bytes(header.length)
    if end > len(buffer) or buffer[stop:end] != ENDS[end - stop]:
        return False
    return crc32(memoryview(buffer)[start:stop]) == header.payload_crc
