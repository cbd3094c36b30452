"""The disk thread: appends in, one write and one sync for all that have gathered, `Synced` out.

Invariants: positions are written in their order and a position is reported only after the sync that covers it; a
segment is synced before the next one begins; the first failure is the last thing that happens: it is reported once,
nothing is tried again, nothing more is reported as synced. What is handed over is bounded: `submit` waits when too
much is on its way.

Source: docs/adr/0002-journal.md.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from mqbroker.base.errors import StorageFault
from mqbroker.base.histogram import Histogram
from mqbroker.io.disk.journal_directory import JournalDirectory, OpenJournalSegment, fault_of
from mqbroker.io.disk.page_reader import PageReader
from mqbroker.io.disk.segment_pool import JournalSegmentPool
from mqbroker.journal.append import Append
from mqbroker.journal.entry import Chunk, entry_bytes, frame_entry
from mqbroker.journal.format import FILE_HEADER_BYTES
from mqbroker.journal.recovered import Recovered
from mqbroker.node.values.effects import DeleteJournalSegment, ReadPage
from mqbroker.node.values.inputs import Input, Synced

# How long an append that nothing waits for may stay in memory.
RIDE_ALONG_S: Final = 0.05
# Where a group has left this much of it behind, it is not made to wait once more.
RIDE_ALONG_BYTES_MAX: Final = 64 << 10
# An inline commit stops the loop, so it must be small and the disk must have been quick of late.
INLINE_BYTES_MAX: Final = 128 << 10
INLINE_SYNC_S_MAX: Final = 0.001
# After a sync the publishers whose messages it covered send their next ones. Waiting for those, at most this share of
# a usual sync, makes one group of them and of what came during the sync, instead of two that take turns. Publishers
# with much under way need no such wait: above this size groups that take turns keep them and the disk at work.
GATHER_SHARE: Final = 0.5
GATHER_BYTES_MAX: Final = 128 << 10
# A group ends here, though more is queued: its publishers go on with what it covered while the next one is written. The
# sync of a good disk is a small part of the time by then.
GROUP_BYTES_MAX: Final = 192 << 10
# Above `disk-pending-bytes-max` publishers get no credit. What they may still send must fit; beyond that the loop
# waits.
PENDING_FACTOR_MAX: Final = 8
# A disk that takes longer than this for one write or sync is taken for dead.
STALL_S_MAX: Final = 60.0
_monotonic_s: Final = time.monotonic  # as in loop.py
# From a disk with a battery behind its cache to one that is about to be taken for dead.
SYNC_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Disk:
    """`post` and `on_fatal` are called from any thread. `submit` and `try_inline` belong to one thread, the loop's.

    Raises StorageFault where the file cannot be opened in which recovery ended.
    """

    def __init__(
        self,
        directory: JournalDirectory,
        recovered: Recovered,
        post: Callable[[Input], None],
        on_fatal: Callable[[StorageFault], None],
    ) -> None:
        self._directory = directory
        self._files = directory.files
        self._is_synced = directory.options.journal_sync
        self._post = post
        self._on_fatal = on_fatal
        self._proven = recovered.last_position  # known to be on disk; loading has seen to that
        self._pending_bytes_limit = directory.options.disk_pending_bytes_max * PENDING_FACTOR_MAX
        self._pending_bytes = 0
        self._gather_bytes = 0  # that many may be worth waiting for; 0: nobody gathers
        self._queue: deque[Append] = deque()
        # The loop takes the lock under it: entering a Condition is a call of Python, and each message pays for it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._is_sync_wanted = False
        self._is_closing = False
        self._fault: StorageFault | None = None
        self._busy_since_s: float | None = None
        self._sync_s = 0.0
        self.appends_total = 0
        self.written_bytes_total = 0
        self.syncs = Histogram(SYNC_BOUNDS_S)
        self._segment: OpenJournalSegment | None = None
        self._can_write_synced = False
        self._offset = FILE_HEADER_BYTES
        self._pool = JournalSegmentPool(directory, post, self._fail_beside)
        self._pages = PageReader(directory, post, self._fail_beside)
        try:
            self._can_write_synced = self._files.can_write_synced(directory.path)
            self._open_tail(recovered)
        except OSError as error:
            self._pool.close(0)
            raise fault_of(error, directory.path) from error
        self._worker = threading.Thread(target=self._run, name="disk", daemon=True)
        self._worker.start()

    @property
    def pending_bytes(self) -> int:
        """Handed over and not synced."""
        return self._pending_bytes

    def is_alive(self) -> bool:
        """For the watchdog: no failure, and no write or sync that hangs."""
        since_s = self._busy_since_s
        is_stalled = since_s is not None and time.monotonic() - since_s > STALL_S_MAX
        return self._worker.is_alive() and self._fault is None and not is_stalled

    def submit(self, append: Append) -> None:
        """Queue an append. Waits while the disk is far behind: that holds back everything that could produce more."""
        with self._lock:
            while self._pending_bytes > self._pending_bytes_limit and self._fault is None:
                self._changed.wait()
            if self._fault is not None:
                return
            is_first = not self._queue
            self._queue.append(append)
            self._pending_bytes += append.size_bytes
            wakes = is_first or (append.sync and not self._is_sync_wanted)
            self._is_sync_wanted |= append.sync
            if wakes or (self._gather_bytes and self._pending_bytes >= self._gather_bytes):
                self._changed.notify_all()

    def try_inline(self, append: Append) -> bool:
        """Commit here and now if that is cheaper than two changes of threads. False: nothing happened, submit it."""
        if append.size_bytes > INLINE_BYTES_MAX or self._sync_s > INLINE_SYNC_S_MAX:
            return False
        if not self._lock.acquire(False):
            return False
        try:
            if self._busy_since_s is not None or self._fault is not None or self._is_closing or self._gather_bytes:
                return False
            segment = self._segment
            if segment is None or self._pending_bytes > INLINE_BYTES_MAX or append.segment != segment.number:
                return False
            group = [append]
            if self._queue:
                group[:0] = self._queue
                self._queue.clear()
            self._is_sync_wanted = False
            self._pending_bytes += append.size_bytes
            self._commit_or_fail(group)
            return True
        finally:
            self._lock.release()

    def delete(self, effect: DeleteJournalSegment) -> None:
        """Off the loop; Done or Failed follows. What allows it is in the current segment at the latest: that is on disk
        first."""
        segment = self._segment
        unsynced = None if self._is_synced or segment is None else segment.number
        self._pool.delete(effect.id, effect.segment, unsynced)

    def read(self, effect: ReadPage) -> None:
        """Off the loop; Done follows, or the end of the node."""
        self._pages.read(effect)

    def close(self, timeout_s: float = 30.0) -> bool:
        """Commit everything that was handed over, then end. False: something is not on disk."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._worker.join(timeout_s)
        self._pool.close(timeout_s)
        self._pages.close(timeout_s)
        is_done = not self._worker.is_alive() and self._fault is None
        if is_done and self._segment is not None:
            with contextlib.suppress(OSError):  # all of it is on disk
                self._files.close(self._segment.fd)
            self._segment = None
        return is_done

    def _open_tail(self, recovered: Recovered) -> None:
        next_number = recovered.trim
        if recovered.segments:
            tail = recovered.segments[-1]
            self._use(self._directory.open(tail.number), tail.used_bytes)
            next_number = tail.number + 1
        self._pool.prepare(next_number)

    def _run(self) -> None:
        committed_bytes = 0
        while group := self._next_group(committed_bytes):
            committed_bytes = sum(append.size_bytes for append in group)
            if not self._commit_or_fail(group):
                return

    def _gather(self, committed_bytes: int) -> None:
        """Wait a moment for answers to the last group, if others came in while it was written."""
        if not self._is_sync_wanted or not 0 < committed_bytes <= GATHER_BYTES_MAX:
            return
        deadline_s = time.monotonic() + self._sync_s * GATHER_SHARE
        self._gather_bytes = self._pending_bytes + committed_bytes
        while self._pending_bytes < self._gather_bytes and not self._is_closing:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not self._changed.wait(left_s):
                break
        self._gather_bytes = 0

    def _next_group(self, committed_bytes: int) -> list[Append]:
        """What is queued, as soon as something waits for it, up to a bound. Empty: closed."""
        with self._changed:
            self._busy_since_s = None
            self._gather(committed_bytes)
            deadline_s: float | None = None
            while not self._is_closing and not self._is_sync_wanted:
                if not self._queue:
                    self._changed.wait()
                    continue
                now_s = time.monotonic()
                deadline_s = now_s + RIDE_ALONG_S if deadline_s is None else deadline_s
                if now_s >= deadline_s:
                    break
                self._changed.wait(deadline_s - now_s)
            group: list[Append] = []
            size_bytes = 0
            while self._queue and size_bytes < GROUP_BYTES_MAX:
                group.append(self._queue.popleft())
                size_bytes += group[-1].size_bytes
            is_much_left = self._pending_bytes - size_bytes > RIDE_ALONG_BYTES_MAX
            self._is_sync_wanted = is_much_left or any(append.sync for append in self._queue)
            self._busy_since_s = time.monotonic()
            return group

    def _commit_or_fail(self, group: list[Append]) -> bool:
        try:
            self._commit(group)
        except OSError as error:
            self._fail(fault_of(error, self._directory.path))
        except Exception as error:
            # The edge of the thread: whatever it was, nothing after it can be trusted to be on disk.
            why = f"the disk thread failed: {error!r}"
            self._fail(StorageFault(str(self._directory.path), -1, why, "report this, it is a bug of the broker"))
        return self._fault is None

    def _commit(self, group: list[Append]) -> None:
        start = 0
        for stop in range(1, len(group) + 1):
            if stop == len(group) or group[stop].segment != group[start].segment:
                self._commit_to_segment(group[start:stop])
                start = stop

    def _commit_to_segment(self, group: list[Append]) -> None:
        segment = self._segment
        if segment is None or segment.number != group[0].segment:
            segment = self._begin_segment(group[0])
        chunks: list[Chunk] = []
        size_bytes = payload_bytes = 0
        for append in group:
            place = (append.position, self._proven)
            head, end = frame_entry(append.chunks, append.size_bytes, place, segment.seed)
            chunks.append(head)
            chunks += append.chunks
            chunks.append(end)
            size_bytes += entry_bytes(append.size_bytes)
            payload_bytes += append.size_bytes
        if self._is_synced:
            self._write_synced(segment.fd, chunks)
            self._proven = group[-1].position
        else:
            self._files.write(segment.fd, chunks, self._offset)
        self.appends_total += len(group)
        self.written_bytes_total += size_bytes
        self._offset += size_bytes
        with self._lock:
            was_over = self._pending_bytes > self._pending_bytes_limit
            self._pending_bytes -= payload_bytes
            if was_over:
                # Only then may the loop wait in `submit`. After an inline commit this would wake the disk thread, which
                # has nothing to do, once for each message.
                self._changed.notify_all()
        self._post(Synced(group[-1].position))

    def _begin_segment(self, append: Append) -> OpenJournalSegment:
        old = self._segment
        if old is not None:
            if not self._is_synced:
                self._complete(old, append.position - 1)
            self._files.close(old.fd)
            self._segment = None
        needed_bytes = FILE_HEADER_BYTES + entry_bytes(append.size_bytes) + append.room_bytes
        segment = self._pool.take(append.segment, needed_bytes)
        self._use(segment, FILE_HEADER_BYTES)
        return segment

    def _complete(self, segment: OpenJournalSegment, position: int) -> None:
        """Without `journal-sync` the only sync of a file: recovery relies on complete files before the last one."""
        self._files.sync(segment.fd)
        self._proven = position

    def _use(self, segment: OpenJournalSegment, offset: int) -> None:
        """What is written from now on goes into this one."""
        self._segment, self._offset = segment, offset

    def _write_synced(self, fd: int, chunks: list[Chunk]) -> None:
        started_s = _monotonic_s()
        if self._can_write_synced:
            self._files.write_synced(fd, chunks, self._offset)
        else:
            self._files.write(fd, chunks, self._offset)
            self._files.sync(fd)
        took_s = _monotonic_s() - started_s
        self.syncs.add(took_s)
        # A moving average: one slow sync makes the next few go to the thread, where they do not stop the loop.
        self._sync_s += (took_s - self._sync_s) / 8

    def _fail_beside(self, fault: StorageFault) -> None:
        """By another thread: what was acknowledged cannot be read, or is not on disk. Nothing more is written."""
        with self._changed:
            self._fault = fault
            self._queue.clear()
            self._changed.notify_all()
        self._on_fatal(fault)

    def _fail(self, fault: StorageFault) -> None:
        with self._changed:
            self._fault = fault
            self._queue.clear()
            self._changed.notify_all()
        with contextlib.suppress(Exception):
            self._pool.close(0)
        self._on_fatal(fault)
