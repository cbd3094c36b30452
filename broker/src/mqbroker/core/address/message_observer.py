"""What a store tells to whoever has to know what becomes of messages. This one does nothing with it.

Who observes derives from it, or from the one of queues (core/cluster/queue_observer.py), or both; the store is told
(`Store.observe_messages`, `.observe_queues`). Calls come in the step in which it happens, messages by run, and each
message once from each point: it enters a queue or is restored there, may return any number of times, and leaves. What
is in no queue (unrouted, seen before, in an open transaction) is not told of. An observer changes nothing of the store,
keeps no list or segment that it is given, and raises nothing. What it hears of durable messages is true after a crash
once the step's append is synced: who tells others waits for that (`Store.decisions`). Source:
docs/adr/0021-observers.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqbroker.core.queue.queue import Queue, Segment


class MessageObserver:
    """Hears of messages in all queues, those for other nodes and those that clients do not know as well."""

    def messages_entered(self, queues: Sequence[Queue], segment: Segment) -> None:
        """New ones are in each of these queues."""

    def messages_restored(self, queue: Queue, first_id: int, count: int) -> None:
        """Recovery found them there."""

    def messages_returned(self, queue: Queue, segment: Segment) -> None:
        """They are at their place again: a consumer gave them back, or what was to have them does not take them."""

    def messages_left(self, queue: Queue, first_id: int, count: int, why: str) -> None:
        """They are gone for good; `why`: ACKNOWLEDGED, or one of LEFT (core/queue/leaving_reasons.py)."""

    def message_outdated(self, queue: Queue, message_id: int) -> None:
        """An older value than the one there came, and did not enter. The id may be that of where it was before."""
