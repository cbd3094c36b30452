"""Files of large messages: who needs them, and when they may be deleted.

A file is held by runs that are in queues, by the upload that writes it and by downloads that read it. Invariant: one
that the journal knows is deleted only when the append that settled its last message is synced, so that recovery never
finds a record without its file; one that the journal does not know goes with its last holder. Bodies are not here.
Source: docs/adr/0009-large-messages.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Final

from mqbroker.base.errors import StorageFault, Unusable
from mqbroker.base.look import LOOK
from mqbroker.journal.plan import Journal
from mqbroker.wire.run import Run

DIRECTORY: Final = "large-messages"
BOOT_BITS: Final = 32


class HeldFile:
    """One file. `settled_at`: the append with its last settlement so far, 0 where there was none."""

    __slots__ = ("holders", "is_stored", "settled_at")

    def __init__(self) -> None:
        self.holders = 0
        self.is_stored = False
        self.settled_at = 0


class LargeFiles:
    """See the module's docstring. `delete` carries a deletion out."""

    def __init__(self, journal: Journal) -> None:
        self.delete: Callable[[int], None] = lambda file: None
        self.given_up: dict[int, StorageFault] = {}  # by message id: what a start did without
        self._journal = journal
        self._next_file = (journal.boot << BOOT_BITS) + 1
        self._held: dict[int, HeldFile] = {}
        self._doomed: list[tuple[int, int]] = []

    @property
    def count(self) -> int:
        """Files that somebody needs."""
        return len(self._held)

    def begin(self) -> int:
        """The id of a new file, held by whoever writes it."""
        file = self._next_file
        LOOK.has_touched = True
        self._next_file += 1
        self.hold(file)
        return file

    def hold(self, file: int) -> None:
        """Somebody more needs the file of a large message."""
        held = self._held.get(file)
        LOOK.has_touched = True
        if held is None:
            held = self._held[file] = HeldFile()
        held.holders += 1

    def stored(self, run: Run) -> None:
        """The journal has the run: if it is a large one, it knows the file from now on."""
        LOOK.has_touched = True
        if run.large is not None:
            self._held[run.large.file].is_stored = True

    def hold_stored(self) -> list[int]:
        """One holder more of each file that the journal knows; those files."""
        stored = [file for file, held in self._held.items() if held.is_stored]
        LOOK.has_touched = True
        for file in stored:
            self._held[file].holders += 1
        return stored

    def settle(self, file: int) -> None:
        """A run that held the file is settled everywhere, and the journal was told before."""
        held = self._held[file]
        LOOK.has_touched = True
        if held.is_stored:
            held.settled_at = self._journal.latest_position
        self.release(file)

    def release(self, file: int) -> None:
        """Somebody less needs the file; it is deleted where nobody does."""
        held = self._held[file]
        LOOK.has_touched = True
        held.holders -= 1
        if held.holders:
            return
        del self._held[file]
        if held.settled_at > self._journal.synced_position:
            heappush(self._doomed, (held.settled_at, file))
        else:
            self.delete(file)

    def synced(self, position: int) -> None:
        """Everything up to `position` is on disk."""
        LOOK.has_touched = True
        while self._doomed and self._doomed[0][0] <= position:
            self.delete(heappop(self._doomed)[1])

    # -- recovery ------------------------------------------------------------------------------------------------------

    def keep_whole(self, run: Run, files: Mapping[int, int], queue_id: int) -> bool:
        """A recovered run stays if it has its file; whether it does. Raises StorageFault if not; where damage is to be
        given up, the message leaves its queue instead.
        """
        fault = fault_of(run, files)
        if fault is None:
            return True
        if not self._journal.gives_up_damage:
            raise fault
        LOOK.has_touched = True
        self.given_up[run.first_id] = fault
        self._journal.settle(queue_id, run.first_id, run.count)
        return False

    def begin_above(self, files: Mapping[int, int]) -> list[int]:
        """Of all files that are there those that nobody needs; new ones get higher ids than any of them."""
        self._next_file = max(self._next_file, max(files, default=0) + 1)
        return sorted(file for file in files if file not in self._held)


def fault_of(run: Run, files: Mapping[int, int]) -> StorageFault | None:
    """What is wrong with the file of a recovered run, by the sizes of all files."""
    if run.large is None or files.get(run.large.file) == run.large.size_bytes:
        return None
    file, size_bytes = run.large
    state = f"has {files[file]}" if file in files else "is not there"
    why = f"it holds {size_bytes} bytes of message {run.first_id}, and {state}"
    remedy = 'restore the data directory from a backup, or start once with journal-on-damage = "truncate" without it'
    return Unusable(f"{DIRECTORY}/{file}.msg", -1, why, remedy)
