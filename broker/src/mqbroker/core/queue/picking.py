"""Picks messages out of a queue, piece by piece, for purges and moves that take many steps.

A picker goes once over what was deliverable or scheduled when it began, in order, and takes what is wanted. What comes
later, and what is in delivery, is passed over. What a piece took counts as in delivery until the caller settles it,
which it must do in the same step: so a crash finds each message in its old place or in its new one. Of queues that page
see paged_picking.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from mqbroker.core.queue.backlog import PRIORITY_MAX, Segment, rank_of
from mqbroker.core.queue.queue import Queue

Wants = Callable[[Segment, int], bool]


@dataclass(slots=True)
class Budget:
    """What one piece may still do: messages and bytes taken, messages looked at. The last message may exceed bytes."""

    messages: int
    looks: int
    size_bytes: int

    @property
    def is_spent(self) -> bool:
        """Whether the piece has to end."""
        return self.messages <= 0 or self.looks <= 0 or self.size_bytes <= 0


class Picker:
    """See the module's docstring. `ids`: from the first to before the second. `wants` None: everything; `count_max` -1:
    as many as there are.
    """

    def __init__(self, queue: Queue, ids: tuple[int, int], wants: Wants | None = None, count_max: int = -1) -> None:
        self._queue = queue
        self._ids = ids
        self._wants = wants
        self._left = count_max
        self._priority = PRIORITY_MAX  # of the next one
        self._rank = 0  # of the next one
        self._due = (0, 0)  # due time and rank of the next one
        self._is_backlog_done = False
        self.is_done = count_max == 0

    def piece(self, budget: Budget) -> list[Segment]:
        """Take the next ones, within the budget."""
        if self._left >= 0:
            budget.messages = min(budget.messages, self._left)
        taken: list[Segment] = []
        if not self.is_done and not self._is_backlog_done:
            self._is_backlog_done = self._of_backlog(budget, taken)
        if not self.is_done and self._is_backlog_done:
            self.is_done = self._of_scheduled(budget, taken)
        if self._left >= 0:
            self._left -= sum(segment.n for segment in taken)
            self.is_done = self.is_done or self._left <= 0
        return taken

    def _of_backlog(self, budget: Budget, taken: list[Segment]) -> bool:
        """The ids of each priority lie together."""
        while self._priority >= 0:
            self._rank = max(self._rank, rank_of(self._priority, self._ids[0]))
            if not self._of_priority(rank_of(self._priority, self._ids[1]), budget, taken):
                return False
            self._priority -= 1
        return not budget.is_spent

    def _of_priority(self, end_rank: int, budget: Budget, taken: list[Segment]) -> bool:
        queue = self._queue
        for segment in queue.backlog.from_rank(self._rank):
            if segment.rank >= end_rank:
                break
            if budget.is_spent:
                return False
            first = segment.start + max(self._rank - segment.rank, 0)
            ranges, stop = self._look(segment, first, budget)
            for begin, end in ranges:
                taken.append(queue.take_at(segment.rank + begin - segment.start, end - begin))
            self._rank = segment.rank + stop - segment.start
            if stop < segment.start + segment.n:
                return False
        return True

    def _of_scheduled(self, budget: Budget, taken: list[Segment]) -> bool:
        """A sorted list is a heap, so sorting it keeps what the queue relies on, and gives places to go on from.

        What a piece leaves is in order still, so that the next one need not sort it where nothing was scheduled since.
        """
        queue = self._queue
        entries = queue.scheduled
        if not queue.is_in_order:
            entries.sort()  # as the heap compares them: no two are due at one time in one place
            queue.is_in_order = True
        start = at = self._place_in(entries)
        kept: list[tuple[int, int, Segment]] = []
        is_cut = False
        while at < len(entries) and not is_cut and not budget.is_spent:
            due_ms, rank, segment = entries[at]
            at += 1
            skip = max(self._due[1] - rank, 0) if due_ms == self._due[0] else 0
            skip = max(skip, self._ids[0] - segment.first_id)
            if skip >= segment.n:
                self._due = (due_ms, rank + segment.n)
                kept.append((due_ms, rank, segment))
                continue
            ranges, stop = self._look(segment, segment.start + skip, budget)
            is_cut = stop < segment.start + segment.n
            self._due = (due_ms, rank + stop - segment.start)
            taken += [segment.part(begin, end - begin) for begin, end in ranges]
            kept += [(due_ms, piece.rank, piece) for piece in _without(segment, ranges)]
        gone = sum(entry[2].n for entry in entries[start:at]) - sum(entry[2].n for entry in kept)
        entries[start:at] = kept
        queue.scheduled_count -= gone
        queue.delivering_count += gone
        return at >= len(entries) and not is_cut and not budget.is_spent

    def _place_in(self, entries: list[tuple[int, int, Segment]]) -> int:
        """Where to go on: at the entry that the next place is in or before."""
        at = bisect_left(entries, self._due, key=_place)
        if at and entries[at - 1][0] == self._due[0] and entries[at - 1][1] + entries[at - 1][2].n > self._due[1]:
            return at - 1
        return at

    def _look(self, segment: Segment, first: int, budget: Budget) -> tuple[list[tuple[int, int]], int]:
        if segment.first_id < self._ids[1]:
            return look(segment, first, self._wants, budget)
        budget.looks -= 1
        return [], segment.start + segment.n


def look(segment: Segment, first: int, wants: Wants | None, budget: Budget) -> tuple[list[tuple[int, int]], int]:
    """Ranges of wanted indexes from `first` on, and the index where the budget ended."""
    end = segment.start + segment.n
    budget.looks -= 1
    if wants is None:
        return _take_first(segment, first, budget)
    ranges: list[tuple[int, int]] = []
    index = first
    while index < end and (index == first or not budget.is_spent):
        budget.looks -= 1
        if wants(segment, index):
            budget.messages -= 1
            budget.size_bytes -= segment.run.size_bytes(index, 1)
            if ranges and ranges[-1][1] == index:
                ranges[-1] = (ranges[-1][0], index + 1)
            else:
                ranges.append((index, index + 1))
        index += 1
    return ranges, index


def _take_first(segment: Segment, first: int, budget: Budget) -> tuple[list[tuple[int, int]], int]:
    count = min(segment.start + segment.n - first, budget.messages)
    while count > 1 and segment.run.size_bytes(first, count) > budget.size_bytes:
        count //= 2
    budget.messages -= count
    budget.size_bytes -= segment.run.size_bytes(first, count)
    return [(first, first + count)], first + count


def _place(entry: tuple[int, int, Segment]) -> tuple[int, int]:
    return entry[0], entry[1]


def _without(segment: Segment, ranges: list[tuple[int, int]]) -> list[Segment]:
    """What is left of a segment when these ranges of indexes are taken out."""
    left = []
    at = segment.start
    for begin, end in [*ranges, (segment.start + segment.n, 0)]:
        if begin > at:
            left.append(segment.part(at, begin - at))
        at = end
    return left
