"""A node tells the others of itself again, some times after its start.

A link begins with all members, so this is for those that heard something else in between: `notification-attempts`
times, every `notification-interval`.
"""

from __future__ import annotations

from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_MS
from mqbroker.config.slices import ClusterConnectionOptions


class SelfTelling:
    """Says when. `next_due_ns` is 0 when nothing is due any more."""

    def __init__(self, options: ClusterConnectionOptions, now_ns: int) -> None:
        self._interval_ns = options.notification_interval * NS_PER_MS
        self._left = options.notification_attempts
        self.next_due_ns = now_ns + self._interval_ns if self._left else 0

    def due(self, now_ns: int) -> bool:
        """True: it is to be told now, and the next time is planned."""
        if not self.next_due_ns or now_ns < self.next_due_ns:
            return False
        LOOK.has_touched = True
        self._left -= 1
        self.next_due_ns = now_ns + self._interval_ns if self._left else 0
        return True
