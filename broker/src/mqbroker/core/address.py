"""Addresses and bindings: which queues a message that is sent to an address reaches.

Three things, not one: an address is a name that senders use, a queue holds messages, a binding connects them. Anycast
bindings share the messages (each goes to one queue in turn), multicast bindings get a copy each: one message, many
queues.
"""

from __future__ import annotations

from mqbroker.core.queue import Queue
from mqbroker.wire.run import Run

ANYCAST, MULTICAST = "anycast", "multicast"


class Address:
    """A name and its bindings."""

    __slots__ = ("_cursor", "anycast", "multicast", "name", "routed_total", "unrouted_total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.anycast: list[Queue] = []
        self.multicast: list[Queue] = []
        self.routed_total = 0
        self.unrouted_total = 0
        self._cursor = 0

    def bind(self, queue: Queue) -> None:
        """Messages of this address reach the queue from now on."""
        (self.anycast if queue.kind.routing == ANYCAST else self.multicast).append(queue)

    def unbind(self, queue: Queue) -> None:
        """They no longer do."""
        (self.anycast if queue.kind.routing == ANYCAST else self.multicast).remove(queue)

    @property
    def queues(self) -> list[Queue]:
        """All bound queues."""
        return self.anycast + self.multicast

    def route(self, run: Run) -> list[tuple[int, int, list[Queue]]]:
        """Which queues get which part of the run: (index, count, queues)."""
        if len(self.anycast) <= 1:
            queues = self.anycast + self.multicast if self.multicast else self.anycast
            return [(0, run.count, queues)]
        parts = []
        for index in range(run.count):
            queue = self.anycast[self._cursor % len(self.anycast)]
            self._cursor += 1
            parts.append((index, 1, [queue, *self.multicast]))
        return parts
