"""A disk of simulated nodes that the broker's own journal directory and stock of files work on (`files.py`).

It notes what was meant to be written. Whatever the disk did with it, a start has to end in the outcome of exactly the
entries up to some position. Where confirmed ones are missing and anything on the disk shows it, the start refuses or
tells, and each refusal is true: what it names is missing, or is not what was written.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple
from zlib import crc32

from mqbroker.base.errors import StorageFault
from mqbroker.config.slices import JournalOptions
from mqbroker.io.disk.journal_directory import FORGONE_NAME, JournalDirectory, OpenJournalSegment
from mqbroker.io.disk.segment_stock import JournalSegmentStock
from mqbroker.journal.append import Append
from mqbroker.journal.entry import entry_bytes, frame_entry
from mqbroker.journal.format import FILE_HEADER_BYTES, decode_file_header, file_name
from mqbroker.journal.places import Slice
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Leave, Recovered

from tests.sim.disk import DiskFailed, Faults
from tests.sim.files import DIRECTORY, SimFiles
from tests.sim.flips import facts

CALLS_MAX = 15  # of the file system, until the power goes while something is given up
GIVEN_UP = "journal-damage-given-up"


class Meant(NamedTuple):
    """An entry as it was to be written."""

    segment: int
    offset: int
    watermark: int
    data: bytes


class WornDisk:
    """In the place of `SimDisk`. `on_lost` is called when a start goes on without what was confirmed."""

    def __init__(self, rng: random.Random, node_id: bytes, options: JournalOptions) -> None:
        self.rng = rng
        self.faults = Faults()  # those of `SimDisk`: none
        self.files = SimFiles(rng)
        self.on_lost: Callable[[], None] = lambda: None
        self.violations: list[str] = []
        self.starts: Counter[str] = Counter()  # by what came of them
        self.synced_position = 0
        self.is_full, self.copies, self.has_spare = False, False, False
        self.found_no_room: Counter[str] = Counter()
        self._node_id = node_id
        self._options = replace(options, min_disk_free_bytes=0)
        self._meant: dict[int, Meant] = {}  # by position
        self._headers: dict[int, bytes] = {}  # of files to which something was to be written
        # The same of what starts had given up. A disk that lies may have all of it again after a power cut.
        self._before: list[tuple[dict[int, Meant], dict[int, bytes]]] = []
        self._has_failed = False
        self._is_told = False  # a start has refused, and what was done about it may have come to no end
        self._is_given_up = False  # a start went on without something, and no entry behind it says so yet
        self._open_directory("stop")

    def _open_directory(self, on_damage: str) -> None:
        options = replace(self._options, journal_on_damage=on_damage)
        self._directory = JournalDirectory(DIRECTORY, self._node_id, options, self.files)
        self._stock = JournalSegmentStock(self._directory)
        self._segment: OpenJournalSegment | None = None
        self._spare: OpenJournalSegment | None = None
        self._offset = 0

    # -- while the node runs -------------------------------------------------------------------------------------------

    def commit(self, group: list[Append]) -> int:
        """Write and sync a group. Raises DiskFailed."""
        try:
            segment = self._segment
            if segment is None or segment.number != group[0].segment:
                segment = self._begin(group[0])
            self.files.write_synced(segment.fd, *self._framed(group, segment))
            self._work_beside(segment.number + 1)
            self.files.number("confirm")
        except OSError as error:
            self._has_failed = True
            raise DiskFailed(str(error)) from error
        self.synced_position = group[-1].position
        self._is_given_up = False
        return self.synced_position

    def _framed(self, group: list[Append], segment: OpenJournalSegment) -> tuple[list[bytes], int]:
        chunks, start = list[bytes](), self._offset
        for append in group:
            place = (append.position, self.synced_position)
            head, end = frame_entry(append.chunks, append.size_bytes, place, segment.seed)
            data = b"".join([head, *map(bytes, append.chunks), end])
            self._meant[append.position] = Meant(segment.number, self._offset, self.synced_position, data)
            self._offset += len(data)
            chunks.append(data)
        return chunks, start

    def _begin(self, append: Append) -> OpenJournalSegment:
        """As `io.disk.segment_pool` does it."""
        if self._segment is not None:
            self.files.close(self._segment.fd)
        size_bytes = FILE_HEADER_BYTES + entry_bytes(append.size_bytes) + append.room_bytes
        spare, self._spare = self._spare, None
        if spare is not None and (spare.number != append.segment or size_bytes > self._directory.standard_bytes):
            self._directory.discard(spare)
            spare = None
        if spare is None:
            spare = self._directory.prepare(append.segment, max(size_bytes, self._directory.standard_bytes))
            self._directory.name(spare)
        self._segment, self._offset = spare, FILE_HEADER_BYTES
        self._headers[spare.number] = self._blank(spare.number)
        return spare

    def _blank(self, number: int) -> bytes:
        """A file before anything is written to it."""
        path = self._directory.path_of(number)
        return self.files.read_piece(path, 0, FILE_HEADER_BYTES).ljust(self.files.size(path), b"\0")

    def _work_beside(self, next_number: int) -> None:
        """What the other thread does meanwhile, or does not come to."""
        if self.rng.random() < 0.5:
            self._stock.work()
        if self._spare is None and self.rng.random() < 0.5:
            with contextlib.suppress(OSError):
                spare = self._stock.prepare(next_number)
                spare = spare or self._directory.prepare(next_number, self._directory.standard_bytes)
                self._directory.name(spare)
                self._spare = spare

    def read(self, slices: tuple[Slice, ...]) -> list[bytes]:
        """Parts of files, which are looked at as `io.disk.page_reader` does. Raises DiskFailed."""
        found = []
        for segment, offset, length, crc in slices:
            try:
                data = self.files.read_piece(self._directory.path_of(segment), offset, length)
            except OSError as error:
                raise DiskFailed(str(error)) from error
            if crc32(data) != crc:
                self.starts["page refused"] += 1
                raise DiskFailed("paged messages are not what was written there")
            found.append(data)
        return found

    def delete(self, segment: int) -> bool:
        """A file that the journal does not need any more. False: it may be there."""
        with contextlib.suppress(FileNotFoundError):
            try:
                self._stock.keep(segment)
            except FileNotFoundError:
                raise
            except OSError:
                return False
        return True

    def fails_to_read(self) -> bool:
        """Only what was not written there (`read`)."""
        return False

    # -- the end and the next beginning --------------------------------------------------------------------------------

    def crash(self, unsynced: list[Append], *, power_cut: bool) -> None:
        """The process dies."""
        segment = self._segment
        if not self._has_failed and segment is not None and unsynced and self.rng.random() < 0.5:
            count = self.rng.randrange(len(unsynced) + 1)
            begun = [append for append in unsynced[:count] if append.segment == segment.number]
            with contextlib.suppress(OSError):
                self.files.write(segment.fd, *self._framed(begun, segment))
        self.files.end(power_cut=power_cut)
        if not power_cut and self.rng.random() < 0.5:
            self.files.evict()

    def load(self, leave: Leave | None = None) -> Recovered:
        """A start, and what an administrator does where it refuses. Raises DiskFailed where the power goes."""
        self._has_failed = False
        found = {name: bytes(file.pages) for name, file in self.files.named.items()}
        self.files.end(power_cut=False)
        try:
            recovered = self._start(leave, found)
            self._judge(recovered, found)
            self._go_on(recovered)
        except (StorageFault, OSError) as error:
            if not self.files.is_off:
                raise
            self.files.end(power_cut=True)
            raise DiskFailed("the power went at a start") from error
        return recovered

    def _start(self, leave: Leave | None, found: dict[str, bytes]) -> Recovered:
        self._open_directory("stop")
        try:
            return self._directory.load(leave)
        except StorageFault as fault:
            if self.files.is_off:
                raise
            self.starts["refused"] += 1
            self._is_told = True
            self._check(fault, found)
            refusal = fault.why
        if self.rng.random() < 0.3:
            self.files.calls_left = self.rng.randrange(CALLS_MAX)
        self._open_directory("truncate")
        try:
            recovered = self._directory.load(leave)
            self._is_given_up = True
            return recovered
        except StorageFault as fault:
            if self.files.is_off:
                self._is_given_up = True
                raise
            self._check(fault, {name: bytes(file.pages) for name, file in self.files.named.items()})
            # A write that went elsewhere may have been the one that said that a file is not needed.
            is_of_disk = self.files.misdirected > 0 and fault.why == refusal and not self._is_given_up
            if "is missing" in fault.why and not self.files.lies and not is_of_disk:
                self.violations.append(f"left behind: what a start gave up makes the next one refuse: {fault}")
        self.starts["put back"] += 1
        self.files.put_back(self._as_meant())
        self._is_given_up = False
        self._open_directory("stop")
        return self._directory.load(leave)

    def _go_on(self, recovered: Recovered) -> None:
        if recovered.segments:
            tail = recovered.segments[-1]
            self._segment, self._offset = self._directory.open(tail.number), tail.used_bytes
            self._headers.setdefault(tail.number, self._blank(tail.number))  # one made ahead with something in it
        position = self.synced_position = recovered.last_position
        self._is_told = False
        if any(at > position for at in self._meant):
            self._before = [*self._before[-7:], (dict(self._meant), dict(self._headers))]
        self._meant = {at: meant for at, meant in self._meant.items() if at <= position}
        kept = {meant.segment for meant in self._meant.values()} | {use.number for use in recovered.segments[-1:]}
        self._headers = {number: header for number, header in self._headers.items() if number in kept}

    @property
    def _was_wrong(self) -> bool:
        return self.files.lies + self.files.misdirected > 0

    # -- what a start has to be ----------------------------------------------------------------------------------------

    def _as_meant(self, until: int | None = None) -> dict[str, bytes]:
        """Files that hold what was to be written up to a position, as far as the broker did not delete them."""
        files = {number: bytearray(header) for number, header in self._headers.items()}
        for position, (number, offset, _, data) in self._meant.items():
            if until is None or position <= until:
                files[number][offset : offset + len(data)] = data
        return {file_name(number): bytes(content) for number, content in sorted(files.items())}

    def _judge(self, recovered: Recovered, found: dict[str, bytes]) -> None:
        position = recovered.last_position
        self._check_outcome(position)
        told = self._is_told or any(each.event == GIVEN_UP for each in recovered.findings)
        if position >= self.synced_position:
            self.starts["whole" if not told else "nothing lost"] += 1
            return
        if not self._was_wrong:
            self.violations.append(f"lost, though the disk did what it said: {self.synced_position} to {position}")
        shows = self._evidence(position, found)
        if not told and shows:
            self.violations.append(f"unnoticed: a start ended at {position} of {self.synced_position}, though {shows}")
        self.starts["told" if told else "unseen"] += 1
        self.on_lost()

    def _check_outcome(self, position: int) -> None:
        """What is on the disk by now is the outcome of what was meant, up to this position."""
        there = facts(self._directory.look())
        for meant, headers in [(self._meant, self._headers), *(self._before if self.files.lies else ())]:
            self._meant, self._headers = meant, headers
            files = {name: content for name, content in self._as_meant(position).items() if name in self.files.named}
            try:
                if facts(_recovered(files, self._node_id)) == there:
                    return
            except StorageFault:
                self.starts["incomparable"] += 1  # what was given up said that a file is not needed
                return
        self.violations.append(f"mixed: the outcome is not that of the entries up to {position}")

    def _evidence(self, position: int, found: dict[str, bytes]) -> str:
        """What shows that entries behind `position` had been confirmed."""
        for at, meant in self._meant.items():
            if at == position + 1 or (at > position and meant.watermark > position):
                for name, content in found.items():
                    if name.endswith(".mqj") and meant.data in content:
                        return f"entry {at} is in {name} at byte {content.index(meant.data)}"
        return ""

    def _check(self, fault: StorageFault, found: dict[str, bytes]) -> None:
        """A refusal has to be true, and needs a disk that did something wrong."""
        if not self._was_wrong:
            self.violations.append(f"refused, though the disk did what it said: {fault}")
        name = fault.file.rpartition("/")[2]
        self.starts[fault.why[:40]] += 1
        if not self._is_true(fault, found.get(name), self._as_meant().get(name)):
            self.violations.append(f"false reason: {fault}")

    def _is_true(self, fault: StorageFault, content: bytes | None, meant: bytes | None) -> bool:
        if fault.file.endswith(FORGONE_NAME):
            return content == b""  # a write of it that went elsewhere: it is never empty else
        if "is missing" in fault.why:
            return content is None
        if content is None or "this release can't read" in fault.why or "of node" in fault.why:
            return False
        if "follows entry" in fault.why:
            return True  # what is missing is behind an older one: `_check_outcome` finds whether it was
        if "lies here and belongs" in fault.why:
            told = [self._meant, *(meant for meant, _ in self._before if self.files.lies)]
            entries = [each.data for meant in told for each in meant.values()]
            return any(data == content[fault.offset :][: len(data)] for data in entries)
        header = decode_file_header(content)
        if len(content) != self._directory.standard_bytes and "bytes and was made" in fault.why:
            return meant is None or len(meant) != len(content)
        if fault.offset < FILE_HEADER_BYTES and meant is not None:
            return content[:FILE_HEADER_BYTES] != meant[:FILE_HEADER_BYTES] or len(content) != len(meant)
        if meant is None:
            return any(content[fault.offset :]) or header is None
        return content[fault.offset :] != meant[fault.offset :]


def _recovered(files: dict[str, bytes], node_id: bytes) -> Recovered:
    numbered = [(int(name[len("journal-") : -len(".mqj")]), content) for name, content in sorted(files.items())]
    return recover(numbered, node_id)
