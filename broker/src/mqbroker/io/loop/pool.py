"""A few threads for password hashing, so that a login never stops the loop.

Owns the threads and their bounded queue. Invariant: each Derive comes back as exactly one Done or Failed; when the
queue is full it fails at once, which slows a flood of logins without growing memory. Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable

from mqbroker.node.values.effects import Derive
from mqbroker.node.values.inputs import Done, Failed

THREADS = 2
QUEUE_MAX = 256


class DerivePool:
    """`post` is called from the pool's threads: it must be safe to call from any thread."""

    def __init__(
        self, post: Callable[[Done | Failed], None], threads: int = THREADS, queue_max: int = QUEUE_MAX
    ) -> None:
        self._post = post
        self._queue: queue.Queue[Derive | None] = queue.Queue(queue_max)
        # Daemons: a hash in progress must not hold up the end of the process.
        self._threads = [threading.Thread(target=self._work, name=f"derive-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, effect: Derive) -> None:
        try:
            self._queue.put_nowait(effect)
        except queue.Full:
            self._post(Failed(effect.id, "too many logins are being checked at once; try again"))

    def close(self) -> None:
        """Drop what waits and let the threads end after what they are at."""
        try:
            while True:
                self._queue.get_nowait()
        except queue.Empty:
            for _ in self._threads:
                self._queue.put_nowait(None)

    def _work(self) -> None:
        while (effect := self._queue.get()) is not None:
            self._post(_derive(effect))


def _derive(effect: Derive) -> Done | Failed:
    try:
        key = hashlib.pbkdf2_hmac(effect.hash_name, effect.password, effect.salt, effect.iterations)
    except (ValueError, OverflowError, MemoryError) as fault:
        return Failed(effect.id, f"{effect.hash_name} with {effect.iterations} iterations: {fault}")
    return Done(effect.id, key)
