"""What becomes of a journal: files by number, as they were at one time, and damage behind what an older copy has."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from mqbroker.journal.entry import entry_bytes
from mqbroker.journal.format import FILE_HEADER_BYTES, decode_entry_header, decode_file_header, file_name

Files = dict[int, bytearray]


def damaged(files: Files, cold: Files) -> Files:
    """The first entry that the cold copy does not have is not what was written; those behind it say it was on disk."""
    found = deepcopy(files)
    number = max(cold)
    content = found[number]
    header = decode_file_header(bytes(content[:FILE_HEADER_BYTES]))
    assert header is not None
    offset = FILE_HEADER_BYTES
    while (entry := decode_entry_header(bytes(cold[number]), offset, header.seed)) is not None:
        offset += entry_bytes(entry.length)
    content[offset + 40] ^= 0xFF
    content[offset + 43] ^= 0xFF
    return found


def files_in(journal: Path) -> Files:
    """The files of a real journal to which something was written."""
    found: Files = {}
    for file in sorted(journal.iterdir()):
        content = file.read_bytes()
        header = decode_file_header(content[:FILE_HEADER_BYTES])
        if header is not None and file.name == file_name(header.segment) and any(content[FILE_HEADER_BYTES:]):
            found[header.segment] = bytearray(content)
    return found


def put_back(journal: Path, files: Files) -> None:
    """These in the place of all that is there."""
    for file in journal.iterdir():
        file.unlink()
    for number, content in files.items():
        (journal / file_name(number)).write_bytes(content)
