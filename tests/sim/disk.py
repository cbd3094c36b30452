"""A simulated disk: files of bytes that remember what is synced, and fail as real ones do.

The bytes are those of `journal.format`, so recovery reads what a real disk would hold after the same faults.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from zlib import crc32

from mqbroker.journal.append import Append
from mqbroker.journal.entry import entry_bytes, frame_entry
from mqbroker.journal.format import FILE_HEADER_BYTES, decode_file_header, encode_file_header
from mqbroker.journal.places import Slice
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Cut, Leave, Recovered

from tests.sim.flips import Files, flip

SECTOR = 512


class DiskFailed(Exception):
    """The node must stop: a write or a sync did not succeed."""


@dataclass(slots=True)
class Faults:
    """What this disk does wrong, as probabilities of one commit or one crash."""

    write_error: float = 0.0
    sync_error: float = 0.0
    torn: float = 0.5
    lose_unsynced: float = 0.7
    delete_error: float = 0.0
    read_error: float = 0.0
    seed: int = 0  # of the chances of these two, and of what a failed sync left
    flips: int = 0  # bits that flip before a start, one after the other, each in files that are put back


class SimDisk:
    """Files by segment number. `stable` is what a power cut leaves, `cached` what the process sees."""

    def __init__(self, rng: random.Random, node_id: bytes, file_size: int, faults: Faults) -> None:
        self.rng = rng
        self.faults = faults
        self._node_id = node_id
        self._file_size = file_size
        self.term: int | None = None  # of files that are begun, see journal_directory.py
        self.stable: dict[int, bytearray] = {}
        self.cached: dict[int, bytearray] = {}
        self._writes: list[tuple[int, int, bytes]] = []  # not synced: segment, offset, bytes
        self._offset = 0
        self._segment = -1
        self.synced_position = 0
        self._has_failed = self._has_sync_failed = False
        self.is_cache_ahead = False  # a sync failed: the process sees what is not on disk, and no sync will change that
        self._fault_rng = random.Random(f"{faults.seed} {node_id.hex()}")  # of its own as well
        self._flip_rng = random.Random(0)  # of its own, so that a history is the same with flips and without
        self.flips: Counter[str] = Counter()  # by how they were found
        self.is_full = False  # no room for another file
        self.copies = False  # nor, then, for what is overwritten
        self.has_spare = False  # the next file was made ahead
        self.found_no_room: Counter[str] = Counter()  # by what was to be written

    # -- while the node runs -------------------------------------------------------------------------------------------

    def commit(self, group: list[Append]) -> int:
        """Write and sync a group. Raises DiskFailed; then what was written may or may not be there after a restart."""
        for append in group:
            if append.segment != self._segment:
                if self.is_full and not self._takes_spare(append):
                    return self._end_without_room("file", group)
                self._begin(append)
            content = self.cached[append.segment]
            header = decode_file_header(bytes(content[:FILE_HEADER_BYTES]))
            assert header is not None
            place = (append.position, self.synced_position)
            head, end = frame_entry(append.chunks, append.size_bytes, place, header.seed)
            entry = b"".join([head, *map(bytes, append.chunks), end])
            if self.is_full and self.copies:
                self._write(append.segment, self._offset, entry[: self._fault_rng.randrange(len(entry))])
                return self._end_without_room("entry", group)
            if self.rng.random() < self.faults.write_error:
                self._write(append.segment, self._offset, entry[: self.rng.randrange(len(entry))])
                self._has_failed = True
                raise DiskFailed("EIO on write")
            self._write(append.segment, self._offset, entry)
            self._offset += len(entry)
        if self.rng.random() < self.faults.sync_error:
            self._has_failed = self._has_sync_failed = True
            raise DiskFailed("EIO on fdatasync")
        self._sync()
        self.synced_position = group[-1].position
        return self.synced_position

    def _takes_spare(self, append: Append) -> bool:
        has_spare, self.has_spare = self.has_spare, False
        needed_bytes = FILE_HEADER_BYTES + entry_bytes(append.size_bytes) + append.room_bytes
        return has_spare and needed_bytes <= self._file_size

    def _end_without_room(self, what: str, group: list[Append]) -> int:
        """A write that found no room is the last one, and nothing of its group is reported."""
        self.found_no_room[what] += 1
        self._has_failed = True
        raise DiskFailed(f"ENOSPC: no room for an {what}")

    def _begin(self, append: Append) -> None:
        self._sync()
        size = max(self._file_size, FILE_HEADER_BYTES + entry_bytes(append.size_bytes) + append.room_bytes)
        content = encode_file_header(append.segment, size, self._node_id, self.term).ljust(size, b"\0")
        self.stable[append.segment] = bytearray(content)
        self.cached[append.segment] = bytearray(content)
        self._segment = append.segment
        self._offset = FILE_HEADER_BYTES

    def _write(self, segment: int, offset: int, data: bytes) -> None:
        self.cached[segment][offset : offset + len(data)] = data
        self._writes.append((segment, offset, data))

    def _sync(self) -> None:
        for segment, offset, data in self._writes:
            self.stable[segment][offset : offset + len(data)] = data
        self._writes.clear()

    def read(self, slices: tuple[Slice, ...]) -> list[bytes]:
        """Parts of files as the process sees them; all of it is synced, which is checked."""
        found = []
        for segment, offset, length, crc in slices:
            data = bytes(self.stable[segment][offset : offset + length])
            assert crc32(data) == crc, f"segment {segment} at {offset} is not what was asked for"
            found.append(data)
        return found

    def delete(self, segment: int) -> bool:
        """A file that the journal does not need any more. False: it could not be deleted, and is there."""
        if self._fault_rng.random() < self.faults.delete_error:
            return False
        del self.stable[segment], self.cached[segment]
        return True

    def fails_to_read(self) -> bool:
        """Whether the next read ends with EIO."""
        return self._fault_rng.random() < self.faults.read_error

    # -- the end and the next beginning --------------------------------------------------------------------------------

    def crash(self, unsynced: list[Append], *, power_cut: bool) -> None:
        """The process dies. With a power cut, unsynced writes are lost, kept or torn, sector by sector."""
        if not self._has_failed:
            self._write_some(unsynced)
        if not power_cut and self._has_sync_failed:
            # The kernel takes these pages for clean. Some are on disk, and nobody will write the others.
            self._keep_sectors(self._fault_rng, is_torn=True)
            self._writes.clear()
            self.is_cache_ahead = True
            return
        if not power_cut:
            self._sync()
            return
        fate = self.rng.random()
        if fate >= self.faults.lose_unsynced:
            is_torn = self.rng.random() < self.faults.torn
            self._keep_sectors(self.rng, is_torn=is_torn)
        self._writes.clear()

    def _keep_sectors(self, rng: random.Random, *, is_torn: bool) -> None:
        """Each sector is on disk as it was at some time since the last sync: of a torn group, each at its own time."""
        sectors: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
        for segment, offset, data in self._writes:
            for start in range(offset - offset % SECTOR, offset + len(data), SECTOR):
                low, high = max(start, offset), min(start + SECTOR, offset + len(data))
                sectors.setdefault((segment, start), []).append((low, data[low - offset : high - offset]))
        for (segment, _), pieces in sectors.items():
            kept = rng.randrange(len(pieces) + 1) if is_torn else len(pieces)
            for low, piece in pieces[:kept]:
                self.stable[segment][low : low + len(piece)] = piece

    def _write_some(self, appends: list[Append]) -> None:
        """Appends that were handed over and not committed may have been written in part when the process died.

        Not after a failure: then the disk thread has written its last.
        """
        for append in appends:
            if self.rng.random() < 0.5:
                return
            if append.segment != self._segment:
                return
            header = decode_file_header(bytes(self.cached[append.segment][:FILE_HEADER_BYTES]))
            assert header is not None
            place = (append.position, self.synced_position)
            head, end = frame_entry(append.chunks, append.size_bytes, place, header.seed)
            entry = b"".join([head, *map(bytes, append.chunks), end])
            self._write(append.segment, self._offset, entry)
            self._offset += len(entry)

    def load(self, leave: Leave | None = None, on_damage: str = "stop") -> Recovered:
        """What recovery makes of the files; its cuts are carried out as `io/` does. Raises DiskFailed without room."""
        self._writes.clear()
        self._has_failed = self._has_sync_failed = False
        seen = self.cached if self.is_cache_ahead else self.stable
        files = {n: bytes(content) for n, content in sorted(seen.items())}
        for _ in range(self.faults.flips if files else 0):
            self.flips[flip(files, partial(self._recover, leave), self._flip_rng)] += 1
        recovered = self._recover(leave, files, on_damage)
        if self.is_full and self.copies and (recovered.cuts or recovered.unproven is not None):
            self._cut_some(recovered.cuts)
            self.found_no_room["start"] += 1
            raise DiskFailed("ENOSPC at a start")
        self.is_cache_ahead = False
        if recovered.unproven is not None:
            number, start, stop = recovered.unproven
            self.stable[number][start:stop] = files[number][start:stop]
        for number in recovered.set_aside:
            del self.stable[number]
        for cut in recovered.cuts:
            content = self.stable[cut.segment]
            content[cut.offset :] = bytes(len(content) - cut.offset)
        if recovered.term:
            self.term = max(self.term or 0, recovered.term)
        self.cached = {n: bytearray(content) for n, content in self.stable.items()}
        self._segment = recovered.segments[-1].number if recovered.segments else -1
        self._offset = recovered.segments[-1].used_bytes if recovered.segments else 0
        self.synced_position = recovered.last_position
        return recovered

    def _cut_some(self, cuts: list[Cut]) -> None:
        """A cut writes zeros from its beginning on, as far as there is room."""
        for cut in cuts[:1]:
            for files in (self.stable, self.cached) if self.is_cache_ahead else (self.stable,):
                size = min(self._fault_rng.randrange(4) * SECTOR, len(files[cut.segment]) - cut.offset)
                files[cut.segment][cut.offset : cut.offset + size] = bytes(size)

    def _recover(self, leave: Leave | None, files: Files, on_damage: str = "stop") -> Recovered:
        return recover(sorted(files.items()), self._node_id, on_damage, leave)
