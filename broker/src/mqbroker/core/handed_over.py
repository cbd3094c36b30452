"""What another node was sent of a store-and-forward queue, and may be sent again.

The other node knows the last IDS_MAX messages that it has taken in (arrivals.py). So of this queue no message goes out
for the first time while one that may be sent again went out WINDOW such messages before: then that one comes first. A
message may be sent again until its settlement is on disk, because before that a power cut brings it back. It is known
for as long as the process lives, whatever becomes of links.

What the other node may have without an answer does not expire here: that node judges of it, by its own clock, or it
would be at two expiry addresses. Such is what has gone out and was not answered, and after a start all that was there
before, since nobody knows what a process before has sent. It ends with an answer, or when the node is given up.

WINDOW is half of IDS_MAX: behind a message may be taken in what went out before it and was lost, less than WINDOW, and
what went out after it, less than WINDOW too. Source: docs/adr/0015-handed-over.md.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.core.arrivals import IDS_MAX
from mqbroker.core.id_ranges import IdRanges

WINDOW: Final = IDS_MAX // 2
ANSWERED_MAX: Final = 500  # messages that are answered before somebody waits for the disk on their behalf


class HandedOver:
    """Of one queue. `ids` may be sent again, `answered` are those of them that are as good as settled, and `awaited` is
    what the other node may have.
    """

    __slots__ = ("_places", "_sent_count", "answered", "awaited", "ids")

    def __init__(self) -> None:
        self.ids = IdRanges()
        self.answered = IdRanges()
        self.awaited = IdRanges()
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
        """They have gone out."""
        places = self._places
        LOOK.has_touched = True
        for begin, end in self.ids.missing(first, first + count):
            if places and places[-1][1] == begin:
                places[-1] = places[-1][0], end, places[-1][2]
            else:
                places.append((begin, end, self._sent_count))
            self._sent_count += end - begin
        self.ids.add(first, first + count)
        self.awaited.add(first, first + count)

    def settled(self, first: int, end: int) -> None:
        """They are gone, and that is on disk."""
        LOOK.has_touched = True
        self.ids.remove(first, end)
        self.awaited.remove(first, end)

    def refused(self, first: int, end: int) -> None:
        """The other node has said that it did not take them."""
        LOOK.has_touched = True
        self.awaited.remove(first, end)

    def begun_before(self, next_id: int) -> None:
        """Whatever is in the queue, which is all before this id, may have been sent, and nobody knows."""
        LOOK.has_touched = True
        if next_id > 1:
            self.awaited.add(1, next_id)

    def given_up(self) -> None:
        """Nobody waits for answers any more."""
        LOOK.has_touched = True
        self.awaited = IdRanges()

    def free_count(self, first: int, count: int) -> int:
        """How many of these, from the first on, the other node does not have."""
        return self.awaited.first_within(first, first + count) - first

    def awaited_count(self, first: int, count: int) -> int:
        """How many of these, from the first on, it may have."""
        free = self.awaited.missing(first, first + count)
        return free[0][0] - first if free else count

    def take_answered(self) -> list[tuple[int, int]]:
        """Those that were answered since the last call: whoever takes them waits for the disk, and settles them."""
        LOOK.has_touched = True
        taken, self.answered = self.answered, IdRanges()
        return list(taken)
