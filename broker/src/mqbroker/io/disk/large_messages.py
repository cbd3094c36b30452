"""The threads that work on files of large messages: one writes, finishes and deletes, one reads.

What was written a moment ago is in the kernel's memory, and read from there without a thread: changes of threads cost
more than that. Invariants: what is asked for one file is done in that order (a read only after what it reads was
finished); each effect comes back as exactly one Done or Failed, but a read that fails ends the node, and of a deletion
only the failure is told. What is queued is bounded by the core, which counts bytes and reads under way. The threads
begin with the first large message.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from mqbroker.base.errors import StorageFault
from mqbroker.io.disk.journal_directory import fault_of
from mqbroker.io.disk.large_directory import LargeDirectory
from mqbroker.node.values.effects import DeleteLarge, FinishLarge, ReadLarge, WriteLarge
from mqbroker.node.values.inputs import Done, Failed, Input

CLOSE_S_MAX = 10.0
# Files whose names and data the kernel probably has at hand: of others even the opening may wait for the disk.
RECENT_MAX = 1024


class LargeMessageFiles:
    """`post` and `on_fatal` are called from the threads; the other methods belong to one thread, the loop's."""

    def __init__(
        self, directory: LargeDirectory, post: Callable[[Input], None], on_fatal: Callable[[StorageFault], None]
    ) -> None:
        self.directory = directory
        self._post = post
        self._on_fatal = on_fatal
        self._recent: OrderedDict[int, None] = OrderedDict()
        self._writer = Tasks("large-writer", self._broken)
        self._reader = Tasks("large-reader", self._broken)

    def write(self, effect: WriteLarge) -> None:
        self._writer.add(lambda: self._tell(effect.id, self.directory.write, effect.file, effect.offset, effect.chunks))

    def finish(self, effect: FinishLarge) -> None:
        self._recent[effect.file] = None
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)
        self._writer.add(lambda: self._tell(effect.id, self._finish, effect))

    def delete(self, effect: DeleteLarge) -> None:
        self._recent.pop(effect.file, None)
        self._writer.add(lambda: self._delete(effect))

    def read(self, effect: ReadLarge) -> None:
        if effect.file in self._recent:
            data = self.directory.read_cached(effect.file, effect.offset, effect.size_bytes)
            if data is not None:
                self._post(Done(effect.id, data))
                return
        self._reader.add(lambda: self._read(effect))

    def close(self) -> None:
        """End after what was asked for."""
        for tasks in (self._reader, self._writer):
            if not tasks.close(CLOSE_S_MAX):
                return
        self.directory.close()

    def _tell(self, effect_id: int, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except OSError as error:
            self._failed(effect_id, error)
        else:
            self._post(Done(effect_id))

    def _failed(self, effect_id: int, error: OSError) -> None:
        self._post(Failed(effect_id, f"{error.filename or self.directory.path}: {error.strerror}"))

    def _finish(self, effect: FinishLarge) -> None:
        if effect.chunks:
            self.directory.write(effect.file, effect.offset, effect.chunks)
        self.directory.finish(effect.file, sync=effect.sync)

    def _delete(self, effect: DeleteLarge) -> None:
        try:
            self.directory.delete(effect.file)
        except OSError as error:
            self._failed(effect.id, error)

    def _read(self, effect: ReadLarge) -> None:
        try:
            data = self.directory.read(effect.file, effect.offset, effect.size_bytes)
        except OSError as error:
            self._on_fatal(fault_of(error, self.directory.path_of(effect.file)))
        else:
            self._post(Done(effect.id, data))

    def _broken(self, error: Exception) -> None:
        why = f"the thread for large messages failed: {error!r}"
        self._on_fatal(StorageFault(str(self.directory.path), -1, why, "report this, it is a bug of the broker"))


class Tasks:
    """A thread that does one thing after the other, from the first one on."""

    def __init__(self, name: str, on_error: Callable[[Exception], None]) -> None:
        self._name = name
        self._on_error = on_error
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, task: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(task)

    def close(self, timeout_s: float) -> bool:
        """Take no more, and wait for what is queued; whether all of it is done."""
        if self._thread is None:
            return True
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while (task := self._queue.get()) is not None:
                task()
        except Exception as error:
            # The edge of the thread: what it was to do is not done, and others wait for it.
            self._on_error(error)
