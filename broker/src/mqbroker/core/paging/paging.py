"""Paging: what comes for an address that is full stays on disk until its queues want it.

Invariants: a queue that has pages gets everything that comes into its pages, so order holds; a page comes back only
when all of it is committed, since its messages go to consumers; each piece of a page pins its segment until it is read
or dropped; a queue has at most one page on its way, a node READS_MAX. Source: docs/adr/0008-paging.md; Artemis's
manual, "Paging".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mqbroker.base.look import LOOK
from mqbroker.core.paging.page_moves import PageMoves, check_held, runs_in
from mqbroker.core.paging.paged_files import PagedFiles
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.kinds import QueueKind, check_attributes
from mqbroker.core.queue.leaving_reasons import DELETED, PURGED
from mqbroker.core.queue.meter import PAGE
from mqbroker.core.queue.pages import Page, PagePiece, Pages, PageShape
from mqbroker.journal.places import Slice, Written
from mqbroker.journal.records import MalformedRecord
from mqbroker.journal.recovered import Leave

if TYPE_CHECKING:
    from mqbroker.config.slices import AddressSettings
    from mqbroker.core.address.address import Address
    from mqbroker.core.address.settings import Settings
    from mqbroker.core.paging.paging_store import PagingStore
    from mqbroker.core.queue.queue import Queue
    from mqbroker.wire.run import Run

READS_MAX = 4
PAGES_OF_BOUND = 4  # a page is no more than this part of its address's bounds
UNBOUNDED = 1 << 62


class Dropped(NamedTuple):
    """So many messages are gone, and whether the journal was told of any."""

    messages: int
    is_settled: bool


class Paging:
    """See the module's docstring. `read` asks for slices and says who gets their bytes."""

    def __init__(self, store: PagingStore) -> None:
        self._store = store
        self.read: Final = store.read_page
        self.queues: dict[Queue, None] = {}  # those with pages
        self.files = PagedFiles(store.large)
        self.paged_total = 0
        self.moves = PageMoves(store, self)
        self._reading_count = 0  # of pages that come back
        self._wanting: dict[Queue, None] = {}
        self._held_back: dict[Queue, None] = {}  # they want a page, and the memory is full
        self._uncommitted: dict[Queue, None] = {}  # they want a page that is not committed yet

    # -- in ------------------------------------------------------------------------------------------------------------

    def takers(self, address: Address, queues: list[Queue]) -> list[Queue]:
        """Which of these queues get no more than the place of what comes now."""
        meter = address.meter
        is_full = self._store.memory.is_full or (meter is not None and meter.is_full)
        if not is_full and not self.queues:
            return []
        return [queue for queue in queues if queue.pages is not None or (is_full and queue.kind.may_page)]

    def publish(self, part: Segment, durable: tuple[int, ...], queues: list[Queue]) -> None:
        """Write messages down for these queues, and for `durable` ones by their ids in the journal."""
        run, start, count = part.run, part.start, part.n
        journal = self._store.journal
        before: Written | None = None
        pages = [self._pages_of(queue) for queue in queues]
        last = pages[0].last_written
        if last is not None and last.pins == len(queues) and last.deliveries == part.deliveries:
            before = last if all(each.ends_with(last) for each in pages) else None
        written = journal.store_paged((part.first_id, count), durable, run.block(start, count), run.arrived_ms, before)
        LOOK.has_touched = True
        if written is not before:
            written.pins, written.deliveries = len(queues), part.deliveries
            written.loose = sum(not (durable and queue.journal_id) for queue in queues)
        for queue_id in durable if part.deliveries else ():
            journal.count(queue_id, part.first_id, count, part.deliveries)
        size_bytes = run.size_bytes(start, count)
        for queue, each in zip(queues, pages, strict=True):
            each.add(written, count, size_bytes, journal.position)
            queue.added_total += count
            self._store.dirty[queue] = None
        if run.large is not None:
            self.files.hold(run, len(queues), is_stored=bool(durable))
        self.paged_total += count * len(queues)

    def _pages_of(self, queue: Queue) -> Pages:
        LOOK.has_touched = True
        if queue.pages is None:
            shape = shape_of(self._store.settings.of(queue.kind.address))
            queue.pages = Pages(shape, is_durable=bool(queue.journal_id))
            self.queues[queue] = None
        return queue.pages

    def restore(self, queue: Queue, piece: PagePiece, due_ms: int = 0) -> None:
        """A piece that recovery found, and when it is due."""
        pages = self._pages_of(queue)
        pages.put(piece, piece.place.length)
        LOOK.has_touched = True
        queue.added_total += piece.n  # as what comes back into memory
        if due_ms:
            pages.hold_back(piece, due_ms)
        self.pin(piece, 1)

    def keeps_out(self, queue: Queue) -> bool:
        """Whether what recovery found for a queue becomes a page although its bytes are at hand."""
        if queue.pages is not None:
            return True
        is_full = self._store.memory.is_full or (queue.meter is not None and queue.meter.is_full)
        return is_full and queue.kind.may_page

    # -- out -----------------------------------------------------------------------------------------------------------

    def look(self, queue: Queue) -> None:
        """Something has changed in a queue that has pages: does it want the next one?"""
        pages = queue.pages
        if pages is None or pages.reading is not None or queue in self._wanting or queue in self._uncommitted:
            return
        if not queue.is_hungry(pages.low_count) and not self._has_room(queue):
            return
        LOOK.has_touched = True
        if self._may_read(queue, pages):
            self._wanting[queue] = None
        else:
            self._held_back[queue] = None

    def _has_room(self, queue: Queue) -> bool:
        """Whether the memory that its address may fill is half empty: then pages are read before anybody asks."""
        memory = self._store.memory
        return memory.held_bytes * 2 < memory.max_bytes and (queue.meter is None or queue.meter.is_low)

    def _may_read(self, queue: Queue, pages: Pages) -> bool:
        """With the memory full only who has nothing in it."""
        return not self._store.memory.is_full or queue.message_count == pages.count

    @property
    def is_reading(self) -> bool:
        """Whether pages are on their way."""
        return self._reading_count > 0

    def is_due(self, queue: Queue) -> bool:
        """Whether more messages of the queue are on their way to its consumers."""
        pages = queue.pages
        return pages is not None and (pages.reading is not None or queue in self._wanting or queue in self._uncommitted)

    def run(self) -> None:
        """Once in each step, before its append is sealed: ask for pages."""
        LOOK.has_touched = True
        if self._held_back:
            held_back, self._held_back = self._held_back, {}
            for queue in held_back:
                self.look(queue)
        while not self.moves.holds_reads and self._wanting and self._reading_count < READS_MAX:
            queue = next(iter(self._wanting))
            del self._wanting[queue]
            if queue.pages is not None and not queue.is_deleted:
                self._begin(queue, queue.pages)

    def _begin(self, queue: Queue, pages: Pages) -> None:
        page = pages.first
        if page is None:
            return
        store = self._store
        if page.position > store.decisions.committed:
            self._uncommitted[queue] = None
            self.hurry(pages, page)
            return
        page = pages.begin()
        self._reading_count += 1
        self.read(_places(page.pieces()), partial(self._came, queue, page))

    def hurry(self, pages: Pages, page: Page) -> None:
        """Somebody waits for a page that is not on disk yet."""
        pages.seal(page)
        if page.position == self._store.journal.position:
            self._store.decisions.wait(_go_on)  # so that this append does not wait for others to be written

    def committed(self) -> None:
        """More is committed: queues whose pages waited for that may read them."""
        LOOK.has_touched = True
        if self._uncommitted:
            wanting, self._uncommitted = self._uncommitted, {}
            self._wanting.update(wanting)

    def _came(self, queue: Queue, page: Page, contents: list[bytes]) -> None:
        """A page has been read. Raises StorageFault where the bytes are not what was written."""
        LOOK.has_touched = True
        self._reading_count -= 1
        pieces = list(page.pieces())
        if queue.pages is not None and queue.pages.reading is page:
            self._come_back(queue, queue.pages, self._segments(queue, pieces, contents))
        for piece in pieces:
            self.pin(piece, -1)

    def _segments(self, queue: Queue, pieces: list[PagePiece], contents: list[bytes]) -> Iterator[Segment]:
        """What was read, ready to be looked at."""
        runs: list[Run] = []
        for piece, runs_here in _with_runs(pieces, dict(zip(_places(pieces), contents, strict=True))):
            if runs_here is not runs:
                runs = runs_here
                for run in runs:
                    self._store.set_times(queue, run)
            yield from segments_in(piece, runs)

    def _come_back(self, queue: Queue, pages: Pages, segments: Iterator[Segment]) -> None:
        for segment in segments:
            self._store.hold_again(queue, segment)
            if segment.run.traits.group_id:
                queue.dispatcher.grouped()
            queue.come_back(segment, self._store.at.wall_ms, pages.due_ms(segment.first_id))
            self.files.taken_in(segment.run)
        pages.finished()
        if pages.is_empty:
            self._end(queue)
        self._store.changed(queue)

    # -- for those who look at single messages -------------------------------------------------------------------------

    def read_for(self, queue: Queue, pieces: list[PagePiece], then: Callable[[Iterator[Segment]], None]) -> None:
        """Read pieces that stay where they are; `then` gets their segments, which stay as long."""
        for piece in pieces:
            self.pin(piece, 1)

        def came(contents: list[bytes]) -> None:
            then(self._segments(queue, pieces, contents))
            for piece in pieces:
                self.pin(piece, -1)

        self.read(_places(pieces), came)

    def take(self, queue: Queue, page: Page, segment: Segment) -> Segment:
        """Messages of a page that were read for a look leave it: they are in memory, and in delivery."""
        pages = queue.pages
        assert pages is not None
        gone, left = pages.take_out(page, segment.first_id, segment.first_id + segment.n)
        for piece in left:
            self.pin(piece, 1)
        for piece in gone:
            self.pin(piece, -1)
        self._store.hold_again(queue, segment)
        self.files.taken_in(segment.run)
        LOOK.has_touched = True
        queue.delivering_count += segment.n
        if pages.is_empty:
            self._end(queue)
        return segment

    def pin(self, piece: PagePiece, count: int) -> None:
        """So many more refer to a piece."""
        self._store.journal.pin(piece.place, count, is_loose=not piece.is_durable)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def drop(self, queue: Queue, *, is_settled: bool) -> Dropped:
        """What is paged is gone. `is_settled`: the journal is told, where the queue stays."""
        if queue.pages is None:
            return Dropped(0, False)
        store, count, reading = self._store, queue.pages.count, queue.pages.reading
        LOOK.has_touched = True
        dropped, has_settled = queue.pages.clear(), False
        for page in dropped:
            for piece in page.pieces():
                self.pin(piece, -1)
        for page in [*dropped, reading] if reading is not None else dropped:
            ranges = [(piece.first_id, piece.n, piece.is_durable) for piece in page.pieces()]
            for written in page.fresh:
                is_durable = bool(written.queue_ids and queue.journal_id)
                written.pins -= 1
                written.loose -= not is_durable
                ranges.append((written.first_id, written.count, is_durable))
            for first_id, n, is_durable in ranges:
                if is_durable and is_settled and queue.journal_id:
                    store.journal.settle(queue.journal_id, first_id, n)
                    has_settled = True
                if len(self.files):
                    self.files.settle(first_id, n)
                if store.message_observers:
                    store.tell_left(queue, first_id, n, PURGED if is_settled else DELETED)
        self._end(queue)
        if is_settled and not queue.consumers:
            store.auto_delete.drained(queue)
        return Dropped(count, has_settled)

    def _end(self, queue: Queue) -> None:
        LOOK.has_touched = True
        queue.pages = None
        for each in (self.queues, self._wanting, self._held_back, self._uncommitted):
            each.pop(queue, None)


def _go_on() -> None:
    """What waits for its append is looked at by `committed`."""


def shape_of(settings: AddressSettings) -> PageShape:
    """What a page of an address holds."""
    size_bytes, count = settings.page_size_bytes, UNBOUNDED
    if settings.max_size_bytes >= 0:
        size_bytes = min(size_bytes, settings.max_size_bytes // PAGES_OF_BOUND)
    if settings.max_size_messages >= 0:
        count = settings.max_size_messages // PAGES_OF_BOUND
    return PageShape(size_bytes, count)


def leave_of(settings: Settings, kept_bytes_max: int) -> Leave:
    """What recovery need not bring into memory."""

    def may_leave(attributes: dict[str, Any]) -> bool:
        try:
            check_attributes(attributes)
        except ValueError as error:
            raise MalformedRecord(str(error)) from None
        kind = QueueKind.of(attributes)
        return kind.may_page and settings.of(kind.address).address_full_policy == PAGE

    return Leave(may_leave, kept_bytes_max)


def _places(pieces: Iterable[PagePiece]) -> tuple[Slice, ...]:
    """Each once: of a place of which messages in the middle are gone, several pieces are left."""
    return tuple(dict.fromkeys(piece.place for piece in pieces))


def _with_runs(pieces: Iterable[PagePiece], contents: Mapping[Slice, bytes]) -> Iterator[tuple[PagePiece, list[Run]]]:
    """Pieces with what is in their places; neighbours in one place have the same runs."""
    place: Slice | None = None
    runs: list[Run] = []
    for piece in pieces:
        if piece.place != place:
            place, runs = piece.place, runs_in(piece, contents[piece.place])
        yield piece, runs


def segments_in(piece: PagePiece, runs: list[Run]) -> Iterator[Segment]:
    """The messages of a piece, of the runs in its place. Raises StorageFault where they are not there."""
    check_held(piece, runs)
    for run in runs:
        begin, end = max(piece.first_id, run.first_id), min(piece.end, run.first_id + run.count)
        if begin < end:
            yield Segment(run, begin - run.first_id, end - begin, piece.deliveries)
