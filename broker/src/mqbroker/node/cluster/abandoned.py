"""Messages for a node that does not come back: they are routed anew, or become dead letters, as `on-node-lost` says.

A consumer of the broker's own takes them out of their store-and-forward queues, so however many there are, each step
does a bounded part. It leaves when the node is back. Where the address that is to have them does not take them they
stay, as anywhere (dead_letters.py), and the consumer rests until these are tried again: it finds out with a few of
them.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.core.queue.queue import Client, Filter, Queue, Segment
from mqbroker.core.store.dead_letters import HOLD_MS
from mqbroker.core.store.store import Store

DEAD_LETTER: Final = "dead-letter"
TAKEN_MAX: Final = 30  # messages of one queue in a step: each is made anew, some 60 µs
TAKEN_LOOKS: Final = 8  # what each costs, in looks of a dispatcher; so many of them end the deliveries of a step


class AbandonedConsumer:
    """Of one store-and-forward queue."""

    priority = 0
    filter: Filter | None = None
    is_browser = False
    client: Client | None = None

    def __init__(self, store: Store, action: str) -> None:
        self._store = store
        self._action = action
        self._rested_ms = 0
        self._at = store.at  # of the step in which it can take so many more
        self._left = TAKEN_MAX

    def capacity(self) -> int:
        """How many it takes now."""
        if self._at is not self._store.at:
            LOOK.has_touched = True
            self._at, self._left = self._store.at, TAKEN_MAX
        return self._left if self._rested_ms <= self._store.at.wall_ms else 0

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Take them all."""
        held_before = self._store.dead_letters.held_total
        LOOK.has_touched = True
        self._left -= segment.n
        # Once it takes no more, deliveries of this step end: what is left is looked at in the next one.
        queue.dispatcher.looks += TAKEN_LOOKS * (segment.n if self._left > 0 else TAKEN_MAX)
        if self._action == DEAD_LETTER:
            self._store.dead_letters.reject(queue, segment, f"node {queue.kind.forwards_to} did not come back")
        else:
            self._store.remotes.reroute(queue, segment)
        if self._store.dead_letters.held_total > held_before:
            self._rested_ms = self._store.at.wall_ms + HOLD_MS
        return segment.n


class Abandoned:
    """Of one cluster connection, by node."""

    def __init__(self, store: Store, connection: str) -> None:
        self._store = store
        self._connection = connection
        self._consumers: dict[str, dict[Queue, AbandonedConsumer]] = {}

    def begin(self, node_id: str, action: str) -> int:
        """The node is given up; how many messages that concerns."""
        LOOK.has_touched = True
        taking = self._consumers.setdefault(node_id, {})
        queues = self._store.remotes.queues_of(node_id, self._connection)
        count = sum(queue.message_count for queue in queues)
        for queue in queues:
            if queue not in taking:
                taking[queue] = AbandonedConsumer(self._store, action)
                if queue.handed_over is not None:
                    queue.handed_over.given_up()
                queue.look_for_expired()
                self._store.join(queue, taking[queue])
                self._store.watch(queue)
        return count

    def end(self, node_id: str) -> None:
        """It is back."""
        LOOK.has_touched = True
        for queue, consumer in self._consumers.pop(node_id, {}).items():
            if consumer in queue.consumers:
                self._store.leave(queue, consumer)
            if queue.handed_over is not None:
                queue.handed_over.begun_before(self._store.next_id)
