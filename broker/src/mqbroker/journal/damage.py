"""What to do where a segment stops making sense: the decision table of recovery, and the facts that it decides on.

Invariants of the writer that the rows rest on: a group of entries is synced as a whole and its successor starts after
that; a segment is synced before anything is written to the next; files are zeros where nothing was written. So only the
last group of the last segment can be torn by a power cut or a kill, and nothing of a torn entry was ever acknowledged.
Everything else that does not check out is damage, and what to do about damage is for a person to decide.

Source: docs/adr/0002-journal.md.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from mqbroker.base.checksum import crc32
from mqbroker.base.errors import Bug
from mqbroker.journal.entry import ENTRY_HEADER_BYTES, ENTRY_MARK, entry_bytes
from mqbroker.journal.format import SECTOR_BYTES, EntryHeader, decode_entry_header, has_whole_payload

CRC32_POLYNOMIAL = 0xEDB88320
# The walk over all bits of an entry takes about half a second per MiB: only once, and only at the end of a journal.
ONE_BIT_BYTES_MAX = 4 << 20
STRETCH_BYTES = 1 << 16
_MARK: Final = re.compile(re.escape(ENTRY_MARK))


class DamageVerdict(enum.Enum):
    END = "end of what was written"
    CUT = "cut off what was never acknowledged"
    FAULT = "damaged"
    IMPOSSIBLE = "facts that exclude each other"


class DamageFacts(NamedTuple):
    """About the first offset of a segment where no good entry begins."""

    is_blank: bool
    is_last: bool
    is_torn: bool
    has_later: bool
    is_covered: bool


class DamageRow(NamedTuple):
    """`pattern` has a letter for each fact: Y it holds, N it does not, - either."""

    pattern: str
    verdict: DamageVerdict
    why: str


# What lies there may be damaged, be written over, or never have belonged there: only that is said which is known.
LATER_FILE = "what lies here is no whole entry, and a later file shows that no write was cut short here"
LATER_ENTRY = "what lies here is no whole entry, and a later one shows that no write was cut short here"
NOT_TORN = "what lies here is no whole entry, and does not look like a write that was cut short"

# Legend
#   B  blank     zeros from here to the end of the file
#   L  last      nothing was written to any later segment
#   T  torn      looks like a write that was cut short: a sector's share of it is all zeros, or its end is
#   V  later     a later entry of this segment is valid
#   C  covered   a later valid entry's watermark says that what belongs here was on disk
TABLE = (
    #    BLTVC
    DamageRow("Y-NNN", DamageVerdict.END, "nothing was written from here on"),
    DamageRow("Y-Y--", DamageVerdict.IMPOSSIBLE, "zeros only are no torn entry"),
    DamageRow("Y-NY-", DamageVerdict.IMPOSSIBLE, "zeros only hold no later entry"),
    DamageRow("Y-NNY", DamageVerdict.IMPOSSIBLE, "zeros only hold no later entry"),
    DamageRow("N--NY", DamageVerdict.IMPOSSIBLE, "only a later entry can cover this one"),
    DamageRow("NN-NN", DamageVerdict.FAULT, LATER_FILE),
    DamageRow("NN-Y-", DamageVerdict.FAULT, LATER_FILE),
    DamageRow("NY-YY", DamageVerdict.FAULT, LATER_ENTRY),
    DamageRow("NYYNN", DamageVerdict.CUT, "a write was cut short here before anything of it was acknowledged"),
    DamageRow(
        "NYYYN", DamageVerdict.CUT, "a group of writes was cut short here before anything of it was acknowledged"
    ),
    DamageRow("NYNNN", DamageVerdict.FAULT, NOT_TORN),
    DamageRow("NYNYN", DamageVerdict.FAULT, NOT_TORN),
)


def decide(facts: DamageFacts) -> DamageRow:
    """The one row that matches. No row or a row of facts that exclude each other is our own fault."""
    for row in TABLE:
        if matches(row, facts):
            if row.verdict is DamageVerdict.IMPOSSIBLE:
                raise Bug(f"recovery found {facts}: {row.why}")
            return row
    raise Bug(f"recovery has no row for {facts}")


def matches(row: DamageRow, facts: DamageFacts) -> bool:
    return all(letter in ("-", "NY"[fact]) for letter, fact in zip(row.pattern, facts, strict=True))


def gather(buffer: bytes, offset: int, seed: int, place: tuple[int, bool]) -> DamageFacts:
    """The facts about `offset`. `place`: position of the last good entry before it, whether later files are empty."""
    position_before, is_last = place
    if is_blank(buffer, offset):
        return DamageFacts(True, is_last, False, False, False)
    watermarks = _later_watermarks(buffer, offset + ENTRY_HEADER_BYTES, seed, position_before)
    return DamageFacts(
        is_blank=False,
        is_last=is_last,
        is_torn=_looks_torn(buffer, offset, seed),
        has_later=bool(watermarks),
        is_covered=any(watermark > position_before for watermark in watermarks),
    )


def misplaced(buffer: bytes, offset: int, seeds: Iterable[int], position: int) -> int | None:
    """Where the entry with this position lies from `offset` on, whole, though it does not belong there.

    A write that was cut short leaves whole entries in their places only, so the disk has put this one elsewhere.
    `seeds`: of the files that it may be of.
    """
    for seed in seeds:
        at = _marked(buffer, offset)
        while at >= 0:
            header = decode_entry_header(buffer, at, seed)
            if header is not None and header.position == position and has_whole_payload(buffer, at, header):
                return at
            at = _marked(buffer, at + 1)
    return None


def is_blank(buffer: bytes, offset: int) -> bool:
    """Zeros from here to the end."""
    return _is_zero(buffer, offset, offset + SECTOR_BYTES) and _is_zero(buffer, offset, len(buffer))


def _looks_torn(buffer: bytes, offset: int, seed: int) -> bool:
    header = decode_entry_header(buffer, offset, seed)
    if header is None:
        if _is_zero(buffer, offset, offset + ENTRY_HEADER_BYTES):
            # The sector in which an entry should begin is missing up to its end, while later ones are there.
            return _is_zero(buffer, offset, _next_sector(offset))
        # Cut inside the header: a complete entry has an end byte behind it that is not zero.
        return _is_zero(buffer, offset + ENTRY_HEADER_BYTES, len(buffer))
    end = offset + entry_bytes(header.length)
    if end > len(buffer):
        return False
    if buffer[end - 1] == 0:
        return True
    return _has_zero_sector(buffer, _next_sector(offset), end) and not _is_one_bit_off(buffer, offset, header)


def _has_zero_sector(buffer: bytes, start: int, end: int) -> bool:
    return any(_is_zero(buffer, at, min(at + SECTOR_BYTES, end)) for at in range(start, end, SECTOR_BYTES))


def _is_one_bit_off(buffer: bytes, offset: int, header: EntryHeader) -> bool:
    """Whether one flipped bit explains the checksum: sectors of zeros are then what the messages were made of.

    CRC-32 is linear, so the difference of two checksums depends on the place of the flipped bit alone: try every place.
    No difference at all: the bit is in the end bytes, and a torn write takes those wholly or not at all.
    """
    if header.length > ONE_BIT_BYTES_MAX:
        return False
    start = offset + ENTRY_HEADER_BYTES
    wanted = crc32(memoryview(buffer)[start : start + header.length]) ^ header.payload_crc
    if wanted == 0:
        return True
    difference = CRC32_POLYNOMIAL
    for _ in range(8 * header.length):
        if difference == wanted:
            return True
        difference = difference >> 1 ^ (CRC32_POLYNOMIAL if difference & 1 else 0)
    return False


def _later_watermarks(buffer: bytes, offset: int, seed: int, position_before: int) -> list[int]:
    """Watermarks of all entries behind a bad one. A payload may hold the mark by chance: checksum and position tell."""
    watermarks: list[int] = []
    offset = _marked(buffer, offset)
    while offset >= 0:
        header = decode_entry_header(buffer, offset, seed)
        if header is not None and header.position > position_before and has_whole_payload(buffer, offset, header):
            watermarks.append(header.watermark)
            offset += entry_bytes(header.length) - 1
        offset = _marked(buffer, offset + 1)
    return watermarks


def _marked(buffer: bytes, offset: int) -> int:
    """Where the next mark of an entry is, -1 where there is none.

    What is searched may be a mapping. Its own `find` looks at the byte behind the end, and where no memory is there the
    process is gone: seen with Python 3.11.2, in files whose size is whole pages, as that of the journal's is.
    """
    mark = _MARK.search(buffer, offset)
    return -1 if mark is None else mark.start()


def _next_sector(offset: int) -> int:
    return (offset // SECTOR_BYTES + 1) * SECTOR_BYTES


def _is_zero(buffer: bytes, start: int, stop: int) -> bool:
    """A stretch at a time: copies of whole files would stay with the process as memory that it never uses again."""
    zeros = bytes(STRETCH_BYTES)
    for at in range(start, stop, STRETCH_BYTES):
        part = buffer[at : min(at + STRETCH_BYTES, stop)]
        if part != zeros[: len(part)]:
            return False
    return True
