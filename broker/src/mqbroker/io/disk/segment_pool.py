"""A thread beside the disk thread that has the next segment file ready before it is needed, and deletes old ones.

Files are written with zeros beforehand because a sync of data in such a file is twice as fast as in one that only has
its blocks allocated (no metadata changes with it). A failure here is no failure of the node: the disk thread then
makes the file itself, and its failure counts. A deletion that fails is reported; recovery offers the file for
deletion again. Some of the files that are deleted are kept and used again (segment_stock.py), which the thread sees to
while nothing is asked of it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

from mqbroker.base.errors import StorageFault
from mqbroker.io.disk.journal_directory import JournalDirectory, OpenJournalSegment, fault_of
from mqbroker.io.disk.segment_stock import JournalSegmentStock
from mqbroker.node.values.inputs import Done, Failed, Input

DELETIONS_MAX = 4096


class JournalSegmentPool:
    """`take` is for the disk thread, `delete` for any."""

    def __init__(
        self, directory: JournalDirectory, post: Callable[[Input], None], fail: Callable[[StorageFault], None]
    ) -> None:
        self._directory = directory
        self._post = post
        self._fail = fail
        self._stock = JournalSegmentStock(directory)  # the thread's own
        self._tasks: queue.Queue[Callable[[], None] | None] = queue.Queue(DELETIONS_MAX)
        self._prepared = threading.Condition()
        self._wanted: int | None = None
        self._spare: OpenJournalSegment | None = None
        self._thread = threading.Thread(target=self._run, name="disk-files", daemon=True)
        self._thread.start()

    def prepare(self, number: int) -> None:
        """Begin to make segment `number`."""
        with self._prepared:
            self._wanted = number
        try:
            self._tasks.put_nowait(lambda: self._prepare(number))
        except queue.Full:
            with self._prepared:
                self._wanted = None

    def take(self, number: int, size_bytes: int) -> OpenJournalSegment:
        """Segment `number` under its name, with room for `size_bytes`. Raises OSError."""
        with self._prepared:
            while self._wanted == number:
                self._prepared.wait()
            spare, self._spare = self._spare, None
        standard_bytes = self._directory.standard_bytes
        if spare is not None and (spare.number != number or size_bytes > standard_bytes):
            self._directory.discard(spare)
            spare = None
        if spare is None:
            spare = self._directory.prepare(number, max(size_bytes, standard_bytes))
            self._directory.name(spare)
        self.prepare(number + 1)
        return spare

    def delete(self, effect_id: int, segment: int, unsynced: int | None) -> None:
        """Done or Failed follows. `unsynced`: the segment whose end, which says that the file may go, may be in memory
        only."""
        try:
            self._tasks.put_nowait(lambda: self._delete(effect_id, segment, unsynced))
        except queue.Full:
            self._post(Failed(effect_id, f"{DELETIONS_MAX} files wait for deletion already"))

    def close(self, timeout_s: float) -> None:
        """End after what was asked for. A file that is ready and unused is removed, at the next start if not now."""
        with contextlib.suppress(queue.Full):
            self._tasks.put_nowait(None)
        if timeout_s:
            self._thread.join(timeout_s)
        spare, self._spare = self._spare, None
        if spare is not None:
            with contextlib.suppress(OSError):
                self._directory.discard(spare)

    def _run(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=self._stock.wait_s)
            except queue.Empty:
                self._stock.work()
                continue
            if task is None:
                break
            task()
        self._stock.close()

    def _prepare(self, number: int) -> None:
        spare: OpenJournalSegment | None = None
        with contextlib.suppress(OSError):
            spare = self._stock.prepare(number) or self._directory.prepare(number, self._directory.standard_bytes)
            spare = self._named(spare)
        with self._prepared:
            self._spare = spare
            self._wanted = None
            self._prepared.notify_all()

    def _named(self, segment: OpenJournalSegment) -> OpenJournalSegment | None:
        """With its name, ahead of its time: that costs a sync of the directory, and commits would wait for it."""
        try:
            self._directory.name(segment)
        except OSError:
            self._directory.files.close(segment.fd)
            return None
        return segment

    def _delete(self, effect_id: int, segment: int, unsynced: int | None) -> None:
        if unsynced is not None and not self._is_on_disk(unsynced):
            return
        try:
            self._stock.keep(segment)
        except FileNotFoundError:
            # A crash between deletion and its report: the outcome is what was wanted.
            self._post(Done(effect_id))
        except OSError as error:
            self._post(Failed(effect_id, f"{error.filename}: {error.strerror}"))
        else:
            self._post(Done(effect_id))

    def _is_on_disk(self, segment: int) -> bool:
        """Sync a segment. After a failed sync nobody knows what is on disk, and that is the end of the node."""
        try:
            self._directory.sync(segment)
        except FileNotFoundError:
            return True  # it was synced before its successor was begun, and was not needed soon after
        except OSError as error:
            self._fail(fault_of(error, self._directory.path))
            return False
        return True
