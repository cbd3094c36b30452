"""Folders of backups: what else is in a folder is nobody's to write between or to delete."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mqbroker.app import exits
from mqbroker.app.backup import reading
from mqbroker.app.backup.folder import LOCK, BackupFolder
from mqbroker.app.backup.manifest import CopiedFile
from mqbroker.app.backup.transfer import copy
from mqbroker.app.main import main
from mqbroker.base.errors import ConfigFault
from mqbroker.io.files import identity

from tests.unit.app.test_backup_manifest import FILE, LARGE, MANIFEST
from tests.unit.app.test_backup_restore import MACHINE, StoppedNode, write


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder like /srv, in which other programs keep files and backups."""
    for name in ("files/report.pdf", "files/b.new", f"files/{'a' * 64}", "backups/readme"):
        path = tmp_path / "srv" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    return tmp_path / "srv"


def put_files(folder: BackupFolder) -> None:
    """What MANIFEST names, as far as anybody sees without reading it."""
    for file in MANIFEST.files:
        folder.place(file).write_bytes(bytes(file.size_bytes))


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_folder_of_others_is_neither_pruned_nor_written_to(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = names(foreign)
    assert main(["backup", "prune", str(foreign), "--keep", "1"]) != 0
    assert f"is no folder of backups: it has no {LOCK}" in capsys.readouterr().err
    with pytest.raises(ConfigFault, match="name a new or an empty one"), BackupFolder(foreign).locked():
        pass
    assert names(foreign) == before


def test_a_folder_that_is_not_there_is_not_pruned_into_being(tmp_path: Path) -> None:
    assert main(["backup", "prune", str(tmp_path / "typo"), "--keep", "1"]) != 0
    assert not (tmp_path / "typo").exists()


def test_only_what_is_named_like_a_checksum_is_deleted(tmp_path: Path) -> None:
    folder = BackupFolder(tmp_path / "kept")
    with folder.locked():
        pass
    ours, unfinished = "a" * 64, "b" * 64 + ".new"
    for name in (ours, unfinished, "notes.txt", "b.new", "A" * 64):
        (tmp_path / "kept" / "files" / name).write_text("x")
    assert main(["backup", "prune", str(tmp_path / "kept"), "--keep", "1"]) == 0
    assert names(tmp_path / "kept" / "files") == sorted(["notes.txt", "b.new", "A" * 64])


def test_a_new_file_system_is_empty(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    for _ in range(2):
        with BackupFolder(tmp_path).locked():
            pass
    assert names(tmp_path) == ["backups", "files", "lost+found", LOCK]


def test_one_manifest_that_cannot_be_read_hides_no_other_and_nothing_is_pruned_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = BackupFolder(tmp_path), [str(tmp_path), "--json"]
    with folder.locked():
        for backup_id in ("mq1-1", "mq1-2"):
            (tmp_path / "backups" / f"{backup_id}.json").write_bytes(MANIFEST.called(backup_id).text())
        (tmp_path / "backups" / "mq1-3.json").write_bytes(MANIFEST.text()[:-5])
    before = names(tmp_path)
    assert main(["backup", "list", *words]) == exits.FAILED
    found = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in found["backups"]] == ["mq1-1", "mq1-2"]
    assert [row["id"] for row in found["bad"]] == ["mq1-3"]
    assert main(["backup", "verify", *words]) == exits.FAILED
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["backups"]] == ["mq1-3", "mq1-1", "mq1-2"]
    assert main(["backup", "prune", *words, "--keep", "1"]) != 0
    assert "mq1-3.json: is no manifest of a backup; nothing is pruned beside it" in capsys.readouterr().err
    assert names(tmp_path) == before


def test_a_clock_that_was_wrong_for_a_day_prunes_no_newer_backup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = BackupFolder(tmp_path)
    with folder.locked():
        for number, day in enumerate((1, 2, 30, 3, 4)):  # the third was made on the third of the month
            made = replace(MANIFEST.called(f"mq1-{number}"), made=f"2026-11-{day:02}T10:00:00+00:00", position=number)
            (tmp_path / "backups" / f"mq1-{number}.json").write_bytes(made.text())
    put_files(folder)
    assert main(["backup", "prune", str(tmp_path), "--json", "--keep", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["pruned"] == ["mq1-0", "mq1-1", "mq1-3"]
    assert [each.id for each in folder.backups()] == ["mq1-4", "mq1-2"]


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda path: path.unlink(), r"cannot be read \(No such file or directory\)"),
        (lambda path: os.truncate(path, 5), "has 5 bytes and not "),
    ],
)
@pytest.mark.parametrize("harmed", [FILE, LARGE])
def test_nothing_is_pruned_beside_a_newest_backup_that_lacks_a_file(
    tmp_path: Path, harmed: CopiedFile, harm: Callable[[Path], None], why: str
) -> None:
    """What would go may be the only one that is good."""
    folder, old = BackupFolder(tmp_path), replace(FILE, sha256="c" * 64)
    newest = replace(MANIFEST.called("mq1-2"), position=18)
    with folder.locked():
        for each in (replace(MANIFEST.called("mq1-1"), files=(old,)), newest):
            (tmp_path / "backups" / f"{each.id}.json").write_bytes(each.text())
        put_files(folder)
        folder.place(old).write_bytes(bytes(old.size_bytes))
        harm(folder.place(harmed))
        before = names(tmp_path)
        gone, _, (fault,) = folder.prune(1)
        assert gone == []
        assert re.search(f"{harmed.sha256}.* {why}.*: it is {harmed.name} of mq1-2; nothing of ", str(fault))
        assert names(tmp_path) == before
        (tmp_path / "backups" / "mq1-2.json").unlink()  # as was said
        assert folder.prune(1)[0] == []
    assert [each.id for each in folder.backups()] == ["mq1-1"]


@pytest.mark.parametrize("is_json", [False, True])
def test_nodes_are_pruned_beside_one_that_is_gone_and_whose_last_backup_lacks_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_json: bool
) -> None:
    """It makes no other one, so what it has would be in the way of all for ever. Both are told."""
    folder, lost, old = BackupFolder(tmp_path), replace(FILE, sha256="d" * 64), replace(FILE, sha256="c" * 64)
    gone = [replace(MANIFEST.called(f"mq9-{each}"), node="mq9", node_id="9" * 32, position=each) for each in (1, 2)]
    own = [replace(MANIFEST.called(f"mq1-{each}"), position=each) for each in (1, 2)]
    with folder.locked():
        for each in (replace(gone[0], files=(old,)), replace(gone[1], files=(lost,)), *own):
            (tmp_path / "backups" / f"{each.id}.json").write_bytes(each.text())
        put_files(folder)
        folder.place(old).write_bytes(bytes(old.size_bytes))
    assert main(["backup", "prune", str(tmp_path), "--keep", "1", *(["--json"] if is_json else [])]) == exits.FAILED
    out, err = capsys.readouterr()
    why = r"of mq9-2; nothing of its node is pruned, remove .*/mq9-2\.json where"
    assert re.search(why, err)
    if is_json:
        said = json.loads(out)
        assert said["pruned"] == ["mq1-1"]
        assert re.search(why, said["bad"][0])
    else:
        assert "pruned: mq1-1\n" in out + err
    assert [each.id for each in folder.backups()] == ["mq1-2", "mq9-1", "mq9-2"]
    assert folder.place(old).exists()


def test_all_that_is_read_on_the_host_of_a_broker_is_counted(tmp_path: Path) -> None:
    """For its checksums, and as a start would. Not while the broker holds its files: what was kept is read at will."""
    identity.init(tmp_path / "node", MACHINE)
    write(tmp_path / "node", 1, 3)
    read: list[int] = []
    while_held: list[int] = []
    folder = BackupFolder(tmp_path / "kept", read.append)

    class Held(StoppedNode):
        def end(self) -> None:
            while_held.append(sum(read))

    for _ in range(2):
        read.clear()
        with folder.locked():
            made, _ = copy(Held(tmp_path / "node"), folder)
        assert sum(read) == 2 * made.used_bytes
    assert while_held == [0, 0]


def test_no_disk_is_read_for_a_hole(tmp_path: Path) -> None:
    read: list[int] = []
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", 3 * reading.PIECE_BYTES)
    reading.checksum_of(tmp_path / "file", read.append, reading.PIECE_BYTES + 7)
    assert read == [reading.PIECE_BYTES, 7, 0]
