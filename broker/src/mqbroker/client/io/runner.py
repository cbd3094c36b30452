"""A thread with an event loop: where the blocking API has its work done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from mqbroker.client.errors import Closed
from mqbroker.client.io.driver import LOG

V = TypeVar("V")


class Runner:
    """A thread with an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mqbroker-client", daemon=True)
        self._lock = threading.RLock()  # what is collected within may have to be told here
        self._soon: list[Callable[[], None]] = []
        self._begun: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, V]) -> V:
        """Run it in the loop and wait. Raises Closed behind the end."""
        with self._lock:
            if self._is_over or threading.current_thread() is self._thread:
                work.close()
                why = "the connection was closed" if self._is_over else "a blocking call in the connection's own thread"
                raise Closed(f"{why}; it cannot be used here")
            future: Future[V] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            del future  # else an error and what it holds would live on in a circle with this frame

    def call_last(self, work: Coroutine[Any, Any, None]) -> None:
        """The same for the end of something, which is no matter any more when the connection has ended."""
        if self._is_over:
            work.close()
        else:
            self.call(work)

    def soon(self, work: Callable[[], None]) -> bool:
        """Have it done in the loop without waiting. False: the loop has ended."""
        with self._lock:
            if self._is_over:
                return False
            self._soon.append(work)
            if len(self._soon) == 1:  # else the loop was told, and has not come to it
                self._loop.call_soon_threadsafe(self._do_soon)
            return True

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it in the loop, whose thread this is, and wait for nothing."""
        task = self._loop.create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._begun.discard(task)
        if not task.cancelled() and task.exception() is not None:
            LOG.warning("a receiver that nobody holds any more: %s", task.exception())

    def _do_soon(self) -> None:
        with self._lock:
            works, self._soon = self._soon, []
        for work in works:
            work()

    def end(self) -> None:
        """Stop the loop; from then on nothing can be called."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
