"""What must wait for the disk: decisions keyed by journal position, released by `Synced`.

A decision is a function and its arguments. All decisions of one step share the position of the step's append. One that
depends on an earlier append (order within a queue) is put behind the last decisions that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mqbroker.base.look import LOOK

Decision = tuple[Callable[..., None], tuple[Any, ...]]


class Decisions:
    """Ascending positions; `release` runs what is due in the order in which it was decided."""

    __slots__ = ("_forming", "_waiting", "synced")

    def __init__(self, synced: int) -> None:
        self.synced = synced
        self._forming: list[Decision] = []
        self._waiting: deque[tuple[int, list[Decision]]] = deque()

    def wait(self, action: Callable[..., None], *arguments: Any) -> None:
        """Until this step's append is synced."""
        LOOK.has_touched = True
        self._forming.append((action, arguments))

    def wait_for_earlier(self, action: Callable[..., None], *arguments: Any) -> None:
        """Until all that has been appended so far is synced; at once where nothing is outstanding."""
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
        """Whether nothing waits for the disk."""
        return not self._forming and not self._waiting

    def seal(self, position: int) -> None:
        """This step's append has this position."""
        LOOK.has_touched = True
        if self._forming:
            self._waiting.append((position, self._forming))
            self._forming = []

    def release(self, position: int) -> None:
        """Everything up to `position` is on disk."""
        LOOK.has_touched = True
        self.synced = max(self.synced, position)
        waiting = self._waiting
        while waiting and waiting[0][0] <= position:
            for action, arguments in waiting.popleft()[1]:
                action(*arguments)
