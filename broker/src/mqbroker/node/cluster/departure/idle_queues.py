"""Since when nothing of a queue has gone to the node that it is for, although something waits.

Of a node that leaves: its queues that drain, store-and-forward queues, and what waits apart for heirs before. Each is
judged by itself, as one may be full at a node that takes all others. What goes is what that node has answered for:
expired and purged messages are no progress. A queue of which nothing is due has none to make. Time is that in which
this node runs itself, since it hears no answers as it stands still; it is that of the last look, so that what has come
since is seen before anybody is told. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS, STANDSTILL_MS_MAX

if TYPE_CHECKING:
    from mqbroker.core.queue.queue import Queue
    from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker

IDLE_MS: Final = 60_000  # where heir-timeout is none
IDLE_MS_MIN: Final = 5_000  # what is on its way may take as long
STEP_NS_MAX: Final = STANDSTILL_MS_MAX * NS_PER_MS  # of that time between two looks, of which there is one each second


class IdleQueues:
    """See the module's docstring. They are looked at from time to time. `clock_ns`: for how long it has run so far;
    `gone_ns`: when something of any of them has gone, by that clock."""

    def __init__(self, broker: ClusterBroker) -> None:
        self._broker: Final = broker
        self._seen: dict[Queue, tuple[int, int]] = {}  # so much has gone, since then by the clock
        self._looked_ns = 0
        self.clock_ns = self.gone_ns = 0

    def forget(self) -> None:
        """The heir is another one: nothing that was seen counts any more."""
        LOOK.has_touched = True
        self._seen = {}

    def look(self, now_ns: int) -> None:
        """See which queues have lost messages since the last look, and count the time."""
        before, seen = self._seen, {}
        LOOK.has_touched = True
        self.clock_ns += min(now_ns - self._looked_ns, STEP_NS_MAX)
        self._looked_ns = now_ns
        for queue, went in self._counts():
            then = before.get(queue)
            if then is not None and then[0] != went:
                self.gone_ns = self.clock_ns
            is_idle = then is not None and then[0] == went and self._has_due(queue)
            seen[queue] = then if then is not None and is_idle else (went, self.clock_ns)
        self._seen = seen

    def idle_ns(self, queue: Queue) -> int:
        """For how long nothing of it has gone although something waits; 0 where that is not so."""
        seen, record = self._seen.get(queue), self._broker.store.remotes.scale_down
        if seen is None or not record.is_on or record.is_ending or not self._has_due(queue):
            return 0
        return self.clock_ns - seen[1]

    def is_late(self, queue: Queue) -> bool:
        """Whether that is so for as long as another node is waited for to take the place of the heir."""
        bound_ms = self._broker.options.scale_down.heir_timeout
        return self.idle_ns(queue) >= max(bound_ms if bound_ms >= 0 else IDLE_MS, IDLE_MS_MIN) * NS_PER_MS

    def _counts(self) -> Iterator[tuple[Queue, int]]:
        """How many messages the node that each is for has answered for."""
        remotes = self._broker.store.remotes
        for queue in self._broker.scaling_down.queues():
            tally = remotes.scale_down.tallies[queue.kind.name]
            yield queue, tally.now.went.count + tally.volatile_went
        for queue in remotes.queues.values():
            apart = sum(held.queue.acknowledged_total for held in remotes.scale_down.held.of(queue))
            yield queue, queue.acknowledged_total - queue.expired_total - apart
        for held in remotes.scale_down.held:
            yield held.queue, held.queue.acknowledged_total

    def due_count(self, queue: Queue) -> int:
        """Messages that wait to go to the node that it is for, or for its answer."""
        return (
            queue.message_count - queue.scheduled_count - self._broker.store.remotes.scale_down.held.apart_count(queue)
        )

    def _has_due(self, queue: Queue) -> bool:
        """Whether there are some, or that node is still to be asked or told something of it."""
        remotes = self._broker.store.remotes
        is_heard = not (remotes.scale_down.has_to_ask(queue) or remotes.drains.has_to_say(queue))
        return self.due_count(queue) > 0 or not (is_heard or queue.kind.is_forwarding)

    def is_without_credit(self, queue: Queue) -> bool:
        """Whether it has a link, whose node takes nothing more for now."""
        connection = self._broker.cluster.connections.get(queue.kind.connection)
        return connection is not None and connection.is_without_credit(queue)
