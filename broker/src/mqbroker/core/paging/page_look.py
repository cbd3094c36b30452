"""Looks at messages that are paged without bringing their pages in, for administrators: a stretch at a time.

A look goes over the pages of a queue in the order of ids. It keeps its place as the id of the next message that is in a
page; if a page is read meanwhile for a consumer, that id is in memory, and the look is behind: whoever owns it looks at
memory up to `front`, and sets the place there. Bounded: a stretch is STRETCH_BYTES_MAX, or one place in the journal.
Source: docs/adr/0008-paging.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.pages import Page, PagePiece, Pages
from mqbroker.journal.places import Slice

if TYPE_CHECKING:
    from mqbroker.core.paging.paging_store import PagingStore
    from mqbroker.core.queue.queue import Queue

STRETCH_BYTES_MAX = 1 << 20


class PageLook:
    """See the module's docstring. `at`: the place, and `before_id`: where it ends. `page`: what `segments` are of."""

    def __init__(self, store: PagingStore, queue: Queue, ids: tuple[int, int]) -> None:
        self.queue = queue
        self.at, self.before_id = ids
        self._page: Page | None = None
        self._store = store
        self._is_reading = False
        self._position = 0  # of the append that has to be synced first
        self._read: deque[Segment] = deque()

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to look at."""
        return self.at >= self.before_id

    @property
    def front(self) -> int:
        """What is before this id is not in a page, or is not meant."""
        pages = self.queue.pages
        return self.before_id if pages is None else min(pages.first_id, self.before_id)

    @property
    def is_behind(self) -> bool:
        """Whether messages from its place on came into memory."""
        return self.at < self.front

    @property
    def is_waiting(self) -> bool:
        """Whether it cannot go on before something was read or written."""
        pages = self.queue.pages
        if pages is None or self.is_done or self.is_behind:
            return False
        if pages.reading is not None and self.at < pages.reading.end:
            return True
        return self._is_reading or self._position > self._store.journal.synced_position

    @property
    def page(self) -> Page:
        """The page of what is being looked at."""
        assert self._page is not None
        return self._page

    def segments(self) -> Iterator[Segment]:
        """What was read and is still in its page, in order. Whoever has looked at it sets the place behind it."""
        while self._read:
            segment = self._read[0]
            for first, end in self._present(segment):
                yield segment.part(first - segment.run.first_id, end - first)
            self._read.popleft()

    def _present(self, segment: Segment) -> list[tuple[int, int]]:
        first, end = max(self.at, segment.first_id), segment.first_id + segment.n
        present: list[tuple[int, int]] = []
        if first >= end or self.page.is_out:
            return present
        for piece in self.page.from_id(first):
            if piece.first_id >= end:
                break
            present.append((max(first, piece.first_id), min(end, piece.end)))
        return present

    def go_on(self) -> None:
        """The place is at the next message that is in a page; call it in the step in which the place was set."""
        page = self._find()
        self.at = self.before_id if page is None else min(page.next_id(self.at), self.before_id)

    def _find(self) -> Page | None:
        """The page in which the place is, or which comes next."""
        pages, page = self.queue.pages, self._page
        if pages is None:
            return None
        return page if page is not None and not page.is_out and self.at < page.end else pages.page_of(self.at)

    def ask(self) -> None:
        """Have the next stretch read, where there is one and nothing is on its way."""
        pages, page = self.queue.pages, self._find()
        if pages is None or page is None or self.is_done or self._is_reading:
            return
        if page.position > self._store.journal.synced_position:
            self._position = page.position
            self._store.paging.hurry(pages, page)
            return
        page.pack()
        pieces = self._stretch(pages, page)
        if pieces:
            self._page = page
            self._is_reading = True
            self._store.paging.read_for(self.queue, pieces, self._came)

    def _stretch(self, pages: Pages, page: Page) -> list[PagePiece]:
        pieces: list[PagePiece] = []
        places: dict[Slice, None] = {}
        size_bytes = 0
        for piece in page.from_id(self.at):
            if piece.place not in places:
                size_bytes += piece.place.length
            if piece.first_id >= self.before_id or (places and size_bytes > STRETCH_BYTES_MAX):
                break
            places[piece.place] = None
            pieces.append(piece)
        return pieces

    def _came(self, segments: Iterator[Segment]) -> None:
        """What was asked for, also where nobody wants it any more."""
        self._is_reading = False
        self._read = deque(segments)
