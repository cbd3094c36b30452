"""A thread that reads pages back: parts of segments that are written and synced, checked against their checksums.

Owns the thread and one open file. Invariant: each request is answered by one `Done`, in order, or by a fault that ends
the node: what was acknowledged and cannot be read any more is for a person to decide on. Bounded by the core, which has
few requests on their way. Source: docs/adr/0008-paging.md.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from mqbroker.base.checksum import crc32
from mqbroker.base.errors import StorageFault
from mqbroker.io.disk.journal_directory import JournalDirectory, fault_of
from mqbroker.journal.format import file_name
from mqbroker.journal.places import Slice
from mqbroker.node.values.effects import ReadPage
from mqbroker.node.values.inputs import Done, Input

REMEDY = "look at the disk, then restore the data directory from a backup"


class PageReader:
    """`read` is for any thread; `post` and `on_fatal` are called from this one's."""

    def __init__(
        self, directory: JournalDirectory, post: Callable[[Input], None], on_fatal: Callable[[StorageFault], None]
    ) -> None:
        self._directory = directory
        self._post = post
        self._on_fatal = on_fatal
        self._requests: queue.SimpleQueue[ReadPage | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def read(self, effect: ReadPage) -> None:
        """Have a page read in the thread; Done with its bytes is posted."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="disk-pages", daemon=True)
            self._thread.start()
        self._requests.put(effect)

    def close(self, timeout_s: float) -> None:
        """End after what was asked for."""
        self._requests.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (effect := self._requests.get()) is not None:
            try:
                pieces = self._read(effect.slices)
            except OSError as error:
                self._on_fatal(fault_of(error, self._directory.path))
                return
            except StorageFault as fault:
                self._on_fatal(fault)
                return
            except Exception as error:
                # The edge of the thread: whoever waits for the page would wait for ever.
                why = f"the thread that reads pages failed: {error!r}"
                self._on_fatal(
                    StorageFault(str(self._directory.path), -1, why, "report this, it is a bug of the broker")
                )
                return
            self._post(Done(effect.id, pieces))

    def _read(self, slices: tuple[Slice, ...]) -> list[bytes]:
        """Raises OSError and StorageFault."""
        files, pieces = self._directory.files, []
        number, fd = -1, -1
        try:
            for place in slices:
                if place.segment != number:
                    if fd >= 0:
                        files.close(fd)
                        fd = -1
                    number, fd = place.segment, files.open_for_reading(self._directory.path_of(place.segment))
                pieces.append(self._checked(place, files.read_at(fd, place.length, place.offset)))
        finally:
            if fd >= 0:
                files.close(fd)
        return pieces

    def _checked(self, place: Slice, data: bytes) -> bytes:
        if len(data) == place.length and crc32(data) == place.crc:
            return data
        name = str(self._directory.path / file_name(place.segment))
        raise StorageFault(name, place.offset, "paged messages are not what was written there", REMEDY)
