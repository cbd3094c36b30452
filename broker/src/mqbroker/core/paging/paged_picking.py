"""Picks messages out of a queue that may page: first what is in memory, then page by page.

Nobody waits for it: where consumers have a page read that it has not come to, it picks those messages in memory, from
the place that it has reached up to the pages of that moment. So each message is looked at once, and at most one stretch
of pages is in memory for it (page_look.py). What it takes of a page is in memory and in delivery until the caller
settles it in the same step, as for any picker (picking.py). Source: docs/adr/0008-paging.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.core.paging.page_look import PageLook
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.picking import Budget, Picker, Wants, look

if TYPE_CHECKING:
    from mqbroker.core.paging.paging_store import PagingStore
    from mqbroker.core.queue.queue import Queue


class PagedPicker:
    """See the module's docstring. `wants` None: everything; `count_max` -1: as many as there are."""

    def __init__(self, store: PagingStore, queue: Queue, wants: Wants | None = None, count_max: int = -1) -> None:
        self._store = store
        self._queue = queue
        self._wants = wants
        self._left = count_max
        self._pages = PageLook(store, queue, (0, store.next_id))
        self._memory: Picker | None = None
        self._memory_end = 0
        self.is_done = count_max == 0

    @property
    def is_waiting(self) -> bool:
        """Whether there is nothing to do before a page was read."""
        return self._memory is None and self._pages.is_waiting

    @property
    def is_of_pages(self) -> bool:
        """Whether what it looks at is of pages, and in memory for that alone."""
        return self._memory is None

    def piece(self, budget: Budget) -> list[Segment]:
        """Take the next ones, within the budget."""
        if self.is_done or self.is_waiting:
            return []
        if self._left >= 0:
            budget.messages = min(budget.messages, self._left)
        if self._memory is None and self._pages.is_behind:
            self._memory_end = self._pages.front
            self._memory = Picker(self._queue, (self._pages.at, self._memory_end), self._wants)
        taken = self._of_pages(budget) if self._memory is None else self._of_memory(self._memory, budget)
        if self._left >= 0:
            self._left -= sum(segment.n for segment in taken)
        self.is_done = self._left == 0 or self._pages.is_done
        return taken

    def _of_memory(self, memory: Picker, budget: Budget) -> list[Segment]:
        taken = memory.piece(budget)
        if memory.is_done:
            self._memory = None
            self._pages.at = self._memory_end
        return taken

    def _of_pages(self, budget: Budget) -> list[Segment]:
        pages, taken = self._pages, list[Segment]()
        for segment in pages.segments():
            ranges, stop = look(segment, segment.start, self._wants, budget)
            for begin, end in ranges:
                part = segment.part(begin, end - begin)
                taken.append(self._store.paging.take(self._queue, pages.page, part))
            pages.at = segment.run.first_id + stop
            if budget.is_spent:
                break
        pages.go_on()
        if not budget.is_spent:
            pages.ask()
        return taken
