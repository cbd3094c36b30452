"""Applies records in their order and knows, at the end, what is live. Bytes are checked by recover.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from mqbroker.base.checksum import crc32
from mqbroker.journal import records
from mqbroker.journal.places import Slice
from mqbroker.journal.ranges import RangeMap, forgotten, subtract
from mqbroker.journal.records import MalformedRecord
from mqbroker.journal.recovered import Leave, RecoveredRun, StoredId
from mqbroker.wire.large import is_large


class NoBeginning(MalformedRecord):
    """Nothing of the entry was applied: it can be read, and is none that opens a segment."""


def attributes_in(text: bytes, whose: str) -> dict[str, Any]:
    """What a record says of a queue or an address. Raises Malformed."""
    try:
        attributes = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedRecord(f"what is said of {whose} is no JSON: {error}") from None
    if not isinstance(attributes, dict):
        raise MalformedRecord(f"what is said of {whose} is no JSON object")
    return attributes


def _check(number: int, maximum: int) -> None:
    """A number that others are counted on from. Raises Malformed where that could not be."""
    if number > maximum:
        raise MalformedRecord(f"number {number} is above {maximum}")


class Rebuild:
    """`begin_segment`, then `apply` for each of its entries; the rest are the outcomes."""

    def __init__(self, leave: Leave | None = None) -> None:
        self._leave = leave
        self._may_leave: dict[bytes, bool] = {}
        self._kept_bytes = 0  # of what may be left on disk and is not
        self._place = (0, memoryview(b""))  # where the record lies that is being applied, and its bytes
        self.next_id = 1
        self.boot = 0
        self.trim = 1
        self.was_clean = True
        self.forgone: dict[records.Forgone, None] = {}
        self._attributes: dict[int, bytes] = {}
        self._addresses: dict[str, bytes] = {}
        self._consumed: dict[int, None] = {}
        # Of a dropped queue: the first so many runs are not for it, whoever has its id now. A later drop adds some.
        # No QUEUE record ends that: it may lie in a file that is gone while one before it is still there.
        self._dropped: dict[int, int] = {}
        self._counts: dict[int, RangeMap[records.Attempts]] = {}
        self._attempts: dict[records.Attempts, records.Attempts] = {}  # each once, so that neighbours become one range
        self._duplicates: dict[str, tuple[int, dict[int, StoredId]]] = {}  # with the oldest number of each
        self._runs: list[RecoveredRun] = []
        self._run_of: RangeMap[RecoveredRun] = RangeMap()
        self._stored_end = 0
        self._segment = 0
        self._run_bytes = 0
        self._stored_refs = 0

    def begin_segment(self, number: int) -> None:
        self._segment = number
        self._run_bytes = 0
        self._stored_refs = 0

    def segment_use(self) -> tuple[int, int]:
        """(bytes of runs, references that they stored) of the segment that is being read."""
        return self._run_bytes, self._stored_refs

    def apply(self, payload: memoryview, is_first: bool, offset: int = 0) -> None:
        """All records of one entry, whose payload lies at `offset`. Raises Malformed.

        `is_first`: it opens its segment, by a CHECKPOINT.
        """
        for begin, end, record in records.decode_places(payload):
            self._place = offset + begin, payload[begin:end]
            if is_first and not isinstance(record, records.Checkpoint):
                raise NoBeginning("the segment does not begin with a checkpoint")
            is_first = False
            self.was_clean = False
            APPLIERS[type(record)](self, record)

    def queues(self) -> dict[int, dict[str, Any]]:
        """Queue number -> its attributes; raises Malformed where they cannot be read."""
        return {number: attributes_in(text, f"queue {number}") for number, text in self._attributes.items()}

    def addresses(self) -> dict[str, dict[str, Any]]:
        """Those of which an administrator said something. Raises Malformed."""
        return {name: attributes_in(text, f"address {name!r}") for name, text in self._addresses.items()}

    def consumed(self) -> tuple[int, ...]:
        return tuple(sorted(self._consumed))

    def live_runs(self) -> list[RecoveredRun]:
        """Runs of which something is live, in the order of their first ids. Raises Malformed."""
        live: list[RecoveredRun] = []
        for number, run in enumerate(self._runs):
            run.live = {queue_id: ranges for queue_id, ranges in run.live.items() if self._is_for(number, queue_id)}
            if not run.live or run.segment < self.trim:
                continue
            for queue_id in run.live:
                if queue_id not in self._attributes:
                    raise MalformedRecord(
                        f"messages from {run.first_id} on are for queue {queue_id}, which nothing declares"
                    )
            live.append(run)
        live.sort(key=lambda run: run.first_id)
        return live

    def _is_for(self, number: int, queue_id: int) -> bool:
        """Whether the queue that has this id now, if any has, is the one that run number `number` was stored for."""
        dropped = self._dropped.get(queue_id)
        return dropped is None or (number >= dropped and queue_id in self._attributes)

    def counts(self, runs: list[RecoveredRun]) -> list[records.Count]:
        """Delivery counts and due times of what is live."""
        live: list[records.Count] = []
        for run in runs:
            for queue_id, ranges in run.live.items():
                counts = self._counts.get(queue_id)
                if counts is None:
                    continue
                for first, n in ranges:
                    for low, high, attempts in counts.pieces(first, first + n):
                        if attempts is not None and attempts.delivery_count:
                            live.append(records.Count(queue_id, low, high - low, *attempts))
        return live

    def duplicates(self) -> dict[str, list[StoredId]]:
        """For each address the ids that it still knows, oldest first."""
        by_address = {
            address: [held[number] for number in sorted(held) if held[number].segment >= self.trim]
            for address, (_, held) in self._duplicates.items()
        }
        return {address: stored for address, stored in by_address.items() if stored}

    def _run(self, record: records.RunRecord) -> None:
        first, count, arrived_ms, queue_ids, frames = record
        end = first + count
        _check(end, records.ID_MAX)
        self.next_id = max(self.next_id, end)
        if not queue_ids:
            return  # it was for the process that wrote it
        live = {queue_id: [(first, count)] for queue_id in queue_ids}
        run = RecoveredRun(first, count, frames, self._segment, live, arrived_ms)
        if self._leave is not None:
            self._leave_or_keep(run, self._leave)
        self._runs.append(run)
        self._run_bytes += len(frames)
        self._stored_refs += count * len(queue_ids)
        if first >= self._stored_end:
            self._run_of.append(first, run)
            self._stored_end = end
            return
        # Compaction has stored these again: what the older record says of them no longer counts.
        for low, high, older in self._run_of.pieces(first, end):
            if older is not None:
                for queue_id in list(older.live):
                    self._kill(older, queue_id, low, high)
        self._run_of.assign(first, end, run)

    def _settle(self, record: records.Settle) -> None:
        queue_id = record.queue_id
        for first, n in record.ranges:
            for low, high, run in self._run_of.pieces(first, first + n):
                if run is not None and queue_id in run.live:
                    self._kill(run, queue_id, low, high)

    def _queue(self, record: records.QueueRecord) -> None:
        _check(record.queue_id, records.ID_MAX)
        self._attributes[record.queue_id] = record.attributes

    def _queue_drop(self, record: records.QueueDrop) -> None:
        self._dropped[record.queue_id] = len(self._runs)
        self._attributes.pop(record.queue_id, None)
        self._consumed.pop(record.queue_id, None)
        self._counts.pop(record.queue_id, None)

    def _address(self, record: records.AddressRecord) -> None:
        self._addresses[record.name] = record.attributes

    def _address_drop(self, record: records.AddressDrop) -> None:
        self._addresses.pop(record.name, None)

    def _queue_consumed(self, record: records.Consumed) -> None:
        self._consumed[record.queue_id] = None

    def _count(self, record: records.Count) -> None:
        queue_id, first, n, delivery_count, due_ms = record
        attempts = records.Attempts(delivery_count, due_ms)
        attempts = self._attempts.setdefault(attempts, attempts)
        self._counts.setdefault(queue_id, RangeMap()).assign(first, first + n, attempts)

    def _duplicate_ids(self, record: records.DuplicateIdsRecord) -> None:
        address, oldest, ids = record
        if not ids:
            self._duplicates.pop(address, None)
            return
        before, held = self._duplicates.get(address, (oldest, {}))
        if oldest < before:
            # Its ids were dropped and are numbered anew. That was said in a file that has been deleted, while one from
            # before it is still there, because it could not be.
            before, held = oldest, {}
        for number, duplicate_id in ids:
            _check(number, records.ID_MAX)
            held[number] = StoredId(number, duplicate_id, self._segment)
        for number in forgotten(held, before, oldest):
            held.pop(number, None)
        self._duplicates[address] = (max(before, oldest), held)

    def _start(self, record: records.StartRecord) -> None:
        _check(record.boot, records.BOOT_MAX)
        self.boot = record.boot
        self._consumed.clear()

    def _stop(self, record: records.StopRecord) -> None:
        self.was_clean = True

    def _trim(self, record: records.Trim) -> None:
        self._trim_to(record.segment)

    def _forgone(self, record: records.Forgone) -> None:
        self.forgone[record] = None

    def _trim_to(self, segment: int) -> None:
        if segment > self._segment:
            raise MalformedRecord(
                f"segment {self._segment} says that nothing before segment {segment} is needed, not even itself"
            )
        self.trim = max(self.trim, segment)

    def _checkpoint(self, record: records.Checkpoint) -> None:
        _check(record.boot, records.BOOT_MAX)
        _check(max(record.next_id, *record.queues, 0), records.ID_MAX)
        self.boot = record.boot
        self.next_id = max(self.next_id, record.next_id)
        self._trim_to(record.trim)
        self._attributes = {queue_id: attributes for queue_id, (attributes, _) in record.queues.items()}
        self._addresses = {}  # they come right behind it, in the same entry
        self._consumed = {queue_id: None for queue_id, (_, was_consumed) in record.queues.items() if was_consumed}

    def _kill(self, run: RecoveredRun, queue_id: int, first: int, end: int) -> None:
        left = subtract(run.live[queue_id], first, end)
        if left:
            run.live[queue_id] = left
            return
        del run.live[queue_id]
        if not run.live:
            # Nothing needs the bytes any more: a segment whose runs are all dead must not stay in memory.
            self._kept_bytes -= run.kept_bytes
            run.frames = memoryview(b"")

    def _leave_or_keep(self, run: RecoveredRun, leave: Leave) -> None:
        """Where all queues of a run page, its bytes need not be in memory: beyond a bound they are not."""
        paging = [self._pages(queue_id, leave) for queue_id in run.live]
        if not any(paging):
            return
        offset, record = self._place
        run.place = Slice(self._segment, offset, len(record), crc32(record))
        if not all(paging) or is_large(bytes(run.frames[:6])):
            return  # a large one names its file, which has to be there
        size_bytes = len(run.frames)
        run.is_left = self._kept_bytes + size_bytes > leave.kept_bytes_max
        if run.is_left:
            run.frames = memoryview(b"")
        else:
            # A copy, because a view would keep the whole segment.
            run.frames = memoryview(bytes(run.frames))
            run.kept_bytes = size_bytes
            self._kept_bytes += size_bytes

    def _pages(self, queue_id: int, leave: Leave) -> bool:
        attributes = self._attributes.get(queue_id)
        if attributes is None:
            return False
        may_leave = self._may_leave.get(attributes)
        if may_leave is None:
            may_leave = self._may_leave[attributes] = leave.may_leave(attributes_in(attributes, f"queue {queue_id}"))
        return may_leave


APPLIERS: Final[dict[type[Any], Callable[[Rebuild, Any], None]]] = {
    records.RunRecord: Rebuild._run,
    records.Settle: Rebuild._settle,
    records.QueueRecord: Rebuild._queue,
    records.QueueDrop: Rebuild._queue_drop,
    records.Consumed: Rebuild._queue_consumed,
    records.Count: Rebuild._count,
    records.StartRecord: Rebuild._start,
    records.StopRecord: Rebuild._stop,
    records.Trim: Rebuild._trim,
    records.Checkpoint: Rebuild._checkpoint,
    records.DuplicateIdsRecord: Rebuild._duplicate_ids,
    records.AddressRecord: Rebuild._address,
    records.AddressDrop: Rebuild._address_drop,
    records.Forgone: Rebuild._forgone,
}
