"""Manifests of backups: whole or refused, and whoever changed one writes nowhere but in a data directory."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from mqbroker.app.backup import manifest as manifests
from mqbroker.app.backup.manifest import BackupManifest, CopiedFile, QueueContents, id_of, is_id, parse
from mqbroker.app.backup.running import Throttle
from mqbroker.base.errors import ConfigFault

NODE_ID = "11111111-2222-3333-4444-555555555555"
FILE = CopiedFile("journal/journal-0000000001.mqj", 4096, 100, "a" * 64)
LARGE = CopiedFile("large-messages/7.msg", 10, 10, "b" * 64)
MANIFEST = BackupManifest(
    "mq1-20261127T101500Z", "mq1", NODE_ID, "2026-11-27T10:15:00+00:00", "1.0", 3, 0, 17, (FILE, LARGE),
    (QueueContents("orders", "orders", 1, "1:1:1"),),
)  # fmt: skip


def refusal(manifest: BackupManifest) -> str:
    with pytest.raises(ConfigFault) as caught:
        parse(manifest.text(), "here")
    return caught.value.why


def test_what_is_written_is_read() -> None:
    assert parse(MANIFEST.text(), "here") == MANIFEST
    assert (FILE.segment, FILE.large, LARGE.segment, LARGE.large) == (1, None, None, 7)
    assert MANIFEST.messages == 1
    assert MANIFEST.used_bytes == 110


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "journal/../../x", "journal/journal-1.mqj", "journal/journal-0000000001.mqj/..", "",
     "large-messages/../identity.json", "large-messages/007.msg", "identity.json", "journal/journal-0000000001.mqj\n"],
)  # fmt: skip
def test_files_of_other_places_are_refused(name: str) -> None:
    assert "no data directory has" in refusal(replace(MANIFEST, files=(FILE, replace(LARGE, name=name))))


@pytest.mark.parametrize("backup_id", ["../x", "", ".hidden", "a/b", "a" * 201, "a\n"])
def test_ids_that_are_no_file_names_are_refused(backup_id: str) -> None:
    assert "has an id that is none" in refusal(MANIFEST.called(backup_id))


@pytest.mark.parametrize("sizes", [(-1, 4096), (5000, 4096), (0, 1 << 41), (True, 1), (1.5, 4)])
def test_impossible_sizes_are_refused(sizes: tuple[int, int]) -> None:
    wrong = replace(FILE, used_bytes=sizes[0], size_bytes=sizes[1])
    assert "impossible size" in refusal(replace(MANIFEST, files=(wrong,)))


def test_other_faults_are_named() -> None:
    assert refusal(replace(MANIFEST, files=(FILE, FILE))) == "names a file twice"
    assert refusal(replace(MANIFEST, files=(LARGE,))) == "has no journal"
    assert refusal(replace(MANIFEST, files=(replace(FILE, sha256="A" * 64),))).startswith("says no checksum")
    assert refusal(replace(MANIFEST, position=-1)) == "says no boot, term or position"
    assert refusal(replace(MANIFEST, node_id="x")) == "is no manifest of a backup"


def test_each_byte_counts() -> None:
    text = MANIFEST.text()
    for place in range(len(text) - 1):
        changed = text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]
        with pytest.raises(ConfigFault):
            parse(changed, "here")
        with pytest.raises(ConfigFault):
            parse(text[:place], "here")


def test_a_manifest_of_another_release_says_so() -> None:
    document = {"schema": "mqbroker.backup/2", **asdict(MANIFEST)}
    with pytest.raises(ConfigFault, match=r"this release reads 'mqbroker.backup/1'"):
        parse(json.dumps(document).encode(), "here")


@pytest.mark.parametrize("node", ["mq1", "mq 1/ä", "...", "-", "n" * 300])
def test_ids_are_made_of_names(node: str) -> None:
    made = id_of(node, "2026-11-27T10:15:00+00:00")
    assert is_id(made)
    assert made.endswith("-20261127T101500Z")
    assert manifests.segment_name(1) == FILE.name


def test_a_throttle_lets_so_much_through_and_makes_up_for_no_pause() -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    throttle = Throttle(1000, lambda: now[0], sleep)
    for _ in range(3):
        throttle.passed(500)
    assert now[0] == pytest.approx(101.5)
    now[0] += 60
    throttle.passed(1000)
    assert slept[-1] == pytest.approx(1.0)
    Throttle(0, lambda: now[0], sleep).passed(1 << 40)
    assert len(slept) == 4
