"""From what recovery found to queues with messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mqbroker.base.errors import StorageFault
from mqbroker.core.backlog import Segment
from mqbroker.core.pages import Piece
from mqbroker.core.times import deliver_at_ms, expires_ms
from mqbroker.journal.ranges import RangeMap
from mqbroker.journal.records import RANGE_COUNT_MAX
from mqbroker.journal.recovered import Recovered, RecoveredRun
from mqbroker.wire.large import is_large, large_in
from mqbroker.wire.parts import parts_of
from mqbroker.wire.run import Run, parse_run

if TYPE_CHECKING:
    from mqbroker.core.queue import Queue
    from mqbroker.core.store import Store

Range = tuple[int, int, int, int]  # queue id, first id, count, delivery count


class Found:
    """Messages of one queue in one record. `runs` are those that were made of records so far."""

    __slots__ = ("_record", "_runs", "count", "deliveries", "first_id")

    def __init__(self, record: RecoveredRun, bounds: tuple[int, int, int], runs: dict[int, Run]) -> None:
        self.first_id, end, self.deliveries = bounds
        self.count = end - self.first_id
        self._record = record
        self._runs = runs

    @property
    def is_left(self) -> bool:
        """Whether their bytes were left on disk."""
        return self._record.is_left

    @property
    def piece(self) -> Piece | None:
        """Them as part of a page, None where the queue does not page."""
        place = self._record.place
        return None if place is None else Piece(self.first_id, self.count, self.deliveries, True, place)

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
    for queue_id, found, is_suspect in found_in(recovered):
        queue, piece, large = by_id[queue_id], found.piece, found.large_run()
        if large is not None and not store.large.is_whole(large, files, queue_id):
            continue
        if piece is not None and (found.is_left or store.paging.keeps_out(queue)):
            store.paging.restore(queue, piece)
            if large is not None:
                store.paging.files.hold(large, 1, is_stored=True)
        else:
            _into_memory(store, queue, found.segment())
        if is_suspect:
            suspect = _suspected(store, suspect, (queue_id, found.first_id, found.count, found.deliveries))
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


def _into_memory(store: Store, queue: Queue, segment: Segment) -> None:
    run = segment.run
    set_times(store, queue, run)
    hold_again(store, queue, segment)
    store.large.stored(run)
    if run.traits.group_id:
        queue.dispatcher.grouped()
    if run.deliver_at_ms > store.at.wall_ms and not queue.kind.is_internal:
        queue.add_scheduled(segment, run.deliver_at_ms)
    else:
        queue.add(segment)


def _suspected(store: Store, before: Range | None, after: Range | None) -> Range | None:
    """Write down what may have been delivered: the next crash may come before the queue has a consumer again.

    Ranges of one queue come in the order of ids; what lies between them is not in the queue.
    """
    if before is not None and after is not None and before[0] == after[0] and before[3] == after[3]:
        count = after[1] + after[2] - before[1]
        if count <= RANGE_COUNT_MAX:
            return before[0], before[1], count, before[3]
    if before is not None:
        store.journal.count(*before)
    return after


def found_in(recovered: Recovered) -> Iterator[tuple[int, Found, bool]]:
    """(queue id, messages, whether they count one delivery more because the crash may have come after it)."""
    counts = counts_by_queue(recovered)
    runs: dict[int, Run] = {}
    for queue_id, contents in recovered.queue_contents().items():
        extra = int(not recovered.was_clean and queue_id in recovered.consumed)
        for first, count, record in contents:
            for begin, end, deliveries in by_count(first, first + count, counts.get(queue_id)):
                yield queue_id, Found(record, (begin, end, deliveries + extra), runs), bool(extra)


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
    return StorageFault(f"journal segment {record.segment}", -1, why, "restore the data directory from a backup")


def counts_by_queue(recovered: Recovered) -> dict[int, RangeMap[int]]:
    """queue id -> message id -> delivery count; later records win."""
    found: dict[int, RangeMap[int]] = {}
    for queue_id, first_id, n, delivery_count in recovered.counts:
        found.setdefault(queue_id, RangeMap()).assign(first_id, first_id + n, delivery_count)
    return found


def by_count(first: int, end: int, counts: RangeMap[int] | None) -> Iterator[tuple[int, int, int]]:
    """Split a range of ids where the delivery count changes: (begin, end, count)."""
    if counts is None:
        yield first, end, 0
        return
    begin, before = first, counts.at(first) or 0
    for low, _, deliveries in counts.pieces(first, end):
        if (deliveries or 0) != before:
            yield begin, low, before
            begin, before = low, deliveries or 0
    yield begin, end, before
