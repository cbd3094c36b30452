"""How far a queue's messages were offered to other nodes, while some of these have consumers for it.

Who moves them, and when, is in core/cluster/redistribution.py.
"""

from __future__ import annotations

from collections.abc import Callable

from mqbroker.base.look import LOOK


class Redistributor:
    """Of one queue. `seen`: all before this place was looked at, and could not be placed."""

    __slots__ = ("_on_due", "due_ns", "is_running", "scheduled_ns", "seen")

    def __init__(self, on_due: Callable[[Redistributor], None]) -> None:
        self._on_due = on_due  # is told when the delay is over
        self.seen = 0
        self.is_running = False
        self.due_ns = 0
        self.scheduled_ns = 0

    def on_time(self, now_ns: int) -> None:
        """The delay is over: messages of the queue may move to other nodes."""
        LOOK.has_touched = True
        self.due_ns = 0
        self._on_due(self)

    def returned(self, rank: int) -> None:
        """A message is (again) at this place."""
        LOOK.has_touched = True
        self.seen = min(self.seen, rank)
