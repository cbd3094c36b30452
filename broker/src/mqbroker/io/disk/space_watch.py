"""Looks at the room on the journal's file system now and then, and tells the node when it becomes scarce, or enough.

Owns one task. A disk without room ends the node, so publishers are held back before (`min-disk-free-bytes`), and
consumers make room. Before that in turn, and also where nobody wants publishers to be held back, room is scarce:
nothing is kept any more only because a backup reads it (docs/adr/0030-backup.md). Invariant: the node is told of
changes only, and a margin keeps them apart. The look may hang with the file system, so it runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from mqbroker.io.disk.files import free_bytes
from mqbroker.io.loop.worker import Worker
from mqbroker.node.values.inputs import JournalSpace

SCAN_PERIOD_S = 1.0
HELD_FREE_BYTES_MIN = 1 << 28  # where the options want nothing to be free


def roomy_bytes(free_bytes_min: int) -> int:
    """So much is enough and a margin: from here on nothing is scarce, below it files are given back that are kept."""
    return free_bytes_min * 5 // 4


def scarce_bytes(free_bytes_min: int) -> int:
    """Below so much, which is well above what has to be free, room is scarce."""
    return 2 * (free_bytes_min or HELD_FREE_BYTES_MIN)


class SpaceWatch:
    """See the module's docstring. `path`: something on that file system."""

    def __init__(self, post: Callable[[JournalSpace], None], path: str, free_bytes_min: int) -> None:
        self._post = post
        self._path = path
        self._free_bytes_min = free_bytes_min
        self._worker = Worker()
        self._is_low = self._is_scarce = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look at the file system from now on, again and again."""
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """Look at the file system no more."""
        if self._task is not None:
            self._task.cancel()
        self._worker.close()

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(OSError):  # whoever writes there will say what is wrong
                self.saw(await self._worker.run(partial(free_bytes, self._path)))
            await asyncio.sleep(SCAN_PERIOD_S)

    def saw(self, free_bytes: int) -> None:
        """So many bytes are free; the node is told where that is low, scarce, or is not any more."""
        is_low = _is_below(free_bytes, self._free_bytes_min, was=self._is_low)
        is_scarce = _is_below(free_bytes, scarce_bytes(self._free_bytes_min), was=self._is_scarce)
        if (is_low, is_scarce) != (self._is_low, self._is_scarce):
            self._is_low, self._is_scarce = is_low, is_scarce
            self._post(JournalSpace(is_low, free_bytes, is_scarce))


def _is_below(free_bytes: int, mark: int, *, was: bool) -> bool:
    return free_bytes < (roomy_bytes(mark) if was else mark)
