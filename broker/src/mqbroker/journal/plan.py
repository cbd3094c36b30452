"""The journal as the core sees it: calls in, one Append out for each step. Plans bytes and knows what may be deleted.

Invariants: everything between two calls of `take` is one Append, so it is atomic in recovery; every segment opens
with a CHECKPOINT, so a prefix of the segments can be deleted at any time; a segment is offered for deletion only
after a TRIM record that says so is on disk, and with it everything that made the segment unneeded.

Contract with the caller: message ids ascend and are never reused; `settle` names only what was stored here and is
live. `settle` costs 0.2 to 1 µs, a `take` of one small record 2 to 4 µs (docs/adr/0002-journal.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mqbroker.base.checksum import crc32
from mqbroker.base.errors import Bug
from mqbroker.base.look import LOOK
from mqbroker.config.slices import JournalOptions
from mqbroker.journal.append import Append
from mqbroker.journal.duplicates import DuplicateIds
from mqbroker.journal.entry import ENTRY_HEADER_BYTES, Chunk, entry_bytes
from mqbroker.journal.format import FILE_HEADER_BYTES, PAYLOAD_BYTES_MAX
from mqbroker.journal.ledger import JournalSegment, Ledger
from mqbroker.journal.message_records import encode_run_head, encode_settle
from mqbroker.journal.places import Slice, Written
from mqbroker.journal.ranges import merge
from mqbroker.journal.records import (
    Checkpoint,
    Count,
    RecordKind,
    encode_address,
    encode_address_drop,
    encode_attributes,
    encode_checkpoint,
    encode_count,
    encode_number,
    encode_queue,
    encode_start,
    encode_stop,
)
from mqbroker.journal.recovered import Recovered

UNKNOWN: Final = 1 << 62
# Ids that one call of `compactable` hands out: what a step stores again stays well below a millisecond.
COMPACT_IDS_MAX: Final = 4096


class Journal:
    """Goes on where `recovered` ended. The first `take` holds the START of this run of the process."""

    def __init__(self, options: JournalOptions, recovered: Recovered) -> None:
        self._options = options
        self._chunks: list[Chunk] = []
        self._size_bytes = 0
        self._room_bytes = 0  # that are to be free behind it in its file, if that is new
        self._settles: dict[int, list[int]] = {}
        self._deferred: list[SettledIds | Restored] = []
        self._new_from: int | None = None
        self._new_refs: dict[int, int] = {}
        self._new_run_bytes = 0
        self._new_stored_refs = 0
        self._written: list[Written] = []

        self._position = recovered.last_position + 1
        self._synced = recovered.last_position
        self._next_id = self._reserved = recovered.next_id
        self._boot = recovered.boot + 1
        self._trim = recovered.trim
        self._queues = {number: encode_attributes(attributes) for number, attributes in recovered.queues.items()}
        self._addresses = {name: encode_attributes(attributes) for name, attributes in recovered.addresses.items()}
        self._consumed: dict[int, None] = {}

        self._trim_position: int | None = None
        self._to_delete: list[int] = list(recovered.obsolete)
        self._compacting: JournalSegment | None = None
        self._to_compact: list[tuple[int, int]] = []
        self._handed_out: list[tuple[int, int]] = []
        self._is_compaction_due = True
        self._round_end = 0  # the last segment that was there when a round of compaction began
        self._unused_left = -options.journal_file_size_bytes  # bytes that the last one left unused; none was: begin

        self._ledger = _ledger_of(recovered)
        self.duplicates = DuplicateIds(recovered.duplicates, self._ledger.segments)
        self._add(encode_start(self._boot, recovered.forgone))

    @property
    def position(self) -> int:
        """What the next `take` will be, so the key of decisions that wait for what was called since the last one."""
        return self._position

    @property
    def latest_position(self) -> int:
        """The position of what was called last: the next `take`, or the last one where nothing was called since."""
        return self._position if self._chunks or self._settles else self._position - 1

    @property
    def synced_position(self) -> int:
        """Everything up to here is on disk."""
        return self._synced

    @property
    def keeps_ids(self) -> bool:
        """Whether ids of duplicate detection are to be kept here (`persist-id-cache`)."""
        return self._options.persist_id_cache

    @property
    def gives_up_damage(self) -> bool:
        """Whether messages that cannot be read are given up instead of stopping the start (`journal-on-damage`). Also
        without `journal-sync`: a power cut may take files of large messages, and leave what is said of them."""
        return self._options.journal_on_damage == "truncate" or not self._options.journal_sync

    @property
    def next_id(self) -> int:
        """The lowest message id that was never stored."""
        return self._next_id

    @property
    def boot(self) -> int:
        """How often a process has gone on with this journal, counting this one."""
        return self._boot

    @property
    def segments_count(self) -> int:
        return len(self._ledger.segments)

    @property
    def files(self) -> list[tuple[int, int]]:
        """(number, bytes that are written) of all that may be needed, in their order."""
        return [(segment.number, segment.used_bytes) for segment in self._ledger.segments]

    def store(
        self, first_id: int, count: int, queue_ids: Sequence[int], frames: bytes | memoryview, arrived_ms: int = 0
    ) -> None:
        """`count` messages with ids from `first_id` on, all in each of `queue_ids`. `frames` is kept, not copied.

        Ids that were stored before are compaction's: of every message that is handed out by `compactable`, name all
        queues where it is live, in one call, and repeat its delivery counts and due times by `count`.
        """
        LOOK.has_touched = True
        if first_id < self._next_id:
            # What was settled before is said of the older record, so it has to come before this one.
            self._flush_settles()
            self._deferred.append(Restored(first_id, first_id + count, queue_ids))
        else:
            if self._new_from is None:
                self._new_from = first_id
            self._next_id = first_id + count
            for queue_id in queue_ids:
                self._new_refs[queue_id] = self._new_refs.get(queue_id, 0) + count
        self._new_run_bytes += len(frames)
        self._new_stored_refs += count * len(queue_ids)
        self._add(encode_run_head(first_id, count, queue_ids, len(frames), arrived_ms))
        self._chunks.append(frames)
        self._size_bytes += len(frames)

    def store_paged(
        self,
        ids: tuple[int, int],
        queue_ids: tuple[int, ...],
        frames: memoryview,
        arrived_ms: int,
        before: Written | None,
    ) -> Written:
        """As `store`, of new `ids` (first, count), of which the places are kept; without queues, recovery drops it.

        What comes back is `before` where this lies right behind it, else a new place without pins. It gets its segment
        by the next `take`.
        """
        first_id, count = ids
        if first_id < self._next_id:
            self._flush_settles()  # these records come before this one; see `store`
        offset = self._size_bytes
        head = encode_run_head(first_id, count, queue_ids, len(frames), arrived_ms)
        length = len(head) + len(frames)
        LOOK.has_touched = True
        if before is None or not before.is_followed_by(first_id, offset, queue_ids, length):
            before = Written(first_id, offset, queue_ids, 0)
            self._written.append(before)
        before.count += count
        before.length += length
        before.crc = crc32(frames, crc32(head, before.crc))
        if queue_ids:
            self.store(first_id, count, queue_ids, frames, arrived_ms)
            return before
        if first_id >= self._next_id:
            self._next_id = first_id + count
            if self._new_from is None:
                self._new_from = first_id
        self._add(head)
        self._chunks.append(frames)
        self._size_bytes += len(frames)
        return before

    def reserve(self, end_id: int) -> None:
        """The next run of the process is to use no id below this one, whatever was stored by then."""
        LOOK.has_touched = True
        self._reserved = end_id
        self._add(encode_run_head(end_id, 0, (), 0))

    def pin(self, place: Slice, count: int, *, is_loose: bool = False) -> None:
        """Somebody refers to a place, so its segment is not deleted. -1: no longer."""
        segment = self._ledger.by_number(place.segment)
        LOOK.has_touched = True
        segment.pins += count
        if is_loose:
            segment.loose_bytes += place.length * count

    def settle(self, queue_id: int, first_id: int, n: int) -> None:
        """These messages have left this queue for good. Bursts of neighbours become one range."""
        bounds = self._settles.get(queue_id)
        LOOK.has_touched = True
        if bounds is None:
            self._settles[queue_id] = [first_id, first_id + n]
        elif bounds[-1] == first_id:
            bounds[-1] = first_id + n
        else:
            bounds += (first_id, first_id + n)

    def declare(self, queue_id: int, attributes: bytes) -> None:
        """A queue exists, or has other attributes than before; `attributes` by encode_attributes (records.py)."""
        LOOK.has_touched = True
        self._queues[queue_id] = attributes
        self._add(encode_queue(queue_id, attributes))

    def drop(self, queue_id: int) -> None:
        """A queue and all its messages are gone."""
        LOOK.has_touched = True
        self._settles.pop(queue_id, None)
        for item in self._deferred:
            if isinstance(item, SettledIds):
                item.bounds_by_queue.pop(queue_id, None)
        self._new_refs.pop(queue_id, None)
        self._queues.pop(queue_id, None)
        self._consumed.pop(queue_id, None)
        self._ledger.drop(queue_id)
        self._add(encode_number(RecordKind.QUEUE_DROP, queue_id))

    def declare_address(self, name: str, attributes: dict[str, Any]) -> None:
        """An administrator said this of an address, or something else than before. It must be JSON."""
        LOOK.has_touched = True
        encoded = self._addresses[name] = encode_attributes(attributes)
        self._add(encode_address(name, encoded))

    def drop_address(self, name: str) -> None:
        """Nothing is to be kept of an address any more."""
        LOOK.has_touched = True
        self._addresses.pop(name, None)
        self._add(encode_address_drop(name))

    def consumed(self, queue_id: int) -> None:
        """The queue has or had a consumer in this run of the process. Repeated calls cost nothing."""
        LOOK.has_touched = True
        if queue_id not in self._consumed:
            self._consumed[queue_id] = None
            self._add(encode_number(RecordKind.CONSUMED, queue_id))

    def count(self, queue_id: int, first_id: int, n: int, delivery_count: int, due_ms: int = 0) -> None:
        """These messages were delivered in vain so often, and are not to be delivered before they are due."""
        self._add(encode_count(Count(queue_id, first_id, n, delivery_count, due_ms)))

    def stop(self) -> None:
        """The process ends in good order. The last call before the last `take`."""
        self._flush_settles()
        self._flush_ids()
        self._add(encode_stop())

    def synced(self, position: int) -> None:
        LOOK.has_touched = True
        self._synced = max(self._synced, position)

    def take(self, sync: bool) -> Append | None:
        """Everything since the last call as one Append, None if there was nothing."""
        self._flush_settles()
        self._flush_ids()
        if not self._chunks:
            return None
        unplaced_bytes = self._size_bytes
        segment = self._segment_for()
        if self._written:
            start = segment.used_bytes + ENTRY_HEADER_BYTES + self._size_bytes - unplaced_bytes
            self._place_written(segment, start)
        LOOK.has_touched = True
        segment.used_bytes += entry_bytes(self._size_bytes)
        self._place(segment)
        self.duplicates.place(segment)
        append = Append(self._position, segment.number, self._chunks, self._size_bytes, sync, self._room_bytes)
        self._position += 1
        self._chunks = []
        self._size_bytes = self._room_bytes = 0
        return append

    def deletable(self) -> list[int]:
        """Segments that may be deleted now, each named once. Call it before `take`: it may add a TRIM record."""
        if self._trim_position is not None and self._synced >= self._trim_position:
            self._trim_position = None
            self._to_delete += self._forget_trimmed()
        if self._trim_position is None:
            self._trim_unneeded()
        numbers, self._to_delete = self._to_delete, []
        return numbers

    def compactable(self) -> list[tuple[int, int]] | None:
        """(first id, n): store what is live of these ids again, before the next `take`. None: nothing to do.

        Call it once a step, and again in the next one as long as it returns something.
        """
        ranges = self.next_compactable()
        if not ranges:
            if ranges is not None:
                self._finish_compaction()
            return None
        for first, n in ranges:
            _, end = self._to_compact.pop()
            if first + n < end:
                self._to_compact.append((first + n, end))
        self._handed_out = [(first, first + n) for first, n in ranges]
        return ranges

    def next_compactable(self) -> list[tuple[int, int]] | None:
        """What the next call of `compactable` will say; empty: the end of one segment."""
        if self._compacting is None and not self._start_compaction():
            return None
        ranges: list[tuple[int, int]] = []
        left = COMPACT_IDS_MAX
        for first, end in reversed(self._to_compact):
            if not left:
                break
            n = min(left, end - first)
            ranges.append((first, n))
            left -= n
        return ranges

    def _add(self, record: bytes) -> None:
        LOOK.has_touched = True
        self._chunks.append(record)
        self._size_bytes += len(record)

    def _flush_ids(self) -> None:
        for record in self.duplicates.records():
            self._add(record)

    def _flush_settles(self) -> None:
        """Make records of what was settled. The ledger learns of it when the Append has its segment."""
        if not self._settles:
            return
        merged = {queue_id: bounds if len(bounds) == 2 else merge(bounds) for queue_id, bounds in self._settles.items()}
        for queue_id, bounds in merged.items():
            self._add(encode_settle(queue_id, bounds))
        LOOK.has_touched = True
        self._deferred.append(SettledIds(merged))
        self._settles = {}

    def _segment_for(self) -> JournalSegment:
        """The segment for what was gathered: the current one, or a new one with its checkpoint put first."""
        if self._size_bytes > PAYLOAD_BYTES_MAX:
            raise Bug(f"one append of {self._size_bytes} bytes")
        segment = self._ledger.current
        if segment is not None and segment.used_bytes > FILE_HEADER_BYTES and self._fits(segment):
            return segment
        addresses = [encode_address(name, attributes) for name, attributes in self._addresses.items()]
        checkpoint = encode_checkpoint(self._checkpoint()) + b"".join(addresses)
        LOOK.has_touched = True
        self._chunks.insert(0, checkpoint)
        self._size_bytes += len(checkpoint)
        if segment is not None and segment.used_bytes == FILE_HEADER_BYTES and self._fits(segment):
            return segment
        number = segment.number + 1 if segment is not None else self._trim
        file_size_bytes = self._options.journal_file_size_bytes
        if 2 * len(checkpoint) > file_size_bytes:
            # Else each append would be in a file of its own, with all queues in front, and a TRIM as well: that makes
            # the file before unneeded, of which the next one would say so, for ever.
            self._room_bytes = len(checkpoint)
        needed = FILE_HEADER_BYTES + entry_bytes(self._size_bytes) + self._room_bytes
        segment = JournalSegment(number, max(file_size_bytes, needed))
        self._ledger.segments.append(segment)
        self._is_compaction_due = True
        return segment

    def _fits(self, segment: JournalSegment) -> bool:
        return segment.used_bytes + entry_bytes(self._size_bytes) <= segment.size_bytes

    def _checkpoint(self) -> Checkpoint:
        queues = {queue_id: (attributes, queue_id in self._consumed) for queue_id, attributes in self._queues.items()}
        return Checkpoint(self._boot, max(self._next_id, self._reserved), self._trim, queues)

    def _place(self, segment: JournalSegment) -> None:
        """Tell the ledger where the messages of this Append are, and then what was settled, in the order of calls."""
        LOOK.has_touched = True
        if self._new_from is not None:
            self._ledger.store(self._new_from, segment, self._new_refs)
            self._new_from = None
            self._new_refs = {}
        for item in self._deferred:
            if isinstance(item, Restored):
                self._ledger.restore((item.first_id, item.end), item.queue_ids, segment)
            else:
                for queue_id, bounds in item.bounds_by_queue.items():
                    self._ledger.settle(queue_id, bounds)
        for first, end in self._handed_out:
            self._ledger.claim(first, end, segment)
        self._deferred = []
        self._handed_out = []
        segment.run_bytes += self._new_run_bytes
        segment.stored_refs += self._new_stored_refs
        self._new_run_bytes = 0
        self._new_stored_refs = 0

    def _place_written(self, segment: JournalSegment, start: int) -> None:
        LOOK.has_touched = True
        for written in self._written:
            written.segment = segment.number
            written.offset += start
            segment.pins += written.pins
            segment.loose_bytes += written.loose * written.length
        self._written = []

    def _trim_unneeded(self) -> None:
        """Say on disk that the oldest segments without live messages are not needed; the current one always is."""
        needed = next((s for s in self._ledger.segments[:-1] if s.refs or s.pins), self._ledger.current)
        if needed is None or needed.number <= self._trim:
            return
        number = self.duplicates.needed_from(self._ledger.segments, needed.number)
        if number <= self._trim:
            return
        self._trim = number
        self._trim_position = self._position
        self._add(encode_number(RecordKind.TRIM, self._trim))

    def _forget_trimmed(self) -> list[int]:
        numbers = [segment.number for segment in self._ledger.segments if segment.number < self._trim]
        self._ledger.forget(numbers)
        self._is_compaction_due = True
        return numbers

    def _start_compaction(self) -> bool:
        if not self._is_compaction_due or self._trim_position is not None:
            return False
        self._is_compaction_due = False
        segments = self._ledger.segments
        files_min = self._options.journal_compact_min_files
        if files_min == 0 or len(segments) < max(files_min, 2) or not (segments[0].refs or segments[0].pins):
            return False
        used_bytes = sum(segment.used_bytes for segment in segments)
        live_bytes = sum(segment.live_bytes for segment in segments)
        is_round_over, unused_bytes = segments[0].number > self._round_end, used_bytes - live_bytes
        if is_round_over:
            self._unused_left = min(self._unused_left, unused_bytes)
        if live_bytes * 100 >= used_bytes * self._options.journal_compact_percentage:
            return False
        if is_round_over:
            # What the last round has left unused itself, heads of entries and ends of files, is no reason for another,
            # although it may be more than a high percentage allows.
            if unused_bytes < self._unused_left + self._options.journal_file_size_bytes // 2:
                return False
            self._round_end, self._unused_left = segments[-1].number, UNKNOWN
        self._compacting = segments[0]
        self._to_compact = self._ledger.ranges_of(segments[0], self._next_id)
        self._to_compact.reverse()
        return True

    def _finish_compaction(self) -> None:
        assert self._compacting is not None
        if self._compacting.refs:
            left = f"{self._compacting.refs} messages of segment {self._compacting.number}"
            raise Bug(f"{left} were handed out for compaction and not stored again")
        self._compacting = None
        self._is_compaction_due = True


class SettledIds(NamedTuple):
    """What left its queues: queue id -> flat bounds (first id, id behind the last, …)."""

    bounds_by_queue: dict[int, list[int]]


class Restored(NamedTuple):
    """Ids that were stored a second time, for compaction."""

    first_id: int
    end: int
    queue_ids: Sequence[int]


def _ledger_of(recovered: Recovered) -> Ledger:
    ledger = Ledger()
    for use in recovered.segments:
        ledger.segments.append(JournalSegment(*use))
    segments = {segment.number: segment for segment in ledger.segments}
    pieces: list[tuple[int, int, int]] = []
    for run in recovered.runs:
        for queue_id, ranges in run.live.items():
            segments[run.segment].add(queue_id, sum(n for _, n in ranges))
            pieces += [(first, first + n, run.segment) for first, n in ranges]
    pieces.sort()
    for first, end, number in pieces:
        ledger.place(first, end, segments[number])
    return ledger
