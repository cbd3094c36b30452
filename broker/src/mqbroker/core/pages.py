"""The pages of a queue: places in the journal of messages that are not in memory, in order.

A piece is consecutive messages in one place; pages hold pieces in columns of numbers, so that a piece costs 37 bytes.
Invariant: ids ascend over all pages; the page that is being read comes before all others. Nothing here touches the
journal: who takes a piece over, or drops it, removes its pin. Source: docs/adr/0008-paging.md.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from mqbroker.journal.places import Slice, Written

# Of a column each: first id, offset; count, delivery count, segment, length, checksum; durable or not.
COLUMNS = "QQIIIIIB"


class Shape(NamedTuple):
    """What a page holds at most; one piece fits always."""

    size_bytes: int
    messages: int


class Piece(NamedTuple):
    """Messages of a queue in one place. `is_durable`: the queue has them in the journal."""

    first_id: int
    n: int
    deliveries: int
    is_durable: bool
    place: Slice


class Page:
    """See the module's docstring. `position`: of the append that holds the last of it."""

    __slots__ = ("_columns", "count", "fresh", "position", "size_bytes")

    def __init__(self) -> None:
        self._columns: tuple[array[int], ...] = tuple(array(kind) for kind in COLUMNS)
        self.fresh: list[Written] = []  # of the append that is being gathered, or was when the page was last looked at
        self.count = 0
        self.size_bytes = 0
        self.position = 0

    def pack(self) -> None:
        """What has its place by now goes into the columns."""
        while self.fresh and self.fresh[0].segment:
            one = self.fresh.pop(0)
            self.put(Piece(one.first_id, one.count, 0, bool(one.queue_ids), one.slice))

    def put(self, piece: Piece) -> None:
        """At the end."""
        first_id, count, deliveries, is_durable, (segment, offset, length, crc) = piece
        values = (first_id, offset, count, deliveries, segment, length, crc, is_durable)
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)

    def pieces(self) -> Iterator[Piece]:
        """All that have their place."""
        for first_id, offset, count, deliveries, segment, length, crc, is_durable in zip(*self._columns, strict=True):
            yield Piece(first_id, count, deliveries, bool(is_durable), Slice(segment, offset, length, crc))


class Pages:
    """All pages of a queue. `count` and `size_bytes` are those of its messages, with those that are being read."""

    __slots__ = ("_pages", "count", "low_count", "reading", "shape", "size_bytes")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.count = 0
        self.size_bytes = 0
        self.reading: Page | None = None
        self.low_count = 0  # with no more than this to hand out, the queue wants its next page
        self._pages: deque[Page] = deque()

    def add(self, written: Written, count: int, size_bytes: int, position: int) -> None:
        """`count` messages more: a place of its own, or the last one, which has grown by them."""
        page = self._tail()
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

    def put(self, piece: Piece, size_bytes: int) -> None:
        """A piece that recovery found; they come in the order of ids."""
        page = self._tail()
        page.put(piece)
        self._count(page, piece.n, size_bytes)

    def _tail(self) -> Page:
        if not self._pages or self._is_full(self._pages[-1]):
            if self._pages:
                self._pages[-1].pack()
            self._pages.append(Page())
        return self._pages[-1]

    def _is_full(self, page: Page) -> bool:
        return bool(page.count) and (page.size_bytes >= self.shape.size_bytes or page.count >= self.shape.messages)

    def _count(self, page: Page, count: int, size_bytes: int) -> None:
        page.count += count
        page.size_bytes += size_bytes
        self.count += count
        self.size_bytes += size_bytes

    @property
    def first(self) -> Page | None:
        """The page to be read next."""
        return self._pages[0] if self._pages and self._pages[0].count else None

    def begin(self) -> Page:
        """The first page is going to be read; what comes goes into another one. There must be one, on disk."""
        page = self._pages.popleft()
        page.pack()
        self.reading = page
        return page

    def seal(self) -> None:
        """The first page takes no more: somebody waits for it, and it is to be on disk soon."""
        if len(self._pages) == 1:
            self._pages.append(Page())

    def finished(self) -> None:
        """What was being read is in memory."""
        page = self.reading
        assert page is not None
        self.reading = None
        self.count -= page.count
        self.size_bytes -= page.size_bytes
        self.low_count = page.count // 2

    @property
    def is_empty(self) -> bool:
        """Whether nothing is paged any more."""
        return not self.count

    def clear(self) -> list[Page]:
        """All pages, without the one that is being read, whose end nobody waits for any more."""
        pages = [page for page in self._pages if page.count]
        for page in pages:
            page.pack()
        self._pages.clear()
        self.reading = None
        self.count = self.size_bytes = 0
        return pages
