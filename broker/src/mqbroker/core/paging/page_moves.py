"""Compaction of segments that pages lie in: what is paged there is read, stored again, and found at its new place.

A piece of compaction goes so: no more pages are asked for; once none is on its way, the places in this piece's ids are
read; then all that is live of the ids, in memory and in pages, is stored again in one append, with what was read as its
source. Pages point at the old places until the append has its segment; then the pins move over. Invariant: a segment
loses its last pin only when no page refers to it any more. Source: docs/adr/0008-paging.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mqbroker.base.errors import StorageFault
from mqbroker.base.look import LOOK
from mqbroker.core.paging.recorded_messages import run_of
from mqbroker.core.paging.upkeep import live_of_ids
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.compaction import Live, Stored, store_again
from mqbroker.core.queue.pages import Moved, PagePiece
from mqbroker.journal import records
from mqbroker.journal.recovered import RecoveredRun

if TYPE_CHECKING:
    from mqbroker.core.paging.paging import Paging
    from mqbroker.core.paging.paging_store import PagingStore
    from mqbroker.core.queue.queue import Queue
    from mqbroker.wire.run import Run

FlatBounds = list[tuple[int, int]]


class _Request(NamedTuple):
    """What is read for one piece of compaction; each place once."""

    ranges: FlatBounds
    pieces: list[PagePiece]


class PageMoves:
    """See the module's docstring. `holds_reads`: queues wait for their pages; `is_loading`: places are being read."""

    def __init__(self, store: PagingStore, paging: Paging) -> None:
        self._store = store
        self._paging = paging
        self.holds_reads = False
        self.is_loading = False
        self._request: _Request | None = None
        self._runs: list[Run] | None = None  # of the request, once they are there
        self._stored: list[Stored] = []
        self._position = 0

    @property
    def is_unfinished(self) -> bool:
        """Whether it has to be called although no queue has pages any more."""
        return bool(self._stored)

    def upkeep(self) -> bool:
        """A piece of compaction while there are pages; whether there may be more at once."""
        self._move_over()
        self.holds_reads = False
        journal = self._store.journal
        ranges = journal.next_compactable()
        if ranges and not self._load(ranges):
            return False
        ranges = journal.compactable()
        if not ranges:
            return False
        runs, self._runs = self._runs or [], None
        self._stored = store_again(journal, ranges, self._live(ranges, runs), runs)
        self._position = journal.position
        return True

    def _load(self, ranges: FlatBounds) -> bool:
        """Have what is paged of these ids read; True: it is."""
        if self._runs is not None and self._request is not None and self._request.ranges == ranges:
            return True
        if self._paging.is_reading or self.is_loading:
            self.holds_reads = True
            return False
        by_place = {piece.place: piece for _, piece in self._paged(ranges)}
        if not by_place:
            self._runs = []
            return True
        self.holds_reads = True
        self._request = _Request(ranges, list(by_place.values()))
        for piece in self._request.pieces:
            self._paging.pin(piece, 1)  # a queue that is purged meanwhile gives its pins back
        self.is_loading = True
        self._paging.read(tuple(by_place), self._loaded)
        return False

    def _loaded(self, contents: list[bytes]) -> None:
        """What was asked for. Raises StorageFault where the bytes are not what was written."""
        assert self._request is not None
        LOOK.has_touched = True
        self.is_loading = False
        by_id: dict[int, Run] = {}
        for piece, data in zip(self._request.pieces, contents, strict=True):
            for run in runs_in(piece, data):
                by_id[run.first_id] = run
            self._paging.pin(piece, -1)
        self._runs = [by_id[first_id] for first_id in sorted(by_id)]

    def _paged(self, ranges: FlatBounds) -> Iterator[tuple[Queue, PagePiece]]:
        """Each piece once, although it may lie in several of the ranges."""
        low, high = ranges[0][0], ranges[-1][0] + ranges[-1][1]
        for queue in self._paging.queues:
            for piece in queue.pages.within(low, high) if queue.pages is not None else ():
                if any(first < piece.end and piece.first_id < first + n for first, n in ranges):
                    yield queue, piece

    def _live(self, ranges: FlatBounds, runs: list[Run]) -> Iterator[Live]:
        yield from live_of_ids(self._store, ranges)
        for queue, piece in self._paged(ranges):
            due_ms = queue.pages.due_ms(piece.first_id) if queue.pages is not None else 0
            at = max(bisect_right(runs, piece.first_id, key=_first) - 1, 0)
            while at < len(runs) and runs[at].first_id < piece.end:
                run = runs[at]
                begin, end = max(piece.first_id, run.first_id), min(piece.end, run.first_id + run.count)
                if begin < end:
                    part = Segment(run, begin - run.first_id, end - begin, piece.deliveries)
                    yield Live(queue, part, due_ms, True)
                at += 1

    def _move_over(self) -> None:
        """What was stored again has its place by now."""
        stored, self._stored = self._stored, []
        by_queue: dict[Queue, list[Moved]] = {}
        for written, queues in stored:
            for queue in queues:
                moves = by_queue.setdefault(queue, [])
                moves.append((written.first_id, written.first_id + written.count, written.slice))
        for queue, moves in by_queue.items():
            if queue.pages is not None:
                gone, new = queue.pages.move(sorted(moves), self._position)
                for piece in new:
                    self._paging.pin(piece, 1)
                for piece in gone:
                    self._paging.pin(piece, -1)
        for written, _ in stored:
            self._store.journal.pin(written.slice, -1)  # that it had from being stored


def _first(run: Run) -> int:
    return run.first_id


def runs_in(piece: PagePiece, data: bytes) -> list[Run]:
    """All runs of a piece's place. Raises StorageFault where they are not there."""
    place = piece.place
    try:
        recorded = [one for one in records.decode(memoryview(data)) if isinstance(one, records.RunRecord)]
    except records.MalformedRecord as error:
        raise _fault(piece, str(error)) from error
    runs = [
        run_of(RecoveredRun(one.first_id, one.n, one.frames, place.segment, {}, one.arrived_ms)) for one in recorded
    ]
    check_held(piece, runs)
    return runs


def check_held(piece: PagePiece, runs: list[Run]) -> None:
    """Raises StorageFault where these runs, which lie in a piece's place, are not its messages."""
    if not runs or runs[0].first_id > piece.first_id or runs[-1].first_id + runs[-1].count < piece.end:
        raise _fault(piece, f"it does not hold the {piece.n} messages from {piece.first_id} on")


def _fault(piece: PagePiece, why: str) -> StorageFault:
    name, offset = f"journal segment {piece.place.segment}", piece.place.offset
    return StorageFault(name, offset, why, "restore the data directory from a backup")
