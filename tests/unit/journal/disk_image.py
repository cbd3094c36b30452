"""Segment files in memory: what the disk thread makes of Appends, without a disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mqbroker.config.declarations.options import defaults
from mqbroker.config.slices import JournalOptions
from mqbroker.journal.append import Append
from mqbroker.journal.entry import entry_bytes, frame_entry
from mqbroker.journal.format import FILE_HEADER_BYTES, decode_file_header, encode_file_header
from mqbroker.journal.plan import Journal
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Recovered

NODE_ID = bytes(range(16))


def options(**changes: Any) -> JournalOptions:
    """Small files, so that a short test sees many of them."""
    values: dict[str, Any] = {"journal_file_size_bytes": 4096, "journal_compact_min_files": 3, **changes}
    return replace(defaults().journal, **values)


class DiskImage:
    """Applies appends at once, with `watermark` as far behind as the test says."""

    def __init__(self, file_size_bytes: int = 4096, term: int | None = None) -> None:
        self.files: dict[int, bytearray] = {}
        self.used: dict[int, int] = {}
        self.entries: list[tuple[int, int, int, int]] = []  # (segment, offset, end, position)
        self._file_size_bytes = file_size_bytes
        self.term = term  # of files from now on; None: they have none

    def write(self, append: Append, watermark: int | None = None) -> None:
        assert append.size_bytes == sum(len(chunk) for chunk in append.chunks)
        if append.segment not in self.files:
            self.new_file(append.segment, append.size_bytes + append.room_bytes)
        buffer = self.files[append.segment]
        header = decode_file_header(bytes(buffer[:FILE_HEADER_BYTES]))
        assert header is not None
        place = (append.position, append.position - 1 if watermark is None else watermark)
        head, tail = frame_entry(append.chunks, append.size_bytes, place, header.seed)
        data = b"".join((head, *append.chunks, tail))
        assert len(data) == entry_bytes(append.size_bytes)
        offset = self.used[append.segment]
        assert offset + len(data) <= len(buffer), "an append must fit into its segment"
        buffer[offset : offset + len(data)] = data
        self.used[append.segment] = offset + len(data)
        self.entries.append((append.segment, offset, offset + len(data), append.position))

    def new_file(self, segment: int, payload_bytes: int = 0) -> None:
        size = max(self._file_size_bytes, FILE_HEADER_BYTES + entry_bytes(payload_bytes))
        self.files[segment] = bytearray(encode_file_header(segment, size, NODE_ID, self.term)).ljust(size, b"\0")
        self.used[segment] = FILE_HEADER_BYTES

    def delete(self, segment: int) -> None:
        del self.files[segment]
        del self.used[segment]

    def recover(self, on_damage: str = "stop") -> Recovered:
        """Recovery, and the cuts that it asks for."""
        found = recover([(number, bytes(self.files[number])) for number in sorted(self.files)], NODE_ID, on_damage)
        for number in (*found.set_aside, *found.unused):
            self.delete(number)
        for cut in found.cuts:
            buffer = self.files[cut.segment]
            buffer[cut.offset :] = bytes(len(buffer) - cut.offset)
        self.used = dict.fromkeys(found.obsolete, FILE_HEADER_BYTES)
        self.used |= {use.number: use.used_bytes for use in found.segments}
        return found


def take(journal: Journal, disk: DiskImage) -> int:
    """One synced append; its position."""
    append = journal.take(sync=True)
    assert append is not None
    disk.write(append)
    journal.synced(append.position)
    return append.position
