"""Announcements as files: readable as JSON, and byte for byte the datagram again."""

from __future__ import annotations

import json

import pytest
from mqbroker.cluster.discovery.datagram import Drop, seal, unseal
from mqbroker.cluster.discovery.note import NAME, NOTE_BYTES_MAX, file_name, to_datagram, to_note

from tests.unit.cluster.discovery.sayings import KEY, NODES, said

DATAGRAM = seal(said(2, seq=7), KEY)


def test_a_note_is_json_and_the_same_datagram_again() -> None:
    note = to_note(DATAGRAM)
    row = json.loads(note)
    assert (row["version"], row["announcement"]["name"], row["announcement"]["seq"]) == (1, "mq2", 7)
    assert to_datagram(note) == DATAGRAM
    assert len(note) <= NOTE_BYTES_MAX
    assert file_name(DATAGRAM) == f"{NODES[2]}.json"
    assert NAME.fullmatch(file_name(DATAGRAM))


@pytest.mark.parametrize(
    ("note", "drop"),
    [
        (b"", Drop.LENGTH),
        (b"{}", Drop.LENGTH),
        (b"#" * NOTE_BYTES_MAX, Drop.MAGIC),
        (to_note(DATAGRAM)[:-2], Drop.MAGIC),
        (to_note(DATAGRAM).replace(b'"seq":7', b'"seq":8'), Drop.MAC),
        (to_note(DATAGRAM).replace(b'"version":1', b'"version":2'), Drop.VERSION),
        (to_note(DATAGRAM).replace(b'"version":1', b'"version":999'), Drop.MAGIC),
        (to_note(DATAGRAM).replace(b'"seq":7', b'"seq":7' + b" " * 1400), Drop.LENGTH),
        (to_note(DATAGRAM).replace(b'"seq":7', b'"seq":7' + b" " * 70_000), Drop.MAGIC),
    ],
)
def test_whatever_else_a_file_holds_is_dropped_with_a_reason(note: bytes, drop: Drop) -> None:
    assert unseal(to_datagram(note), KEY) is drop


@pytest.mark.parametrize(
    "name", [f"{NODES[1]}.json.new", f".{NODES[1]}.json", "a.json", NODES[1], f"{NODES[1]}.json\n"]
)
def test_names_of_other_files(name: str) -> None:
    assert not NAME.fullmatch(name)
