"""Journals that released formats wrote: every later release must read them, so no sample is ever written again.

A new format adds a folder: `python -m tests.unit.journal.test_samples` writes one for the newest.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from mqbroker.journal.format import READ_VERSIONS, TERM_VERSION, decode_file_header, file_name
from mqbroker.journal.plan import Journal
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Recovered

from tests.support.journal_model import Model, State, contents, options

from .disk_image import NODE_ID, DiskImage, take

SAMPLES = Path(__file__).parent / "samples"


def as_json(state: State) -> dict[str, Any]:
    return {
        "queues": {str(number): attributes for number, attributes in sorted(state.queues.items())},
        "live": [[queue, number, body.hex()] for (queue, number), body in sorted(state.live.items())],
        "counts": [
            [queue, number, attempts.delivery_count, *([attempts.due_ms] if attempts.due_ms else [])]
            for (queue, number), attempts in sorted(state.counts.items())
        ],
        "ids": {
            address: [[number, held[number].hex()] for number in sorted(held)]
            for address, held in sorted(state.ids.items())
        },
        "consumed": sorted(state.consumed),
        "boot": state.boot,
    } | ({"addresses": dict(sorted(state.addresses.items()))} if state.addresses else {})


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_every_released_format_is_read(version: int) -> None:
    folder = SAMPLES / f"format-{version}"
    files = sorted(folder.glob("journal-*.mqj"))
    segments = [(int(path.stem.partition("-")[2]), path.read_bytes()) for path in files]
    headers = [decode_file_header(content) for _, content in segments]
    assert all(header is not None and header.version == version for header in headers)
    found = recover(segments, NODE_ID)
    wanted = json.loads((folder / "expected.json").read_text())
    assert as_json(contents(found)) == wanted["state"]
    assert [found.next_id, found.last_position, found.was_clean] == wanted["end"]
    assert (found.format_version, found.term) == (version, wanted.get("term", 0))
    assert found.cuts == []
    assert found.findings == []


def write_sample(folder: Path, terms: tuple[int, int]) -> None:
    """Two lives with every kind of record, compaction and deletion among them, each in a term of its own."""
    disk, model, found = DiskImage(), Model(9), Recovered()
    for term in terms:
        disk.term = term
        journal = Journal(options(), found)
        model.begin(journal)
        take(journal, disk)
        for _ in range(40):
            model.act(journal)
            for number in journal.deletable():
                disk.delete(number)
            if (append := journal.take(sync=True)) is not None:
                disk.write(append)
                journal.synced(append.position)
        journal.stop()
        take(journal, disk)
        found = disk.recover()
    assert model.compacted
    assert min(disk.files) > 1
    assert {count.due_ms > 0 for count in found.counts} == {False, True}
    assert found.duplicates
    assert found.addresses
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, content in disk.files.items():
        (folder / file_name(number)).write_bytes(content)
    expected = {"state": as_json(model.state), "end": [found.next_id, found.last_position, found.was_clean]}
    expected["term"] = found.term
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    write_sample(SAMPLES / f"format-{TERM_VERSION}", (3, 8))
