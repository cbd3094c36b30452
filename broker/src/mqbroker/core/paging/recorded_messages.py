"""What recovery found, as messages: which are in which queue, how often they were delivered, and their runs."""

from __future__ import annotations

from collections.abc import Iterator

from mqbroker.base.errors import StorageFault, Unusable
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.pages import PagePiece
from mqbroker.journal.ranges import RangeMap
from mqbroker.journal.records import Attempts
from mqbroker.journal.recovered import Recovered, RecoveredRun
from mqbroker.wire.large import is_large, large_in
from mqbroker.wire.parts import parts_of
from mqbroker.wire.run import Run, parse_run

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
        """These messages as a segment in memory. Raises StorageFault where the record is not a run."""
        run = self._runs.get(id(self._record))
        if run is None:
            run = self._runs[id(self._record)] = run_of(self._record)
        return Segment(run, self.first_id - run.first_id, self.count, self.deliveries)


def messages_in(recovered: Recovered, now_ms: int) -> Iterator[tuple[int, RecordedMessages, bool]]:
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


def _fault_of(record: RecoveredRun, frames_count: int) -> StorageFault:
    why = f"the record of messages {record.first_id}+{record.count} holds {frames_count} frames of one shape"
    return Unusable(f"journal segment {record.segment}", -1, why, "restore the data directory from a backup")


def counts_by_queue(recovered: Recovered, now_ms: int = 0) -> dict[int, RangeMap[Attempts]]:
    """queue id -> message id -> attempts; later records win, and what is due by now is due at once."""
    counts: dict[int, RangeMap[Attempts]] = {}
    for queue_id, first_id, n, delivery_count, due_ms in recovered.counts:
        attempts = Attempts(delivery_count, due_ms if due_ms > now_ms else 0)
        counts.setdefault(queue_id, RangeMap()).assign(first_id, first_id + n, attempts)
    return counts


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
