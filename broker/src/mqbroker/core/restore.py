"""From what recovery found to queues with messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mqbroker.base.errors import StorageFault
from mqbroker.core.backlog import Segment
from mqbroker.core.large import LargeFiles
from mqbroker.journal.recovered import Recovered, RecoveredRun
from mqbroker.wire.large import is_large, large_in
from mqbroker.wire.parts import parts_of
from mqbroker.wire.run import Run, parse_run


def segments_of(recovered: Recovered) -> Iterator[tuple[int, Segment, bool]]:
    """(queue id, messages, whether they count one delivery more because the crash may have come after it)."""
    counts = counts_by_queue(recovered)
    runs: dict[int, Run] = {}
    for queue_id, contents in recovered.queue_contents().items():
        extra = int(not recovered.was_clean and queue_id in recovered.consumed)
        for first, count, record in contents:
            run = runs.get(id(record))
            if run is None:
                run = runs[id(record)] = run_of(record)
            for begin, end, deliveries in by_count(first, first + count, counts.get(queue_id, {})):
                yield queue_id, Segment(run, begin - run.first_id, end - begin, deliveries + extra), bool(extra)


def segments_with_files(
    recovered: Recovered, files: Mapping[int, int], large: LargeFiles
) -> Iterator[tuple[int, Segment, bool]]:
    """The same, without what `large` gives up because its file is not whole. Raises StorageFault otherwise."""
    for queue_id, segment, is_suspect in segments_of(recovered):
        if segment.run.large is None or large.is_whole(segment.run, files, queue_id):
            yield queue_id, segment, is_suspect


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


def counts_by_queue(recovered: Recovered) -> dict[int, dict[int, int]]:
    """queue id -> message id -> delivery count; later records win."""
    found: dict[int, dict[int, int]] = {}
    for count in recovered.counts:
        of_queue = found.setdefault(count.queue_id, {})
        for message_id in range(count.first_id, count.first_id + count.n):
            of_queue[message_id] = count.delivery_count
    return found


def by_count(first: int, end: int, counts: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """Split a range of ids where the delivery count changes: (begin, end, count)."""
    if not counts:
        yield first, end, 0
        return
    begin = first
    while begin < end:
        deliveries = counts.get(begin, 0)
        stop = begin + 1
        while stop < end and counts.get(stop, 0) == deliveries:
            stop += 1
        yield begin, stop, deliveries
        begin = stop
