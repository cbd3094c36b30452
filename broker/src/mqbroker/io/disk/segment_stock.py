"""Segment files that are no longer needed and are kept, without a name, to be used again for the next segments.

Owns these files: at most `journal-pool-files`, all of the standard size. Invariant: what a file held is overwritten
only after the loss of its name is on disk, and it is used only after its zeros are. They are written a piece at a time,
with pauses, so that commits are not held up: `work` is for a thread that looks for something better to do between.
Where room on the file system is scarce, nothing is kept. A failure here costs a file of the stock and nothing else.

Why: writing zeros into blocks that a file has already changes no metadata, and deleting files and making others does.
Source: docs/adr/0002-journal.md.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from pathlib import Path

from mqbroker.io.disk.files import ZEROS
from mqbroker.io.disk.journal_directory import JournalDirectory, OpenJournalSegment
from mqbroker.io.disk.space_watch import roomy_bytes

# The pause after a piece, by how long that took: most of the time the disk is for commits alone. While so many files
# have their zeros, nearly all of the time: a burst is carried by what was made ready before, and the rest can wait.
PAUSE_FACTOR = 3
LONG_PAUSE_FACTOR = 20
LONG_PAUSE_S_MAX = 1.0
CLEAN_ENOUGH = 4
# How often the room on the file system is looked at while files are kept. They are given back before publishers are
# held back.
LOOK_PERIOD_S = 5.0


class JournalSegmentStock:
    """Files that are made ready for the journal, and old ones to use again; for one thread."""

    def __init__(self, directory: JournalDirectory) -> None:
        self._directory = directory
        self._files = directory.files
        self._free_bytes_min = roomy_bytes(directory.options.min_disk_free_bytes)
        self._clean: list[Path] = []
        self._unclean: deque[Path] = deque()
        self._fd = -1  # of the first of these, while zeros are written to it
        self._offset = 0
        self._piece_s = 0.0  # how long the last one took

    def __len__(self) -> int:
        return len(self._clean) + len(self._unclean)

    @property
    def wait_s(self) -> float | None:
        """After so much time with nothing better to do `work` is to be called; None: not at all."""
        if self._unclean:
            if len(self._clean) < CLEAN_ENOUGH:
                return self._piece_s * PAUSE_FACTOR
            return min(self._piece_s * LONG_PAUSE_FACTOR, LONG_PAUSE_S_MAX)
        return LOOK_PERIOD_S if self._clean and self._free_bytes_min else None

    def work(self) -> None:
        """Write the next piece of zeros, or give files back."""
        if self._is_scarce():
            self._give_back()
        elif self._unclean:
            started_s = time.monotonic()
            self._wipe_piece()
            self._piece_s = time.monotonic() - started_s

    def keep(self, number: int) -> None:
        """Delete a segment: its file is kept where there is place for it. Raises OSError as a deletion would."""
        directory = self._directory
        is_wanted = len(self) < directory.options.journal_pool_files and not self._is_scarce()
        if not is_wanted or self._files.size(directory.path_of(number)) != directory.standard_bytes:
            directory.delete(number)
            return
        path = directory.retire(number)
        if path is not None:
            self._unclean.append(path)

    def prepare(self, number: int) -> OpenJournalSegment | None:
        """Segment `number` of a file of the stock, without its name yet. None: there is none."""
        while not self._clean and self._unclean:
            self._wipe_piece()
        if not self._clean:
            return None
        # The one that came last: its pages are in memory more likely.
        path = self._clean.pop()
        try:
            return self._directory.reuse(path, number)
        except OSError:
            self._remove(path)
            return None

    def close(self) -> None:
        """The files stay until the next start, which removes them."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._files.close(self._fd)
            self._fd = -1

    def _wipe_piece(self) -> None:
        size_bytes = self._directory.standard_bytes
        try:
            if self._fd < 0:
                self._fd, self._offset = self._files.open(self._unclean[0]), 0
            stop = min(self._offset + len(ZEROS), size_bytes)
            self._directory.wipe(self._fd, self._offset, stop)
        except OSError:
            # After a failed sync nobody knows what is on disk, so it is not tried again.
            self.close()
            self._remove(self._unclean.popleft())
            return
        self._offset = stop
        if stop == size_bytes:
            self.close()
            self._clean.append(self._unclean.popleft())

    def _is_scarce(self) -> bool:
        if not self._free_bytes_min:
            return False
        try:
            return self._files.free_bytes(self._directory.path) < self._free_bytes_min
        except OSError:
            return True

    def _give_back(self) -> None:
        self.close()
        while self._clean or self._unclean:
            self._remove(self._clean.pop() if self._clean else self._unclean.popleft())

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            self._files.unlink(path)
