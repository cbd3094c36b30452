"""Pages are read from real files, and what is not as it was written ends the node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mqbroker.io.disk.files import Files
from mqbroker.journal import records
from mqbroker.journal.format import file_name
from mqbroker.journal.places import Slice, Written
from mqbroker.journal.records import encode_attributes
from mqbroker.node.values.effects import ReadPage
from mqbroker.node.values.inputs import Done

from tests.support.patience import PATIENCE_S
from tests.unit.io.disk.test_disk import Node

FRAMES = [bytes([number]) * (1000 + number) for number in range(1, 30)]


class ShortFiles(Files):
    """Reads end early, as they may."""

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        return super().read_at(fd, min(length, 700), offset)


def filled(path: Path, files: Files | None = None, file_size_bytes: int = 8192) -> tuple[Node, list[Slice]]:
    """Appends of one or two places each, over several files, synced."""
    node = Node(path, files, journal_file_size_bytes=file_size_bytes)
    node.journal.declare(1, encode_attributes({"name": "q"}))
    places: list[Written] = []
    for number, frames in enumerate(FRAMES, 1):
        queue_ids = (1,) if number % 2 else ()
        places.append(node.journal.store_paged((number, 1), queue_ids, memoryview(frames), 7, None))
        if number % 3 == 0:
            submit(node)
    submit(node)
    return node, [place.slice for place in places]


def submit(node: Node) -> None:
    """Hand over what was stored, and wait until it is on disk."""
    append = node.journal.take(sync=True)
    if append is not None:
        node.disk.submit(append)
        node.wait(append.position)


def wait_for(node: Node, done: Callable[[], bool]) -> None:
    with node.changed:
        assert node.changed.wait_for(done, PATIENCE_S)


def bodies(found: list[bytes]) -> list[bytes]:
    runs = [record for data in found for record in records.decode(memoryview(data))]
    return [bytes(run.frames) for run in runs if isinstance(run, records.RunRecord)]


def test_places_are_where_the_journal_says(tmp_path: Path) -> None:
    node, slices = filled(tmp_path)
    assert len({place.segment for place in slices}) > 3
    node.disk.read(ReadPage(5, tuple(slices)))
    wait_for(node, lambda: Done in map(type, node.inputs))
    (done,) = [item for item in node.inputs if isinstance(item, Done)]
    assert (done.id, bodies(done.result)) == (5, FRAMES)
    assert node.disk.close()


def test_requests_are_answered_in_their_order(tmp_path: Path) -> None:
    node, slices = filled(tmp_path)
    for number in (2, 1):
        node.disk.read(ReadPage(number, (slices[number],)))
    wait_for(node, lambda: sum(type(item) is Done for item in node.inputs) == 2)
    found = [(item.id, bodies(item.result)) for item in node.inputs if isinstance(item, Done)]
    assert found == [(2, [FRAMES[2]]), (1, [FRAMES[1]])]
    assert node.disk.close()


@pytest.mark.parametrize("harm", ["changed", "short", "gone"])
def test_what_cannot_be_read_ends_the_node(tmp_path: Path, harm: str) -> None:
    node, slices = filled(tmp_path, ShortFiles() if harm == "short" else None)
    path = tmp_path / file_name(slices[3].segment)
    if harm == "changed":
        content = bytearray(path.read_bytes())
        content[slices[3].offset + 500] ^= 1
        path.write_bytes(content)
    elif harm == "gone":
        path.unlink()
    node.disk.read(ReadPage(5, (slices[3],)))
    node.disk._pages.close(PATIENCE_S)
    assert file_name(slices[3].segment) in node.faults[0].file
    assert not any(type(item) is Done for item in node.inputs)
    assert not node.disk.close()
