"""The directory that the journal lives in: makes, opens, deletes and loads segment files.

Invariants: a file gets its own name only after its zeros and its header are on disk, and nothing is written to it
before the directory is synced, so a segment that recovery sees by name always has its header. Nothing is deleted or
overwritten here but what the plan of the journal names and files that have no name (yet, or any more).

Source: docs/adr/0002-journal.md.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mqbroker.base.errors import StorageFault, Unusable
from mqbroker.config.slices import JournalOptions
from mqbroker.io.disk.files import ZEROS, Files
from mqbroker.io.files import regular_files
from mqbroker.journal.format import (
    FILE_HEADER_BYTES,
    decode_file_header,
    encode_file_header,
    file_name,
)
from mqbroker.journal.records import Forgone
from mqbroker.journal.recover import MISSING, TRUNCATE, recover
from mqbroker.journal.recovered import Cut, Leave, Recovered

UNNAMED_SUFFIX = ".unused"
# Which missing files a start goes on without, until the journal itself says so (`_note_forgone`).
FORGONE_NAME: Final = "journal-forgone"
EVERY_FILE: Final = Forgone(0, 10**20)
BLOCK_BYTES: Final = 4096
# Something else stands in the place of a file or a directory, and will at the next start.
IN_THE_WAY: Final = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
_NAME = re.compile(r"journal-([0-9]{10,20})\.mqj")
_FORGONE = re.compile(r"([0-9]{1,20}) ([0-9]{1,20})", re.ASCII)
_SET_ASIDE = re.compile(r"journal-[0-9]{10,20}\.mqj\.damaged-[0-9]+")


class OpenJournalSegment(NamedTuple):
    """A file that can be written to. `seed` goes into the checksums of its entries."""

    number: int
    fd: int
    seed: int


class JournalDirectory:
    """One directory, one process (see data_lock.py). Methods raise OSError where they do not say otherwise.

    `term`: in which files are begun; None: in none, in the format that has no terms (journal/format.py).
    """

    def __init__(
        self, path: Path, node_id: bytes, options: JournalOptions, files: Files | None = None, term: int | None = None
    ) -> None:
        self.path = path
        self.options = options
        self.files = Files() if files is None else files
        self._node_id = node_id
        self._term = term

    @property
    def standard_bytes(self) -> int:
        """The size of all files but those of single large entries: whole blocks."""
        return _whole_blocks(self.options.journal_file_size_bytes)

    def load(self, leave: Leave | None = None) -> Recovered:
        """Everything that is live, after unfinished writes were cut off on disk too. Raises StorageFault.

        `leave`: what need not be brought into memory.
        """
        try:
            self.files.make_directory(self.path)
            # Also where it is there: whoever made it may have died before its name was on disk.
            self.files.sync_directory(self.path.parent)
            recovered = self._recover(leave)
            self._settle_files(recovered)
            if recovered.term:
                # What follows would be refused in an earlier term, and in none.
                self._term = max(self._term or 0, recovered.term)
        except OSError as error:
            raise fault_of(error, self.path) from error
        except StorageFault as fault:
            raise type(fault)(str(self.path / fault.file), fault.offset, fault.why, fault.remedy) from fault
        return recovered

    def look(self) -> Recovered:
        """Everything that is live, and nothing is changed: what a start would cut off or give up stays as it is.

        Raises StorageFault, also for damage that `journal-on-damage` would let a start give up.
        """
        try:
            return self._found(self.files.names(self.path), "stop")
        except OSError as error:
            raise fault_of(error, self.path) from error
        except StorageFault as fault:
            raise type(fault)(str(self.path / fault.file), fault.offset, fault.why, fault.remedy) from fault

    def strangers(self) -> list[str]:
        """Names of what is nothing of the journal's; nobody has looked into it. Raises StorageFault."""
        try:
            names = self.files.names(self.path)
        except OSError as error:
            raise fault_of(error, self.path) from error
        ours = {FORGONE_NAME, *(file_name(number) for number in self._numbers(names))}
        others = (name for name in names if name not in ours and not name.endswith(UNNAMED_SUFFIX))
        return [name for name in others if not _SET_ASIDE.fullmatch(name)]

    def path_of(self, number: int) -> Path:
        return self.path / file_name(number)

    def open(self, number: int) -> OpenJournalSegment:
        """Go on with a file that exists."""
        path = self.path_of(number)
        header = decode_file_header(self.files.read_piece(path, 0, FILE_HEADER_BYTES))
        if header is None:
            raise OSError(errno.EIO, "the header can't be read any more", str(path))
        return OpenJournalSegment(number, self.files.open(path), header.seed)

    def prepare(self, number: int, size_bytes: int) -> OpenJournalSegment:
        """Make a file of zeros with its header, on disk, but without its name yet."""
        return self._make(number, self.files.create(self._unnamed_path(number)), size_bytes)

    def reuse(self, path: Path, number: int) -> OpenJournalSegment:
        """As `prepare`, of a file without a name that is of the standard size and has zeros all over on disk."""
        self.files.rename(path, self._unnamed_path(number))
        return self._make(number, self.files.open(self._unnamed_path(number)), self.standard_bytes, has_zeros=True)

    def _make(self, number: int, fd: int, size_bytes: int, *, has_zeros: bool = False) -> OpenJournalSegment:
        size_bytes = _whole_blocks(size_bytes)
        header = encode_file_header(number, size_bytes, self._node_id, self._term)
        try:
            self.files.write(fd, (header,), 0)
            if has_zeros:
                self.files.sync(fd)
            else:
                self.wipe(fd, FILE_HEADER_BYTES, size_bytes)
        except BaseException:
            self.files.close(fd)
            raise
        decoded = decode_file_header(header)
        assert decoded is not None
        return OpenJournalSegment(number, fd, decoded.seed)

    def name(self, segment: OpenJournalSegment) -> None:
        """Give a prepared file its name, for good."""
        self.files.rename(self._unnamed_path(segment.number), self.path_of(segment.number))
        self.files.sync_directory(self.path)

    def sync(self, number: int) -> None:
        """What was written to a file so far is on disk."""
        fd = self.files.open(self.path_of(number))
        try:
            self.files.sync(fd)
        finally:
            self.files.close(fd)

    def discard(self, segment: OpenJournalSegment) -> None:
        """A file with its name that will not be used. Should the name come back, recovery removes it."""
        self.files.close(segment.fd)
        self.files.unlink(self.path_of(segment.number))

    def delete(self, number: int) -> None:
        self.files.unlink(self.path_of(number))
        self.files.sync_directory(self.path)

    def retire(self, number: int) -> Path | None:
        """Delete a segment but for its file, which stays as it is without its name: where it is then. None: that could
        not be done, and all of it is deleted."""
        path = self._unnamed_path(number)
        try:
            self.files.rename(self.path_of(number), path)
        except FileNotFoundError:
            raise
        except OSError:
            self.delete(number)
            return None
        try:
            self.files.sync_directory(self.path)
        except OSError:
            # The name may come back with the next start, so nothing may overwrite what the file holds.
            self.files.unlink(path)
            raise
        return path

    def wipe(self, fd: int, start: int, stop: int) -> None:
        """Overwrite a part of a file with zeros, on disk. A piece at a time: a commit to another file that is made
        meanwhile waits for one piece at most, and not for megabytes."""
        for offset in range(start, stop, len(ZEROS)):
            self.files.write(fd, (memoryview(ZEROS)[: stop - offset],), offset)
            self.files.sync(fd)

    def _unnamed_path(self, number: int) -> Path:
        return self.path / (file_name(number) + UNNAMED_SUFFIX)

    def _recover(self, leave: Leave | None) -> Recovered:
        names = self.files.names(self.path)
        for name in names:
            if name.endswith(UNNAMED_SUFFIX):
                self.files.unlink(self.path / name)
        return self._found(names, self.options.journal_on_damage, leave)

    def _found(self, names: list[str], on_damage: str, leave: Leave | None = None) -> Recovered:
        excused, is_damaged = self._forgone() if FORGONE_NAME in names else ([], False)
        if is_damaged and on_damage == "truncate":
            excused = [EVERY_FILE]  # each that is missing is told of
        try:
            return recover(self._contents(self._numbers(names)), self._node_id, on_damage, leave, excused)
        except Unusable as fault:
            if is_damaged and fault.why == MISSING:
                why = f"it is damaged, and may have said that a start goes on without {fault.file}, which is missing"
                raise Unusable(FORGONE_NAME, -1, why, f"put back that file, or {TRUNCATE}") from fault
            raise

    @staticmethod
    def _numbers(names: list[str]) -> list[int]:
        """Of files that are called as we would call them: another name of a number would have a file count twice."""
        numbered = ((int(match[1]), name) for name in names if (match := _NAME.fullmatch(name)))
        return sorted(number for number, name in numbered if file_name(number) == name)

    def _contents(self, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
        for number in numbers:
            yield number, self.files.read(self.path_of(number))

    def _settle_files(self, recovered: Recovered) -> None:
        """Make the disk agree with what recovery returned, before anything is built on it.

        After a power cut in the middle the next start finds the same damage, or less behind it, and no other.
        """
        if recovered.forgone:
            self._note_forgone(recovered.forgone)
        for number in reversed(recovered.set_aside):
            self.files.rename(self.path_of(number), self._damaged_path(number))
        damaged = [cut.segment for cut in recovered.cuts if cut.is_damage]
        for number in damaged:
            self._keep_copy(number)
        if damaged:
            # What is wiped next would else be nowhere after a power cut.
            self.files.sync_directory(self.path)
        for cut in recovered.cuts:
            self._cut(cut)
        if recovered.unproven is not None:
            self._write_again(recovered.unproven)
        for number in reversed(recovered.unused):
            self.files.unlink(self.path_of(number))
        if not recovered.forgone and FORGONE_NAME in self.files.names(self.path):
            self.files.unlink(self.path / FORGONE_NAME)
        self.files.sync_directory(self.path)

    def _note_forgone(self, forgone: list[Forgone]) -> None:
        """The first append will say it. Until that is on disk nothing else would: what may have said that these files
        are not needed is wiped before."""
        text = "".join(f"{first} {end}\n" for first, end in forgone).encode()
        path = self.path / (FORGONE_NAME + UNNAMED_SUFFIX)
        fd = self.files.create(path)
        try:
            self.files.write(fd, (text,), 0)
            self.files.sync(fd)
        finally:
            self.files.close(fd)
        self.files.rename(path, self.path / FORGONE_NAME)
        self.files.sync_directory(self.path)

    def _forgone(self) -> tuple[list[Forgone], bool]:
        """What is noted, and whether some of it is damaged: it has its name only when all of it is on disk, and is
        never empty."""
        lines = bytes(self.files.read(self.path / FORGONE_NAME)).decode(errors="replace").splitlines()
        matches = [_FORGONE.fullmatch(line) for line in lines]
        return [Forgone(int(match[1]), int(match[2])) for match in matches if match], not matches or None in matches

    def _cut(self, cut: Cut) -> None:
        size_bytes = self.files.size(self.path_of(cut.segment))
        fd = self.files.open(self.path_of(cut.segment))
        try:
            self.wipe(fd, cut.offset, size_bytes)
        finally:
            self.files.close(fd)

    def _keep_copy(self, number: int) -> None:
        content = self.files.read(self.path_of(number))
        fd = self.files.create(self._damaged_path(number))
        try:
            self.files.write(fd, (content,), 0)
            self.files.sync(fd)
        finally:
            self.files.close(fd)

    def _damaged_path(self, number: int) -> Path:
        taken = set(self.files.names(self.path))
        names = (f"{file_name(number)}.damaged-{count}" for count in range(1, len(taken) + 2))
        return self.path / next(name for name in names if name not in taken)

    def _write_again(self, unproven: tuple[int, int, int]) -> None:
        """Entries that no later one proves to be on disk may be in memory only, after a kill or a failed sync.

        After a failed sync the kernel takes those pages for clean, another sync would do nothing: so write them anew.
        """
        number, start, stop = unproven
        content = self.files.read(self.path_of(number))
        fd = self.files.open(self.path_of(number))
        try:
            self.files.write(fd, (memoryview(content)[start:stop],), start)
            self.files.sync(fd)
        finally:
            self.files.close(fd)


def _whole_blocks(size_bytes: int) -> int:
    return size_bytes + -size_bytes % BLOCK_BYTES


def fault_of(error: OSError, directory: Path) -> StorageFault:
    """What the operating system said, as the fault that stops the node."""
    if isinstance(error, regular_files.NotRegular) or error.errno in IN_THE_WAY:
        remedy = "move it away, and restore the file or the directory if it had been one"
        return Unusable(str(error.filename or directory), -1, error.strerror or str(error), remedy)
    remedies = {
        errno.ENOSPC: "free space on that file system, then start the broker again",
        errno.EDQUOT: "raise the quota of the broker's user, then start the broker again",
        errno.EACCES: "give the broker's user the directory, then start the broker again",
        errno.EROFS: "mount the file system for writing, then start the broker again",
    }
    remedy = remedies.get(error.errno or 0, "look at the disk and the kernel's log, then start the broker again")
    return StorageFault(str(error.filename or directory), -1, error.strerror or str(error), remedy)
