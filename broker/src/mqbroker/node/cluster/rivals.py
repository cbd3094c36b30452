"""Queues whose messages go to some of the same queues of one node: they take turns by the places of their messages."""

from __future__ import annotations

from collections.abc import Container

from mqbroker.base.look import LOOK
from mqbroker.core.address.address import Address
from mqbroker.core.queue.queue import Queue


def rivals_at(address: Address | None, served: Container[Queue]) -> dict[Queue, list[Queue]]:
    """Of each queue of an address that is served, the others: only those of one address may be rivals."""
    of_address = [] if address is None else [*address.forwarding, *address.anycast]
    queues = [queue for queue in of_address if queue in served]
    routes = {queue: set(queue.kind.route) for queue in queues}
    return {
        queue: [other for other in queues if other is not queue and routes[queue] & routes[other]] for queue in queues
    }


def turn_rank(rivals: list[Queue]) -> int:
    """The lowest place of a message that a rival has: what is behind it waits for that."""
    return min((rank for each in rivals if (rank := _first_rank(each)) >= 0), default=1 << 62)


def _first_rank(queue: Queue) -> int:
    """The lowest place of what the queue will hand out, 0 where only the disk knows it, -1 where there is nothing."""
    ranks = [queue.backlog.head.rank] if queue.backlog.count else []
    LOOK.has_touched = True
    if queue.waiting:
        ranks.append(queue.waiting[0].rank)
    return min(ranks, default=0 if queue.paged_count else -1)
