"""Reads segments back: checks every byte that is claimed to be written, and rebuilds what was live at the end.

Invariant: what is returned is exactly the outcome of all entries up to one position, each whole. Damage is never
passed over: with `on_damage` "stop" it is Unusable, with "truncate" everything from there on is given up and
the files that held it are named, so that `io/` keeps copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mqbroker.base.errors import Unusable
from mqbroker.base.notice import Level, Notice
from mqbroker.base.term import TERM_MAX
from mqbroker.journal.damage import DamageVerdict, decide, gather, is_blank, misplaced
from mqbroker.journal.entry import ENTRY_HEADER_BYTES, entry_bytes
from mqbroker.journal.format import (
    FILE_HEADER_BYTES,
    FORMAT_VERSION,
    READ_VERSIONS,
    FileHeader,
    decode_entry_header,
    decode_file_header,
    file_name,
    has_whole_payload,
)
from mqbroker.journal.rebuild import NoBeginning, Rebuild
from mqbroker.journal.records import Forgone, MalformedRecord
from mqbroker.journal.recovered import Cut, JournalSegmentUse, Leave, Recovered

MISSING = "the file is missing"
RESTORE = "put back the missing file or a backup of the whole directory"
TRUNCATE = (
    "look at the disk, then put back a backup, or set journal-on-damage to truncate for one start: "
    "it gives up everything from there on and keeps copies of the files"
)


class Damage(Exception):
    """Something that a person must decide on. `remedy` None: giving up what follows would cure it."""

    def __init__(self, segment: int, offset: int, why: str, remedy: str | None = None) -> None:
        super().__init__(why)
        self.segment = segment
        self.offset = offset
        self.why = why
        self.remedy = remedy


class JournalEntry(NamedTuple):
    """One whole Append, as it was handed over."""

    offset: int
    position: int
    watermark: int
    payload: memoryview


def recover(
    segments: Iterable[tuple[int, bytes]],
    node_id: bytes,
    on_damage: str = "stop",
    leave: Leave | None = None,
    excused: Iterable[Forgone] = (),
) -> Recovered:
    """`segments` are (number, content) of all files, ascending. Raises Unusable where a person has to decide.

    `leave`: what need not be brought into memory. `excused`: files that a start was about to go on without.
    """
    recovery = _Recovery(node_id, leave, list(excused))
    source = _with_last(segments)
    try:
        for number, buffer, is_unused, is_last in source:
            if is_unused and is_last:
                recovery.pass_over(number, buffer)
            else:
                recovery.read(number, buffer, is_last)
        recovery.check_beginning()
    except Damage as damage:
        if damage.remedy is not None or on_damage != "truncate":
            remedy = TRUNCATE if damage.remedy is None else damage.remedy
            raise Unusable(file_name(damage.segment), damage.offset, damage.why, remedy) from damage
        recovery.give_up(damage, [number for number, *_ in source])
        recovery.tell_missing()
    return recovery.result()


def _with_last(segments: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, bool, bool]]:
    """With each file whether it is unused (a header at most and no entry: made ahead, and named, while the file before
    it was written to), and whether nothing was written behind it. Look one ahead, so that only two buffers are held
    that nothing points into: files beyond an unused one show by their positions that something is gone.
    """
    held: tuple[int, bytes, bool] | None = None
    for number, buffer in segments:
        is_unused = is_blank(buffer, FILE_HEADER_BYTES)
        if held is not None:
            yield *held, is_unused
        held = number, buffer, is_unused
    if held is not None:
        yield *held, True


class _Recovery:
    def __init__(self, node_id: bytes, leave: Leave | None, excused: list[Forgone]) -> None:
        self._node_id = node_id
        self._excused = excused
        self._rebuild = Rebuild(leave)
        self._position = 0
        self._is_gap = True  # what was read last says nothing of the position that comes next
        self._numbers: list[int] = []
        self._watermark = 0
        self._seed_before = 0  # of the file before
        self._term = 0
        self._term_before = 0  # of the files before the last one
        self._version = FORMAT_VERSION
        self._offsets: dict[int, int] = {}
        self._uses: list[JournalSegmentUse] = []
        self._cuts: list[Cut] = []
        self._set_aside: list[int] = []
        self._unused: list[int] = []
        self._findings: list[Notice] = []

    def read(self, number: int, buffer: bytes, is_last: bool) -> None:
        """One file. Raises Damage."""
        header = self._admit(number, buffer)
        self._term_before, self._term = self._term, header.term
        if self._numbers and number != self._numbers[-1] + 1:
            # Harmless if a later TRIM says that this gap was made on purpose.
            self._is_gap = True
        self._numbers.append(number)
        self._rebuild.begin_segment(number)
        self._offsets = {}
        offset = FILE_HEADER_BYTES
        try:
            for entry in _entries(buffer, header.seed):
                self._check_order(number, entry)
                self._apply(number, entry)
                offset = entry.offset + entry_bytes(len(entry.payload))
            self._end(number, offset, (buffer, header.seed, is_last))
        finally:
            self._uses.append(JournalSegmentUse(number, len(buffer), offset, *self._rebuild.segment_use()))

    def pass_over(self, number: int, buffer: bytes) -> None:
        """A file that was made ahead of its time. What comes last is the one before it. Raises Damage."""
        self._admit(number, buffer)
        # Files are made in the order of their numbers, and removed from the end where they were not used.
        expected = max([0, *self._numbers, *self._unused]) + 1
        if number != expected:
            why = f"the file is missing: {file_name(number)} was made after it"
            raise Damage(expected, -1, why, RESTORE)
        self._unused.append(number)

    def _admit(self, number: int, buffer: bytes) -> FileHeader:
        """The header of a file that belongs here, behind the one before it. Raises Damage."""
        header = check_file(number, buffer, self._node_id)
        if header.term < self._term:
            terms = f"it was begun in term {header.term}, and a file before it in term {self._term}"
            why = f"{terms}: one of them is of another history"
            raise Damage(number, 0, why, RESTORE)
        self._version = max(self._version, header.version)
        return header

    def _check_order(self, number: int, entry: JournalEntry) -> None:
        if not self._is_gap and entry.position != self._position + 1:
            why = f"entry {entry.position} follows entry {self._position}: what was between them is gone"
            raise Damage(number, entry.offset, why)
        self._position, self._is_gap = entry.position, False
        self._watermark = entry.watermark
        self._offsets[entry.position] = entry.offset

    def _apply(self, number: int, entry: JournalEntry) -> None:
        try:
            is_first = entry.offset == FILE_HEADER_BYTES
            self._rebuild.apply(entry.payload, is_first, entry.offset + ENTRY_HEADER_BYTES)
        except NoBeginning as error:
            why = f"entry {entry.position} lies here, and does not begin the file as what belongs here does"
            raise Damage(number, entry.offset, why) from error
        except MalformedRecord as error:
            why = f"entry {entry.position} holds what this release can't read: {error}"
            raise Damage(number, entry.offset, why, "start the release that wrote it") from error

    def _end(self, number: int, offset: int, rest: tuple[bytes, int, bool]) -> None:
        buffer, seed, is_last = rest
        row = decide(gather(buffer, offset, seed, (self._position, is_last)))
        if row.verdict is not DamageVerdict.END:
            self._check_places(number, buffer, (offset, seed))
        self._seed_before = seed
        if row.verdict is DamageVerdict.END and offset == FILE_HEADER_BYTES and not is_last:
            raise Damage(number, offset, "nothing is written here, and a later file shows that something was")
        if row.verdict is DamageVerdict.FAULT:
            raise Damage(number, offset, row.why)
        if row.verdict is DamageVerdict.CUT:
            self._cuts.append(Cut(number, offset, is_damage=False))
            fields: dict[str, str | int] = {"file": file_name(number), "offset": offset, "why": row.why}
            self._findings.append(Notice(Level.WARNING, "journal-tail-cut", fields))

    def _check_places(self, number: int, buffer: bytes, place: tuple[int, int]) -> None:
        """The entry that comes next is not in its place but elsewhere, whole: so it may have been acknowledged. Raises
        Damage."""
        offset, seed = place
        position = self._position + 1
        at = misplaced(buffer, offset + 1, (seed, self._seed_before), position)
        if at is not None:
            why = f"entry {position} lies here and belongs elsewhere: the disk has misplaced a write"
            raise Damage(number, at, why)

    def check_beginning(self) -> None:
        """Everything from the first needed segment on must be there. Raises Damage."""
        missing = self._missing(self._numbers)
        unexcused = [each for each in missing if not _is_in(self._excused, each)]
        if unexcused:
            raise Damage(unexcused[-1].end - 1, -1, MISSING, RESTORE)
        if missing:
            self.tell_missing()

    def tell_missing(self) -> None:
        """The same where something was given up. What was given up may have said that a file is not needed, so this is
        no reason to stop, neither now nor at a later start; but nobody knows, so it is told."""
        for missing in self._missing(self._numbers):
            why = "it is not there; what may have said that it is not needed was given up, else its messages are lost"
            fields: dict[str, str | int] = {"file": file_name(missing.end - 1), "why": why}
            if missing.end - missing.first > 1:
                fields["first"] = file_name(missing.first)
            self._findings.append(Notice(Level.ERROR, "journal-file-missing", fields))

    def _missing(self, numbers: list[int]) -> list[Forgone]:
        """Files that are not there, and of which nothing says that they are not needed, or that a start went on without
        them."""
        missing: list[Forgone] = []
        expected = self._rebuild.trim
        for number in numbers:
            gap = Forgone(expected, number)
            if number > expected and not _is_in(self._rebuild.forgone, gap):
                missing.append(gap)
            expected = max(expected, number + 1)
        return missing

    def give_up(self, damage: Damage, later: list[int]) -> None:
        """Everything from the damage on is dropped: the rest of its file, and the files behind it."""
        if self._uses and self._uses[-1].number == damage.segment and self._uses[-1].used_bytes > FILE_HEADER_BYTES:
            self._cuts.append(Cut(damage.segment, self._uses[-1].used_bytes, is_damage=True))
        else:
            if self._uses and self._uses[-1].number == damage.segment:
                self._uses.pop()
                self._term = self._term_before  # the next start will know of no other
            self._set_aside.append(damage.segment)
        self._set_aside += later
        fields: dict[str, str | int] = {"file": file_name(damage.segment), "offset": damage.offset, "why": damage.why}
        self._findings.append(Notice(Level.ERROR, "journal-damage-given-up", fields))

    def result(self) -> Recovered:
        rebuild = self._rebuild
        recovered = Recovered(
            consumed=rebuild.consumed(),
            next_id=rebuild.next_id,
            boot=rebuild.boot,
            term=self._term,
            format_version=self._version,
            was_clean=rebuild.was_clean and not self._cuts and not self._set_aside,
            last_position=self._position,
            trim=rebuild.trim,
            unproven=self._unproven(),
            segments=[use for use in self._uses if use.number >= rebuild.trim],
            obsolete=[use.number for use in self._uses if use.number < rebuild.trim],
            unused=self._unused,
            cuts=self._cuts,
            set_aside=self._set_aside,
            forgone=self._missing([use.number for use in self._uses]),
            findings=self._findings,
        )
        try:
            recovered.queues, recovered.addresses = rebuild.queues(), rebuild.addresses()
            recovered.runs = rebuild.live_runs()
        except MalformedRecord as error:
            raise Unusable(file_name(self._numbers[-1]), -1, str(error), RESTORE) from error
        recovered.counts = rebuild.counts(recovered.runs)
        recovered.duplicates = rebuild.duplicates()
        return recovered

    def _unproven(self) -> tuple[int, int, int] | None:
        start = self._offsets.get(max(self._watermark + 1, min(self._offsets, default=0)))
        if start is None or not self._uses:
            return None
        return self._uses[-1].number, start, self._uses[-1].used_bytes


def _is_in(known: Iterable[Forgone], gap: Forgone) -> bool:
    return any(each.first <= gap.first and gap.end <= each.end for each in known)


def check_file(number: int, buffer: bytes, node_id: bytes) -> FileHeader:
    """The header of a file, if it is the one that belongs here. Raises Damage."""
    header = decode_file_header(buffer)
    if header is None:
        raise Damage(number, 0, "its header is damaged, or it is no journal file")
    if header.version not in READ_VERSIONS:
        readable = " and ".join(map(str, READ_VERSIONS))
        why = f"it has format version {header.version}, this release reads versions {readable}"
        raise Damage(number, 0, why, "start the release that wrote it")
    if header.term > TERM_MAX:
        raise Damage(number, 0, f"it says it was begun in term {header.term}, and terms end at {TERM_MAX}", RESTORE)
    if header.node_id != node_id:
        why = f"it was written by node {header.node_id.hex()}, this is node {node_id.hex()}"
        raise Damage(number, 0, why, "put each node's files back into its own data directory")
    if header.segment != number:
        raise Damage(
            number, 0, f"by its header it is {file_name(header.segment)}", "give the files their own names again"
        )
    if header.size_bytes != len(buffer):
        why = f"it has {len(buffer)} bytes and was made with {header.size_bytes}"
        raise Damage(number, min(len(buffer), header.size_bytes), why, RESTORE)
    return header


def _entries(buffer: bytes, seed: int) -> Iterator[JournalEntry]:
    """Good entries from the front, up to the first offset where there is none."""
    view = memoryview(buffer)
    offset = FILE_HEADER_BYTES
    while (header := decode_entry_header(buffer, offset, seed)) and has_whole_payload(buffer, offset, header):
        start = offset + ENTRY_HEADER_BYTES
        yield JournalEntry(offset, header.position, header.watermark, view[start : start + header.length])
        offset += entry_bytes(header.length)
