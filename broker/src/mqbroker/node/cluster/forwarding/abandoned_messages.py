"""Messages for a node that does not come back: they are routed anew, or become dead letters, as `on-node-lost` says.

A consumer of the broker's own takes them out of their store-and-forward queues, so however many there are, each step
does a bounded part. It leaves when the node is back. Where the address that is to have them does not take them they
stay, as anywhere (dead_letters.py), and the consumer rests until these are tried again: it finds out with a few of
them. It leaves a queue that is empty as well, which goes then; after a start, so does one that was empty already where
nobody has told of its bindings by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.dead_letters import HOLD_MS
from mqbroker.core.queue.queue import Client, Filter, Queue, Segment
from mqbroker.core.store.store import Store

DEAD_LETTER: Final = "dead-letter"
TAKEN_MAX: Final = 30  # messages of one queue in a step: each is made anew, some 60 µs
LOOK_MS: Final = 5_000  # from one look for queues that are empty to the next
TIDIED_MAX: Final = 30  # queues that a step does away with
TAKEN_LOOKS: Final = 8  # what each costs, in looks of a dispatcher; so many of them end the deliveries of a step


class AbandonedConsumer:
    """Takes what one store-and-forward queue holds for a node that is given up, a bounded part in each step."""

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
        """How many messages it takes in this step still."""
        if self._at is not self._store.at:
            LOOK.has_touched = True
            self._at, self._left = self._store.at, TAKEN_MAX
        return self._left if self._rested_ms <= self._store.at.wall_ms else 0

    def deliver(self, queue: Queue, segment: Segment) -> int:
        """Take all messages of the segment; how many these are."""
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
    """Of one cluster connection, by node. Has a deadline like everybody in node/values/timers.py."""

    def __init__(self, store: Store, connection: str, add_deadline: Callable[[Abandoned], None]) -> None:
        self._store = store
        self._add_deadline = add_deadline
        self._connection = connection
        self._consumers: dict[str, dict[Queue, AbandonedConsumer]] = {}
        self._left_empty: list[Queue] = []  # by a process before, which may have had this in mind
        self.due_ns = 0
        self.scheduled_ns = 0

    def start(self, queues: Iterable[Queue]) -> None:
        """A process before may have ended between the last message for a node that was given up and its queue."""
        LOOK.has_touched = True
        self._left_empty = [queue for queue in queues if not queue.message_count]
        self._plan(LOOK_MS)

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
        self._plan(LOOK_MS)
        return count

    def on_time(self, _: int) -> None:
        """What has been taken whole needs no consumer, and nobody needs the queue."""
        empty = [
            (node_id, queue)
            for node_id, taking in self._consumers.items()
            for queue in taking
            if queue.is_deleted or not queue.message_count
        ]
        LOOK.has_touched = True
        for node_id, queue in empty[:TIDIED_MAX]:
            self._leave(queue, self._consumers[node_id].pop(queue))
            self._store.remotes.tidy([] if queue.is_deleted else [queue])
        self._consumers = {node_id: taking for node_id, taking in self._consumers.items() if taking}
        tidied, self._left_empty = self._left_empty[:TIDIED_MAX], self._left_empty[TIDIED_MAX:]
        self._store.remotes.tidy(queue for queue in tidied if not queue.is_deleted)
        self._plan(0 if self._left_empty or len(empty) > TIDIED_MAX else LOOK_MS)

    def _plan(self, delay_ms: int) -> None:
        LOOK.has_touched = True
        is_needed = self._consumers or self._left_empty
        self.due_ns = self._store.at.monotonic_ns + delay_ms * NS_PER_MS if is_needed else 0
        self._add_deadline(self)

    def _leave(self, queue: Queue, consumer: AbandonedConsumer) -> None:
        if consumer in queue.consumers:
            self._store.leave(queue, consumer)

    def end(self, node_id: str) -> None:
        """The node is back, and its messages wait for it again."""
        LOOK.has_touched = True
        for queue, consumer in self._consumers.pop(node_id, {}).items():
            self._leave(queue, consumer)
            if queue.handed_over is not None:
                queue.handed_over.begun_before(self._store.next_id)
