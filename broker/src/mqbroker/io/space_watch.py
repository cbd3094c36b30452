"""Looks at the room on the journal's file system now and then, and tells the node when it becomes scarce, or enough.

Owns one task. A disk without room ends the node, so publishers are held back before (`min-disk-free-bytes`), and
consumers make room. Invariant: the node is told of changes only, and a margin keeps them apart. The look may hang with
the file system, so it runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from mqbroker.io.files import free_bytes
from mqbroker.io.worker import Worker
from mqbroker.node.values.inputs import JournalSpace

SCAN_PERIOD_S = 5.0


def roomy_bytes(free_bytes_min: int) -> int:
    """So much is enough and a margin: from here on nothing is scarce, below it files are given back that are kept."""
    return free_bytes_min * 5 // 4


class SpaceWatch:
    """See the module's docstring. `path`: something on that file system."""

    def __init__(self, post: Callable[[JournalSpace], None], path: str, free_bytes_min: int) -> None:
        self._post = post
        self._path = path
        self._free_bytes_min = free_bytes_min
        self._worker = Worker()
        self._is_low = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on, if anybody wants that."""
        if self._free_bytes_min:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
        self._worker.close()

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(OSError):  # whoever writes there will say what is wrong
                self.saw(await self._worker.run(partial(free_bytes, self._path)))
            await asyncio.sleep(SCAN_PERIOD_S)

    def saw(self, free_bytes: int) -> None:
        """So much is free."""
        enough = roomy_bytes(self._free_bytes_min) if self._is_low else self._free_bytes_min
        if (free_bytes < enough) != self._is_low:
            self._is_low = not self._is_low
            self._post(JournalSpace(self._is_low, free_bytes))
