"""From what recovery found to queues with messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mqbroker.base.errors import StorageFault, Unusable
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.pages import PagePiece
from mqbroker.core.queue.times import deliver_at_ms, expires_ms
from mqbroker.journal.message_records import RANGE_COUNT_MAX
from mqbroker.journal.ranges import RangeMap
from mqbroker.journal.records import Attempts
from mqbroker.journal.recovered import Recovered, RecoveredRun
from mqbroker.wire.large import is_large, large_in
from mqbroker.wire.parts import parts_of
from mqbroker.wire.run import Run, parse_run

if TYPE_CHECKING:
    from mqbroker.core.queue.queue import Queue
    from mqbroker.core.store.store import Store

Range = tuple[int, int, int, int, int]  # queue id, first id, count, delivery count, due
FIRST = Attempts(0, 0)


class RecordedMessages:
    """Messages of one queue in one record, alike. `runs` are those that were made of records so far."""

    __slots__ = ("_record", "_runs", "count", "deliveries", "due_ms", "first_id")

    def __init__(self, record: RecoveredRun, bounds: tuple[int, int, Attempts], runs: dict[int, Run]) -> None:
        self.first_id, end, (self.deliveries, self.due_ms) = bounds
        self.count = end - self.first_id
        self._record = record
        self._runs = runs

    @property
    def is_left(self) -> bool:
        """Whether their bytes were left on disk."""
        return self._record.is_left

    @property
    def piece(self) -> PagePiece | None:
        """Them as part of a page, None where the queue does not page."""
        place = self._record.place
        return None if place is None else PagePiece(self.first_id, self.count, self.deliveries, True, place)

    def large_run(self) -> Run | None:
        """The run, if it is a message whose body is in a file. Raises StorageFault where the record is not a run."""
        return self.segment().run if is_large(bytes(self._record.frames[:6])) else None

    def segment(self) -> Segment:
        """Them in memory. Raises StorageFault where the record is not a run."""
        run = self._runs.get(id(self._record))
        if run is None:
            run = self._runs[id(self._record)] = run_of(self._record)
        return Segment(run, self.first_id - run.first_id, self.count, self.deliveries)


def bring_back(store: Store, recovered: Recovered, by_id: dict[int, Queue], files: Mapping[int, int]) -> None:
    """Give the queues, by their ids in the journal, what recovery found. Raises StorageFault.

    `files`: id -> bytes of all files of large messages.
    """
    suspect: Range | None = None
    store.remotes.restored()
    for queue_id, found, is_suspect in found_in(recovered, store.at.wall_ms):
        queue, piece, large = by_id[queue_id], found.piece, found.large_run()
        if large is not None and not store.large.keep_whole(large, files, queue_id):
            continue
        if piece is not None and (found.is_left or store.paging.keeps_out(queue)):
            store.paging.restore(queue, piece, found.due_ms)
            if large is not None:
                store.paging.files.hold(large, 1, is_stored=True)
        else:
            _into_memory(store, queue, found.segment(), found.due_ms)
        for each in store.message_observers:
            each.messages_restored(queue, found.first_id, found.count)
        if is_suspect:
            here = queue_id, found.first_id, found.count, found.deliveries, found.due_ms
            suspect = _suspected(store, suspect, here)
    _suspected(store, suspect, None)
    for queue in by_id.values():
        store.changed(queue)


def set_times(store: Store, queue: Queue, run: Run) -> None:
    """What a run that was read from disk is to know before anybody looks at it."""
    run.expires_ms = expires_ms(run, store.settings.of(queue.kind.address))
    run.deliver_at_ms = deliver_at_ms(run)


def hold_again(store: Store, queue: Queue, segment: Segment) -> None:
    """Messages that were read from disk, and know their times, are in memory for one queue more."""
    run = segment.run
    if not run.live:
        store.memory.hold(run)
    run.live += segment.n
    if queue.meter is not None:
        queue.meter.add(run.size_bytes(segment.start, segment.n), segment.n)


def _into_memory(store: Store, queue: Queue, segment: Segment, due_ms: int) -> None:
    run = segment.run
    set_times(store, queue, run)
    hold_again(store, queue, segment)
    store.large.stored(run)
    if run.traits.group_id:
        queue.dispatcher.grouped()
    due_ms = max(run.deliver_at_ms, due_ms)
    if due_ms > store.at.wall_ms and not queue.kind.is_internal:
        queue.add_scheduled(segment, due_ms)
    else:
        queue.add(segment)


def _suspected(store: Store, before: Range | None, after: Range | None) -> Range | None:
    """Write down what may have been delivered: the next crash may come before the queue has a consumer again.

    Ranges of one queue come in the order of ids; what lies between them is not in the queue.
    """
    if before is not None and after is not None and before[0] == after[0] and before[3:] == after[3:]:
        count = after[1] + after[2] - before[1]
        if count <= RANGE_COUNT_MAX:
            return before[0], before[1], count, before[3], before[4]
    if before is not None:
        store.journal.count(*before)
    return after


def found_in(recovered: Recovered, now_ms: int) -> Iterator[tuple[int, RecordedMessages, bool]]:
    """(queue id, messages, whether they count as delivered once because the crash may have come after that)."""
    counts = counts_by_queue(recovered, now_ms)
    runs: dict[int, Run] = {}
    for queue_id, contents in recovered.queue_contents().items():
        at_least = delivered_at_least(recovered, queue_id)
        for first, count, record in contents:
            for begin, end, (deliveries, due_ms) in by_count(first, first + count, counts.get(queue_id)):
                bounds = begin, end, Attempts(max(deliveries, at_least), due_ms)
                yield queue_id, RecordedMessages(record, bounds, runs), deliveries < at_least


def delivered_at_least(recovered: Recovered, queue_id: int) -> int:
    """How often each message of a queue counts as delivered at least: once after a crash where it had a consumer,
    since each may have been seen. What was delivered again since then has a count in the journal."""
    return int(not recovered.was_clean and queue_id in recovered.consumed)


def run_of(record: RecoveredRun) -> Run:
    """The messages of a record as the run that they were. Raises StorageFault where its frames are not one."""
    frames = bytes(record.frames)
    if is_large(frames):
        return _large_run_of(record, frames)
    parsed = parse_run(frames, 0, len(frames), record.count, 0xFFFFFFFF)
    if parsed is None or parsed.run.count != record.count:
        raise _fault_of(record, 0 if parsed is None else parsed.run.count)
    return _completed(parsed.run, record)


def _large_run_of(record: RecoveredRun, frames: bytes) -> Run:
    run = large_in(frames)
    if run is None or record.count != 1:
        raise _fault_of(record, 0)
    return _completed(run, record)


def _completed(run: Run, record: RecoveredRun) -> Run:
    run = parts_of(run)[0]  # what was stored as one record has one set of traits
    run.first_id = record.first_id
    run.arrived_ms = record.arrived_ms
    return run


def _fault_of(record: RecoveredRun, found: int) -> StorageFault:
    why = f"the record of messages {record.first_id}+{record.count} holds {found} frames of one shape"
    return Unusable(f"journal segment {record.segment}", -1, why, "restore the data directory from a backup")


def counts_by_queue(recovered: Recovered, now_ms: int = 0) -> dict[int, RangeMap[Attempts]]:
    """queue id -> message id -> attempts; later records win, and what is due by now is due at once."""
    found: dict[int, RangeMap[Attempts]] = {}
    for queue_id, first_id, n, delivery_count, due_ms in recovered.counts:
        attempts = Attempts(delivery_count, due_ms if due_ms > now_ms else 0)
        found.setdefault(queue_id, RangeMap()).assign(first_id, first_id + n, attempts)
    return found


def by_count(first: int, end: int, counts: RangeMap[Attempts] | None) -> Iterator[tuple[int, int, Attempts]]:
    """Split a range of ids where the attempts change: (begin, end, attempts)."""
    if counts is None:
        yield first, end, FIRST
        return
    begin, before = first, counts.at(first) or FIRST
    for low, _, attempts in counts.pieces(first, end):
        if (attempts or FIRST) != before:
            yield begin, low, before
            begin, before = low, attempts or FIRST
    yield begin, end, before
