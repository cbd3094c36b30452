"""The pages of a queue: places in the journal of messages that are not in memory, in order.

A piece is consecutive messages in one place; pages hold pieces in columns of numbers, so that a piece costs 37 bytes.
Invariant: ids ascend over all pages; the page that is being read comes before all others. Nothing here touches the
journal: who takes a piece over, or drops it, removes its pin. Source: docs/adr/0008-paging.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from mqbroker.base.look import LOOK
from mqbroker.journal.places import Slice, Written
from mqbroker.journal.ranges import RangeMap

# Of a column each: first id, offset; count, delivery count, segment, length, checksum; durable or not.
COLUMNS = "QQIIIIIB"


class PageShape(NamedTuple):
    """What a page holds at most; one piece fits always."""

    size_bytes: int
    messages: int


class PagePiece(NamedTuple):
    """Messages of a queue in one place. `is_durable`: the queue has them in the journal."""

    first_id: int
    n: int
    deliveries: int
    is_durable: bool
    place: Slice

    @property
    def end(self) -> int:
        """The id behind that of its last message."""
        return self.first_id + self.n


# Messages with ids from the first number to before the second lie at this place now.
Moved = tuple[int, int, Slice]


def moved(piece: PagePiece, moves: list[Moved]) -> Iterator[PagePiece]:
    """A piece of which some messages were moved; `moves` ascend and are disjoint."""
    begin = piece.first_id
    at = max(bisect_right(moves, begin, key=_first) - 1, 0)
    while at < len(moves) and moves[at][0] < piece.end:
        first, end, place = moves[at]
        at += 1
        low, high = max(first, begin), min(end, piece.end)
        if low >= high:
            continue
        if begin < low:
            yield piece._replace(first_id=begin, n=low - begin)
        yield piece._replace(first_id=low, n=high - low, place=place)
        begin = high
    if begin < piece.end:
        yield piece._replace(first_id=begin, n=piece.end - begin)


def _first(move: Moved) -> int:
    return move[0]


def _around(piece: PagePiece, first: int, end: int) -> Iterator[PagePiece]:
    """What is left of a piece without the ids from `first` to before `end`."""
    if piece.first_id < first:
        yield piece._replace(n=min(first, piece.end) - piece.first_id)
    if end < piece.end:
        begin = max(end, piece.first_id)
        yield piece._replace(first_id=begin, n=piece.end - begin)


class Page:
    """See the module's docstring. `position`: of the append that holds the last of it; `is_out`: it left its queue."""

    __slots__ = ("_columns", "_is_durable", "count", "fresh", "is_out", "position", "size_bytes")

    def __init__(self, *, is_durable: bool) -> None:
        self._is_durable = is_durable
        self._columns: tuple[array[int], ...] = tuple(array(kind) for kind in COLUMNS)
        self.fresh: list[Written] = []  # of the append that is being gathered, or was when the page was last looked at
        self.count = 0
        self.size_bytes = 0
        self.position = 0
        self.is_out = False

    @property
    def first_id(self) -> int:
        """Of its first message; there must be one."""
        starts = self._columns[0]
        return starts[0] if starts else self.fresh[0].first_id

    @property
    def end(self) -> int:
        """The id behind its last message; there must be one."""
        if self.fresh:
            return self.fresh[-1].first_id + self.fresh[-1].count
        return self._columns[0][-1] + self._columns[2][-1]

    def next_id(self, first: int) -> int:
        """Of the first message with an id from `first` on; there must be one."""
        at = self._index(first)
        if at < len(self._columns[0]):
            return max(first, self._columns[0][at])
        return max(first, next(one.first_id for one in self.fresh if first < one.first_id + one.count))

    def pack(self) -> None:
        """What has its place by now goes into the columns."""
        LOOK.has_touched = True
        while self.fresh and self.fresh[0].segment:
            one = self.fresh.pop(0)
            is_durable = self._is_durable and bool(one.queue_ids)
            self.put(PagePiece(one.first_id, one.count, one.deliveries, is_durable, one.slice))

    def put(self, piece: PagePiece) -> None:
        """Put a piece behind those that are there."""
        LOOK.has_touched = True
        for column, value in zip(self._columns, _row(piece), strict=True):
            column.append(value)

    def pieces(self) -> Iterator[PagePiece]:
        """All that have their place."""
        return map(_piece, zip(*self._columns, strict=True))

    def from_id(self, first: int) -> Iterator[PagePiece]:
        """Those that have their place and ids from `first` on; the first of them may begin before it."""
        at = self._index(first)
        while at < len(self._columns[0]):
            yield self._at(at)
            at += 1

    def _index(self, first: int) -> int:
        """Of the first piece with ids from `first` on."""
        starts, counts = self._columns[0], self._columns[2]
        at = bisect_right(starts, first)
        return at - 1 if at and starts[at - 1] + counts[at - 1] > first else at

    def _at(self, index: int) -> PagePiece:
        return _piece(tuple(column[index] for column in self._columns))

    def take_out(self, first: int, end: int) -> tuple[list[PagePiece], list[PagePiece]]:
        """Messages with ids from `first` to before `end` leave: which pieces go, and what is left of them."""
        low, high = self._index(first), bisect_left(self._columns[0], end)
        gone = [self._at(index) for index in range(low, high)]
        left = [part for piece in gone for part in _around(piece, first, end)]
        LOOK.has_touched = True
        for number, column in enumerate(self._columns):
            column[low:high] = array(column.typecode, [_row(piece)[number] for piece in left])
        taken = sum(piece.n for piece in gone) - sum(piece.n for piece in left)
        if taken:
            self.size_bytes -= self.size_bytes * taken // self.count
            self.count -= taken
        return gone, left

    def reaches(self, first: int, end: int) -> bool:
        """Whether any of its pieces, which have their place, may have ids from `first` to before `end`."""
        starts, counts = self._columns[0], self._columns[2]
        return bool(starts) and starts[0] < end and first < starts[-1] + counts[-1]

    def move(self, moves: list[Moved]) -> tuple[list[PagePiece], list[PagePiece]]:
        """Which pieces go, and which are new."""
        gone: list[PagePiece] = []
        new: list[PagePiece] = []
        before = list(self.pieces())
        LOOK.has_touched = True
        self._columns = tuple(array(kind) for kind in COLUMNS)
        for piece in before:
            parts = list(moved(piece, moves))
            for part in parts:
                self.put(part)
            if parts != [piece]:
                gone.append(piece)
                new += parts
        return gone, new


def _row(piece: PagePiece) -> tuple[int, ...]:
    first_id, count, deliveries, is_durable, (segment, offset, length, crc) = piece
    return first_id, offset, count, deliveries, segment, length, crc, is_durable


def _piece(row: tuple[int, ...]) -> PagePiece:
    first_id, offset, count, deliveries, segment, length, crc, is_durable = row
    return PagePiece(first_id, count, deliveries, bool(is_durable), Slice(segment, offset, length, crc))


class Pages:
    """All pages of a queue. `count` and `size_bytes` are those of its messages, with those that are being read."""

    __slots__ = ("_dues", "_is_durable", "_pages", "count", "low_count", "reading", "shape", "size_bytes")

    def __init__(self, shape: PageShape, *, is_durable: bool = True) -> None:
        self.shape = shape
        self._is_durable = is_durable
        self.count = 0
        self.size_bytes = 0
        self.reading: Page | None = None
        self.low_count = 0  # with no more than this to hand out, the queue wants its next page
        self._pages: deque[Page] = deque()
        self._dues: RangeMap[int] | None = None  # by id, where recovery found messages that are to come later

    def add(self, written: Written, count: int, size_bytes: int, position: int) -> None:
        """`count` messages more: a place of its own, or the last one, which has grown by them."""
        page = self._tail()
        LOOK.has_touched = True
        if not page.fresh or page.fresh[-1] is not written:
            page.pack()
            page.fresh.append(written)
        page.position = position
        self._count(page, count, size_bytes)

    def ends_with(self, written: Written) -> bool:
        """Whether this is the last place, in a page that still takes some."""
        if not self._pages or self._is_full(self._pages[-1]):
            return False
        fresh = self._pages[-1].fresh
        return bool(fresh) and fresh[-1] is written

    @property
    def last_written(self) -> Written | None:
        """The last place that this process wrote, if it is in the last page."""
        fresh = self._pages[-1].fresh if self._pages else None
        return fresh[-1] if fresh else None

    def put(self, piece: PagePiece, size_bytes: int) -> None:
        """A piece that recovery found; they come in the order of ids."""
        page = self._tail()
        page.put(piece)
        self._count(page, piece.n, size_bytes)

    def hold_back(self, piece: PagePiece, due_ms: int) -> None:
        """Its messages are not to be delivered before they are due."""
        LOOK.has_touched = True
        if self._dues is None:
            self._dues = RangeMap()
        self._dues.assign(piece.first_id, piece.end, due_ms)

    def due_ms(self, message_id: int) -> int:
        """When a message is due, 0: at once. What leaves the pages is asked for no more, so nothing is forgotten."""
        return 0 if self._dues is None else self._dues.at(message_id) or 0

    def _tail(self) -> Page:
        LOOK.has_touched = True
        if not self._pages or self._is_full(self._pages[-1]):
            if self._pages:
                self._pages[-1].pack()
            self._pages.append(Page(is_durable=self._is_durable))
        return self._pages[-1]

    def _is_full(self, page: Page) -> bool:
        return bool(page.count) and (page.size_bytes >= self.shape.size_bytes or page.count >= self.shape.messages)

    def _count(self, page: Page, count: int, size_bytes: int) -> None:
        LOOK.has_touched = True
        page.count += count
        page.size_bytes += size_bytes
        self.count += count
        self.size_bytes += size_bytes

    def volatile(self) -> Iterator[tuple[int, int]]:
        """Messages (first id, count) that the queue has not in the journal."""
        for page in (*([self.reading] if self.reading is not None else []), *self._pages):
            yield from ((piece.first_id, piece.n) for piece in page.pieces() if not piece.is_durable)
            for one in page.fresh:
                if not (self._is_durable and one.queue_ids):
                    yield one.first_id, one.count

    @property
    def first(self) -> Page | None:
        """The page to be read next."""
        return self._pages[0] if self._pages and self._pages[0].count else None

    def begin(self) -> Page:
        """The first page is going to be read; what comes goes into another one. There must be one, on disk."""
        LOOK.has_touched = True
        page = self._pages.popleft()
        page.pack()
        page.is_out = True
        self.reading = page
        return page

    def seal(self, page: Page) -> None:
        """The page takes no more: somebody waits for it, and it is to be on disk soon."""
        LOOK.has_touched = True
        if self._pages[-1] is page and page.count:
            self._pages.append(Page(is_durable=self._is_durable))

    @property
    def first_id(self) -> int:
        """Of the first message, which may be on its way; there must be one."""
        return (self.reading or self._pages[0]).first_id

    def page_of(self, first: int) -> Page | None:
        """The first page with ids from `first` on, without that which is being read."""
        return next((page for page in self._pages if page.count and first < page.end), None)

    def take_out(self, page: Page, first: int, end: int) -> tuple[list[PagePiece], list[PagePiece]]:
        """As for a page, which is one of these and is not being read."""
        count, size_bytes = page.count, page.size_bytes
        changed = page.take_out(first, end)
        LOOK.has_touched = True
        self.count -= count - page.count
        self.size_bytes -= size_bytes - page.size_bytes
        if not page.count:
            page.is_out = True
            self._pages.remove(page)
        return changed

    def finished(self) -> None:
        """What was being read is in memory."""
        page = self.reading
        assert page is not None
        LOOK.has_touched = True
        self.reading = None
        self.count -= page.count
        self.size_bytes -= page.size_bytes
        self.low_count = page.count // 2

    def within(self, first: int, end: int) -> Iterator[PagePiece]:
        """Pieces that have their place and ids from `first` to before `end`, without those that are being read."""
        for page in self._pages:
            page.pack()
            if page.reaches(first, end):
                yield from (piece for piece in page.pieces() if piece.first_id < end and first < piece.end)

    def move(self, moves: list[Moved], position: int) -> tuple[list[PagePiece], list[PagePiece]]:
        """As for a page: what was moved is in an append of this position."""
        gone: list[PagePiece] = []
        new: list[PagePiece] = []
        LOOK.has_touched = True
        for page in self._pages:
            if page.reaches(moves[0][0], moves[-1][1]):
                changed = page.move(moves)
                gone += changed[0]
                new += changed[1]
                page.position = max(page.position, position)
        return gone, new

    @property
    def is_empty(self) -> bool:
        """Whether nothing is paged any more."""
        return not self.count

    def clear(self) -> list[Page]:
        """All pages, without the one that is being read, whose end nobody waits for any more."""
        pages = [page for page in self._pages if page.count]
        LOOK.has_touched = True
        for page in pages:
            page.pack()
            page.is_out = True
        self._pages.clear()
        self.reading = None
        self.count = self.size_bytes = 0
        return pages
