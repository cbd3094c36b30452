"""Rows of an export into a journal on disk, with the files of large messages: for journals that are made, not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mqbroker.base.errors import StorageFault
from mqbroker.core.store.journal_export import Importer
from mqbroker.io.disk.disk import Disk
from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.io.disk.journal_directory import fault_of as io_fault_of
from mqbroker.io.disk.large_directory import LargeDirectory
from mqbroker.io.files import durable_files
from mqbroker.journal.plan import Journal


def put(place: Path, where: Path) -> None:
    """Give a folder and what is in it to the owner of the data directory, and its name; on disk when this returns."""
    durable_files.give_path_to_owner(place)
    for file in sorted(place.iterdir()):
        durable_files.give_path_to_owner(file)
    place.rename(where)
    durable_files.sync_directory(where.parent)


class FiledBodies:
    """Bodies of large messages on their way into files."""

    def __init__(self, path: Path) -> None:
        self._directory = LargeDirectory(path)

    def write(self, file: int, offset: int, data: bytes) -> None:
        """Write a piece of a body at its offset (core/store/exported_bodies.py:Bodies)."""
        self._do(file, lambda: self._directory.write(file, offset, (data,)))

    def finish(self, file: int) -> None:
        """A body is whole, and has to be on disk (core/store/exported_bodies.py:Bodies)."""
        self._do(file, lambda: self._directory.finish(file, sync=True))

    def close(self) -> None:
        """No further body comes: let go of open files."""
        self._directory.close()

    def _do(self, file: int, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            raise io_fault_of(error, self._directory.path_of(file)) from None


def written(place: JournalDirectory, rows: Iterable[Any], bodies: FiledBodies) -> Importer:
    """All rows of an export as a journal on disk. Raises ConfigFault for rows that are none, and StorageFault."""
    recovered = place.load()
    journal = Journal(place.options, recovered)
    importer = Importer(journal, bodies)
    faults: list[StorageFault] = []
    disk = Disk(place, recovered, lambda done: None, faults.append)
    try:
        for row in rows:
            append = importer.take(row)
            if append is not None:
                disk.submit(append)
        last = importer.finish()
        if last is not None:
            disk.submit(last)
    finally:
        bodies.close()
        is_written = disk.close()
    if faults or not is_written:
        raise faults[0] if faults else StorageFault(str(place.path), -1, "the disk does not answer", "look at the disk")
    return importer
