"""What must wait until an append is committed: decisions keyed by journal position.

Committed is at least what is on this disk (core/store/commits.py). A decision is a function and its arguments. All
decisions of one step share the position of the step's append. One that depends on earlier appends is put behind all of
them, also behind those for which nothing waits: one that says only what has left queues is such an append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mqbroker.base.look import LOOK

Decision = tuple[Callable[..., None], tuple[Any, ...]]


class Decisions:
    """Ascending positions; `release` runs what is due in the order in which it was decided."""

    __slots__ = ("_appended", "_forming", "_waiting", "committed")

    def __init__(self, committed: int) -> None:
        self.committed = committed
        self._appended = committed  # the position of the last append, whether or not anything waits for it
        self._forming: list[Decision] = []
        self._waiting: deque[tuple[int, list[Decision]]] = deque()

    def wait(self, action: Callable[..., None], *arguments: Any) -> None:
        """Until this step's append is committed."""
        LOOK.has_touched = True
        self._forming.append((action, arguments))

    def wait_for_earlier(self, action: Callable[..., None], *arguments: Any) -> None:
        """Until all that has been appended so far is committed; at once where nothing is outstanding."""
        waiting = self._waiting
        LOOK.has_touched = True
        if self._forming:
            self._forming.append((action, arguments))
        elif waiting and (waiting[-1][0] == self._appended or self._appended <= self.committed):
            waiting[-1][1].append((action, arguments))
        elif self._appended > self.committed:
            waiting.append((self._appended, [(action, arguments)]))
        else:
            action(*arguments)

    def wait_in_turn(self, action: Callable[..., None], *arguments: Any) -> None:
        """Until all that has been decided so far is true; at once where nothing waits. For order, not for the disk."""
        LOOK.has_touched = True
        if self._forming:
            self._forming.append((action, arguments))
        elif self._waiting:
            self._waiting[-1][1].append((action, arguments))
        else:
            action(*arguments)

    @property
    def is_forming(self) -> bool:
        """Whether something waits for this step's append."""
        return bool(self._forming)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for its append."""
        return not self._forming and not self._waiting

    def waits_behind(self, position: int) -> bool:
        """Whether something waits for a later append than this one."""
        return bool(self._forming) or (bool(self._waiting) and self._waiting[-1][0] > position)

    def seal(self, position: int) -> None:
        """This step's append has this position. To be called for each one."""
        LOOK.has_touched = True
        self._appended = position
        if self._forming:
            self._waiting.append((position, self._forming))
            self._forming = []

    def release(self, position: int) -> None:
        """Everything up to `position` is committed."""
        LOOK.has_touched = True
        self.committed = max(self.committed, position)
        waiting = self._waiting
        while waiting and waiting[0][0] <= position:
            for action, arguments in waiting.popleft()[1]:
                action(*arguments)
