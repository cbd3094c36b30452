"""One thread for what would hold up the loop and nobody waits for long: looking at the disk, writing out metrics.

Owns the thread, which starts with the first piece of work. Invariant: each piece comes back as its result or its
exception, in the loop's thread, unless the loop is closed before. Bounded by its callers: a connection of HTTP has one
request at a time.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Worker:
    """`run` belongs to the loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """What `work` returns or raises, done in the thread."""
        if self._thread is None:
            # A daemon: a file system that hangs must not hold up the end of the process.
            self._thread = threading.Thread(target=self._work, name="observer", daemon=True)
            self._thread.start()
        future: asyncio.Future[_Result] = self._loop.create_future()
        self._queue.put((work, future))
        return await future

    def close(self) -> None:
        """Let the thread end after what it is at."""
        self._queue.put(None)

    def finish(self, work: Callable[[], None], timeout_s: float) -> None:
        """Do this last, and let the thread end. Waits for it so long and no longer."""
        if self._thread is None:
            return
        self._queue.put((work, self._loop.create_future()))
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            work, future = item
            result: Any = None
            error: Exception | None = None
            try:
                result = work()
            except Exception as fault:
                # The edge of the thread: whoever waits for the result decides what it means.
                error = fault
            try:
                self._loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the loop is closed: the process ends


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
