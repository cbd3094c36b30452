"""Bodies of large messages through an export and back, piece by piece."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from mqbroker.base.errors import ConfigFault
from mqbroker.core.store import exported_bodies
from mqbroker.core.store.journal_export import Importer, rows_of
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Recovered

from tests.sim.disk import Faults, SimDisk
from tests.support.large_messages import BIG, Consumer, Producer, content, stage_of
from tests.support.stage import Stage, options_with
from tests.unit.core.store.test_journal_export import NODE, Kept

PIECE = 9_000


def exported(monkeypatch: pytest.MonkeyPatch) -> tuple[Stage, list[dict[str, Any]]]:
    """A node that is gone, with two large messages, one of which is in two queues, and what an export says of it."""
    monkeypatch.setattr(exported_bodies, "PIECE_BYTES", PIECE)
    stage = stage_of()
    for name in ("a", "b"):
        stage.admin("queue-create", name=name, address="news", routing_type="multicast")
    Producer(stage, "first", "news").publish(content(1))
    Producer(stage, "second", "orders").publish(content(2), application_properties={"key": "two"})
    stage.stop()
    files = stage.large_files

    def read(file: int, offset: int, size_bytes: int) -> bytes:
        assert size_bytes <= PIECE
        return files.content(file)[offset : offset + size_bytes]

    return stage, list(rows_of(stage.disk.load(), NODE, read))


def taken(rows: list[dict[str, Any]]) -> tuple[Kept, SimDisk]:
    """What an import makes of rows."""
    bodies = Kept()
    disk = SimDisk(random.Random(0), b"stage".ljust(16, b"\0"), 1 << 20, Faults(write_error=0.0, sync_error=0.0))
    importer = Importer(Journal(options_with().journal, Recovered()), bodies)
    for append in [*map(importer.take, rows), importer.finish()]:
        if append is not None:
            disk.commit([append])
    return bodies, disk


def test_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, rows = exported(monkeypatch)
    kinds = [row["type"] for row in rows]
    pieces = BIG // PIECE + 1
    assert kinds.count("file") == 2 * pieces
    assert max(len(row.get("data", "")) for row in rows) <= PIECE * 4 // 3 + 4
    bodies, disk = taken(rows)
    assert bodies.files == {file: stage.large_files.content(file) for file in stage.large_files.sizes}
    assert sorted(bodies.finished) == sorted(bodies.files)

    def read(file: int, offset: int, size_bytes: int) -> bytes:
        return bodies.files[file][offset : offset + size_bytes]

    assert list(rows_of(disk.load(), NODE, read))[1:] == rows[1:]


def test_a_broker_goes_on_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    before, rows = exported(monkeypatch)
    stage = stage_of()
    stage.crash()
    _, stage.disk = taken(rows)
    stage.large_files = before.large_files
    stage.start()
    assert Consumer(stage, "one", "orders").bodies == [content(2)]


def test_without_a_reader_there_are_messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, rows = exported(monkeypatch)
    assert [row for row in rows if row["type"] != "file"] == list(rows_of(stage.disk.load(), NODE))


def _piece(file: int, offset: int, data: bytes = b"four") -> dict[str, Any]:
    return {"type": "file", "file": file, "offset": offset, "data": base64.b64encode(data).decode()}


# Places of rows: the first and second of type file, that of its message, and the last one.
FIRST, SECOND, MESSAGE, END = range(4)


@pytest.mark.parametrize(
    ("place", "skipped", "row", "said"),
    [
        (FIRST, 1, None, "begins at byte 9000, and 0 came before it"),
        (SECOND, 0, FIRST, "begins at byte 0, and 9000 came before it"),
        (FIRST, 5, None, r"needs 400\d\d bytes of file \d+, and 0 came"),
        (MESSAGE, 0, _piece(7, 0), "no message needs file 7"),
        (FIRST, 0, _piece(0, 0), "file 0 was whole before, or this is no piece"),
        (FIRST, 0, _piece(7, 0, b""), "file 7 was whole before, or this is no piece"),
        (END, 0, FIRST, "was whole before"),
        (FIRST, 0, {"type": "file", "file": 7}, "a row of type file is not like this"),
        (FIRST, 0, {"type": "file", "file": 7, "offset": 0, "data": "?"}, "a row of type file is not like this"),
    ],
)
def test_faulty_rows_are_refused_with_their_line(
    place: int, skipped: int, row: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, rows = exported(monkeypatch)
    first = next(number for number, row in enumerate(rows) if row["type"] == "file")
    places = [first, first + 1, first + BIG // PIECE + 1, len(rows) - 1]
    more = [] if row is None else [rows[places[row]] if isinstance(row, int) else row]
    at = places[place]
    with pytest.raises(ConfigFault, match=rf"line \d+: .*{said}"):
        taken([*rows[:at], *more, *rows[at + skipped :]])
