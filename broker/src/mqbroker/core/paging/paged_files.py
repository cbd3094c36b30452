"""Files of large messages that are paged: their heads are on disk, so somebody else must hold their files."""

from __future__ import annotations

from collections.abc import Iterator

from mqbroker.base.look import LOOK
from mqbroker.core.queue.large import LargeFiles
from mqbroker.wire.run import Run


class PagedFiles:
    """By message id: the file, and in how many queues the message is paged."""

    __slots__ = ("_held", "_large")

    def __init__(self, large: LargeFiles) -> None:
        self._large = large
        self._held: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, run: Run, queues: int, *, is_stored: bool) -> None:
        """A large message is paged in so many queues (more). `is_stored`: the journal knows it."""
        assert run.large is not None
        file, before = self._held.get(run.first_id, (run.large.file, 0))
        if not before:
            self._large.hold(file)
        if is_stored:
            self._large.stored(run)
        LOOK.has_touched = True
        self._held[run.first_id] = file, before + queues

    def taken_in(self, run: Run) -> None:
        """It is in memory for one of these queues, and holds its file from there."""
        if run.large is not None and self._release(run.first_id):
            self._large.release(run.large.file)

    def settle(self, first_id: int, n: int) -> None:
        """Messages are gone from one of these queues, and the journal was told before."""
        for message_id in list(self._among(first_id, n)):
            file = self._held[message_id][0]
            if self._release(message_id):
                self._large.settle(file)

    def _among(self, first_id: int, n: int) -> Iterator[int]:
        if n <= len(self._held):
            return (each for each in range(first_id, first_id + n) if each in self._held)
        return (each for each in self._held if first_id <= each < first_id + n)

    def _release(self, message_id: int) -> bool:
        """By one queue; whether that was the last one."""
        LOOK.has_touched = True
        file, queues = self._held.pop(message_id)
        if queues > 1:
            self._held[message_id] = file, queues - 1
        return queues == 1
