"""Tells announcers which queues this node has, and which consumers take messages of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mqbroker.cluster.announcer import Announcer
from mqbroker.core.cluster.queue_observer import QueueObserver
from mqbroker.core.cluster.remote_binding import RemoteBinding, cluster_name_of
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.queue import Consumer, Queue
from mqbroker.core.selector.selector import Selector
from mqbroker.node.cluster.grouping.grouping import GroupingHandler


class ClusterWatcher(QueueObserver):
    """`announcers` are those of all cluster connections. Sessions of administrators count for no consumers.

    `grouping` hears which queues may own groups, `own` is the node's id.
    """

    def __init__(
        self, announcers: Callable[[], Iterable[Announcer]], own: str, grouping: GroupingHandler | None
    ) -> None:
        self._announcers = announcers
        self._own = own
        self._grouping = grouping

    def queue_added(self, queue: Queue) -> None:
        """A queue is bound to its address."""
        self._tell(queue)
        if self._grouping is not None:
            self._grouping.added(cluster_name_of(queue.kind.name, self._own))

    def queue_changed(self, queue: Queue, before: QueueKind) -> None:
        """Others route by its selector, and keep consumers out by whether it is exclusive."""
        if (queue.kind.selector, queue.kind.exclusive) != (before.selector, before.exclusive):
            self._tell(queue)

    def _tell(self, queue: Queue) -> None:
        kind = queue.kind
        for each in self._announcers():
            each.queue_added(
                kind.name, kind.address, kind.routing, kind.selector, volatile=not kind.is_durable,
                exclusive=kind.exclusive, moved_from=kind.moved_from,
            )  # fmt: skip

    def queue_removed(self, queue: Queue) -> None:
        """A queue is gone from its address."""
        for each in self._announcers():
            each.queue_removed(queue.kind.name)
        if self._grouping is not None:
            self._grouping.removed(cluster_name_of(queue.kind.name, self._own))

    def remote_added(self, binding: RemoteBinding) -> None:
        """Another node has a queue."""
        if self._grouping is not None:
            self._grouping.added(binding.cluster_name)

    def remote_removed(self, binding: RemoteBinding) -> None:
        """Another node has a queue no longer."""
        if self._grouping is not None:
            self._grouping.removed(binding.cluster_name)

    def consumer_joined(self, queue: Queue, consumer: Consumer) -> None:
        """A consumer gets messages of a queue from now on."""
        if consumer.client is not None:
            for each in self._announcers():
                each.consumer_joined(queue.kind.name, _selector_of(consumer))

    def consumer_left(self, queue: Queue, consumer: Consumer) -> None:
        """A consumer gets no further messages of a queue."""
        if consumer.client is not None:
            for each in self._announcers():
                each.consumer_left(queue.kind.name, _selector_of(consumer))


def _selector_of(consumer: Consumer) -> str:
    return consumer.filter.text if isinstance(consumer.filter, Selector) else ""
