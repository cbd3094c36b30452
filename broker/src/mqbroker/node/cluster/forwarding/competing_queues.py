"""Queues whose messages go to some of the same queues of one node: they take turns by the places of their messages.

Invariant: at the end of a step no queue waits for a place that a competing one has left.
"""

from __future__ import annotations

from collections.abc import Container

from mqbroker.base.look import LOOK
from mqbroker.core.address.address import Address
from mqbroker.core.queue.queue import Queue


def competing_at(address: Address | None, served: Container[Queue]) -> dict[Queue, list[Queue]]:
    """Of each queue of an address that is served, those that compete with it: only those of one address may."""
    of_address = [] if address is None else [*address.forwarding, *address.anycast]
    queues = [queue for queue in of_address if queue in served]
    routes = {queue: set(queue.kind.route) for queue in queues}
    return {
        queue: [other for other in queues if other is not queue and routes[queue] & routes[other]] for queue in queues
    }


class CompetingWaits:
    """Queues that wait for the turn of a competing one, each with the place at which that one has it: an entry each.

    What is at that place goes, or it expires, is purged, routed again or a dead letter; or a page comes back, and only
    then it is known where that queue goes on. Whatever it is, the place is another one afterwards: so it is compared,
    and nobody who takes or brings messages has to know who waits for them.
    """

    def __init__(self) -> None:
        self.places: dict[Queue, tuple[Queue, int]] = {}

    def ahead(self, queue: Queue, place: int, count: int, competing: list[Queue]) -> int:
        """How many of so many messages from a place on are before all that competing queues have; the others wait."""
        first, turn = None, place + count
        for other in competing:
            if 0 <= (rank := _first_rank(other)) < turn:
                first, turn = other, rank
        LOOK.has_touched = True
        if first is not None:
            self.places[queue] = first, turn
        return max(turn - place, 0)

    def look(self, dirty: dict[Queue, None]) -> bool:
        """Those whose turn may have come are `dirty` from now on; whether there are any."""
        places = self.places.items()
        over = [queue for queue, (other, turn) in places if _first_rank(other) != turn or not queue.consumers]
        LOOK.has_touched = True
        for queue in over:
            del self.places[queue]
        waiting = [queue for queue in over if queue.consumers]
        dirty.update(dict.fromkeys(waiting))
        return bool(waiting)


def _first_rank(queue: Queue) -> int:
    """The lowest place of what the queue will hand out, 0 where only the disk knows it, -1 where there is nothing."""
    first = queue.backlog.head.rank if queue.backlog.count else -1
    if queue.waiting:
        coming = queue.waiting[0].rank
        return min(first, coming) if first >= 0 else coming
    return 0 if first < 0 and queue.paged_count else first
