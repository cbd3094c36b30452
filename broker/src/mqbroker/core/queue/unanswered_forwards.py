"""What another node was sent of a store-and-forward queue, and may be sent again.

The other node knows the last 2 × WINDOW messages that it has taken in (core/cluster/arrivals.py). So of this queue no
message goes out for the first time while one that may be sent again went out WINDOW such messages before: then that one
comes first. A message may be sent again until its settlement is on disk, because before that a power cut brings it
back. It is known for as long as the process lives, whatever becomes of links.

What the other node may have without an answer does not expire here: that node judges of it, by its own clock, or it
would be at two expiry addresses. Such is what has gone out and was not answered, and after a start all that was there
before, since nobody knows what a process before has sent. It ends with an answer, or when the node is given up.

It has to know twice as many: behind a message may be taken in what went out before it and was lost, less than WINDOW,
and what went out after it, less than WINDOW too. Source: docs/adr/0015-handed-over.md.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.core.queue.backlog import Backlog
from mqbroker.core.queue.id_ranges import IdRanges

WINDOW: Final = 10_000
ANSWERED_MAX: Final = 500  # messages that are answered before somebody waits for the disk on their behalf


class HandedOver:
    """Of one queue. `ids` may be sent again, and `answered` are those of them that are as good as settled."""

    __slots__ = ("_before", "_free", "_places", "_sent_count", "answered", "ids")

    def __init__(self) -> None:
        self.ids = IdRanges()
        self.answered = IdRanges()
        self._before = 0  # what has an id below this one may be there, and nobody knows,
        self._free = IdRanges()  # but these; nor does anybody wait for an answer of these that may be sent again
        self._places: deque[tuple[int, int, int]] = deque()  # (first id, end, how many went out before), in that order
        self._sent_count = 0

    @property
    def room(self) -> int:
        """Messages that may go out for the first time now."""
        places = self._places
        while places:
            first, end, before = places[0]
            oldest = self.ids.first_within(first, end)
            if oldest < end:
                if oldest > first:
                    LOOK.has_touched = True
                    places[0] = oldest, end, before + oldest - first
                return WINDOW - (self._sent_count - places[0][2])
            LOOK.has_touched = True
            places.popleft()
        return WINDOW

    def fitting(self, first: int, count: int) -> int:
        """How many of these may go out, from the first on."""
        room = self.room
        if count <= room:
            return count
        for begin, end in self.ids.missing(first, first + count):
            if end - begin > room:
                return begin + max(room, 0) - first
            room -= end - begin
        return count

    def sent(self, first: int, count: int) -> None:
        """These messages have gone out."""
        places = self._places
        LOOK.has_touched = True
        for begin, end in self.ids.missing(first, first + count):
            if places and places[-1][1] == begin:
                places[-1] = places[-1][0], end, places[-1][2]
            else:
                places.append((begin, end, self._sent_count))
            self._sent_count += end - begin
        self.ids.add(first, first + count)
        if self._free.count:
            self._free.remove(first, first + count)

    def settled(self, first: int, end: int) -> None:
        """These messages are settled, and that is on disk."""
        LOOK.has_touched = True
        self.ids.remove(first, end)
        if self._free.count:
            self._free.remove(first, end)

    def refused(self, first: int, end: int) -> None:
        """The other node has said that it did not take them, so they are as if they had never gone out."""
        LOOK.has_touched = True
        self.ids.remove(first, end)
        self.answered.remove(first, end)
        if first < self._before:
            self._free.add(first, end)

    def begun_before(self, next_id: int) -> None:
        """Whatever is in the queue, which is all before this id, may have been sent, and nobody knows."""
        LOOK.has_touched = True
        self._before, self._free = next_id, IdRanges()

    @property
    def is_anything_old(self) -> bool:
        """Whether there may be something of which nobody knows whether it was sent."""
        return self._before > 0

    def given_up(self) -> None:
        """Nobody waits for answers any more."""
        LOOK.has_touched = True
        self._before = 0
        for first, end in self.ids:
            self._free.add(first, end)

    def free_count(self, first: int, count: int) -> int:
        """How many of these, from the first on, the other node does not have."""
        return self._awaited(first, first + count).first_within(first, first + count) - first

    @property
    def free_from(self) -> int:
        """From this id on nothing has gone out."""
        return max(self._before, self.ids.end)

    @property
    def awaited(self) -> IdRanges:
        """All that it may have, as far as anybody knows."""
        return self._awaited(0, self.free_from)

    def awaited_count(self, first: int, count: int) -> int:
        """How many of these, from the first on, it may have."""
        free = self._awaited(first, first + count).missing(first, first + count)
        return free[0][0] - first if free else count

    def awaited_in(self, backlog: Backlog) -> int:
        """How many of these it may have. Where that is so of one that a process before had, of all: there may be very
        many, and nobody knows which of them went."""
        for segment in backlog.of_ids(0, self._before):
            if self._waits(segment.first_id, min(segment.first_id + segment.n, self._before)):
                return backlog.count
        return sum(
            self._waits(max(first, segment.first_id), min(end, segment.first_id + segment.n))
            for first, end in self.ids
            for segment in backlog.of_ids(first, end)
        )

    def _waits(self, first: int, end: int) -> int:
        """For how many of these, which it may have, somebody waits for an answer."""
        return sum(stop - begin for begin, stop in self._free.missing(first, end))

    def is_old(self, message_id: int) -> bool:
        """Whether a process before had this message, so that nobody knows whether it was sent."""
        return message_id < self._before

    def _awaited(self, first: int, end: int) -> IdRanges:
        awaited = IdRanges()
        if first < self._before:
            awaited.add(first, min(end, self._before))
        for begin, stop in self.ids.within(first, end):
            awaited.add(begin, stop)
        for begin, stop in self._free.within(first, end) if self._free.count else ():
            awaited.remove(begin, stop)
        return awaited

    def take_answered(self) -> list[tuple[int, int]]:
        """Those that were answered since the last call: whoever takes them waits for the disk, and settles them."""
        LOOK.has_touched = True
        taken, self.answered = self.answered, IdRanges()
        return list(taken)
