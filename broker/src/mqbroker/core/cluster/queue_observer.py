"""What a store tells to whoever has to know what becomes of queues, here and on other nodes. This one does nothing.

What holds of observers is said where those of messages are (core/address/message_observer.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqbroker.core.cluster.remote_binding import RemoteBinding
    from mqbroker.core.queue.kinds import QueueKind
    from mqbroker.core.queue.queue import Consumer, Queue


class QueueObserver:
    """Hears of queues that clients know, of consumers that take messages, and of queues of other nodes."""

    def queue_added(self, queue: Queue) -> None:
        """It is bound to its address; also when recovery found it."""

    def queue_changed(self, queue: Queue, before: QueueKind) -> None:
        """Its kind was `before`, with the same name and place."""

    def queue_removed(self, queue: Queue) -> None:
        """It is bound to none from now on. What it held leaves piece by piece; a crash may come before that is told."""

    def consumer_joined(self, queue: Queue, consumer: Consumer) -> None:
        """It gets messages from now on."""

    def consumer_left(self, queue: Queue, consumer: Consumer) -> None:
        """It gets no messages from now on."""

    def remote_added(self, binding: RemoteBinding) -> None:
        """Another node has a queue."""

    def remote_removed(self, binding: RemoteBinding) -> None:
        """That queue was deleted, or is not known from now on."""

    def remote_changed(self, binding: RemoteBinding) -> None:
        """It has other consumers, or can or cannot be reached."""
