"""What two nodes say to each other by gossip: each sends all records that it knows, and they are datagrams as they are.

    magic 4 | version 1 | count 2 | count times: length 2, datagram

A record proves itself by its own MAC, so who passes it on need not be trusted, and cannot change it. Source: ADR 0010.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from mqbroker.cluster.discovery.datagram import DATAGRAM_BYTES_MAX
from mqbroker.cluster.discovery.entries import ENTRIES_MAX

MAGIC: Final = b"MQDR"
VERSION: Final = 1
RECORDS_MAX: Final = ENTRIES_MAX + 1  # those that are heard, and the one that is said
_HEAD: Final = struct.Struct(">4sBH")
_LENGTH: Final = struct.Struct(">H")
HEAD_BYTES: Final = _HEAD.size
LENGTH_BYTES: Final = _LENGTH.size


def pieces(records: Sequence[bytes]) -> Iterator[bytes]:
    """What is sent, head first, each record in a piece of its own."""
    kept = records[:RECORDS_MAX]
    yield _HEAD.pack(MAGIC, VERSION, len(kept))
    for each in kept:
        yield _LENGTH.pack(len(each)) + each


def count_of(head: bytes) -> int | None:
    """How many records follow this head; None: it is none of ours."""
    magic, version, count = _HEAD.unpack(head)
    return count if (magic, version) == (MAGIC, VERSION) and count <= RECORDS_MAX else None


def length_of(text: bytes) -> int | None:
    """How long the next record is; None: longer than any may be."""
    (length,) = _LENGTH.unpack(text)
    return length if length <= DATAGRAM_BYTES_MAX else None
