"""Power cuts while a start makes the files agree with what recovery found: nothing is nowhere, nothing comes back."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from mqbroker.base.errors import StorageFault, Unusable
from mqbroker.config.declarations.options import defaults
from mqbroker.io.disk.disk import Disk
from mqbroker.io.disk.files import Files
from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.journal.format import FILE_HEADER_BYTES, file_name
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import encode_attributes

from .faulty_files import FaultyFiles, Point

NODE_ID = b"s" * 16
FILE_BYTES = 64 << 10
DAMAGED = file_name(2)


def directory_at(path: Path, files: Files | None = None, on_damage: str = "stop") -> JournalDirectory:
    changes = {"journal_file_size_bytes": FILE_BYTES, "journal_on_damage": on_damage, "min_disk_free_bytes": 0}
    return JournalDirectory(path, NODE_ID, replace(defaults().journal, **changes), files)


def work(directory: JournalDirectory, ids: range) -> None:
    """One start, and messages that are acknowledged."""
    recovered = directory.load()
    faults: list[StorageFault] = []
    disk = Disk(directory, recovered, lambda item: None, faults.append)
    journal = Journal(directory.options, recovered)
    if not recovered.queues:
        journal.declare(1, encode_attributes({"name": "orders"}))
    for number in ids:
        journal.store(number, 1, (1,), bytes([number]) * 15_000)
        append = journal.take(sync=True)
        assert append is not None
        disk.submit(append)
    assert disk.close()
    assert not faults


def put_back(path: Path, originals: dict[str, bytes]) -> None:
    """The directory as it was, with these files and no others."""
    for file in path.iterdir():
        file.unlink()
    for name, content in originals.items():
        (path / name).write_bytes(content)


def ids_in(path: Path) -> list[int]:
    return [run.first_id for run in directory_at(path).load().runs]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three segments, of which the second is damaged in its middle."""
    path = tmp_path / "journal"
    work(directory_at(path), range(1, 12))
    content = bytearray((path / DAMAGED).read_bytes())
    content[20_000] ^= 4
    (path / DAMAGED).write_bytes(content)
    return path


@pytest.mark.parametrize("mode", ["lost", "sectors"])
@pytest.mark.parametrize("kind", ["create", "write", "sync", "sync_directory"])
def test_damaged_bytes_are_somewhere_whenever_the_power_is_cut(path: Path, kind: str, mode: str) -> None:
    originals = {file.name: file.read_bytes() for file in path.glob("*.mqj")}
    for number in range(1, 30):
        files = FaultyFiles(path, Point(kind, number, mode), number)
        with contextlib.suppress(StorageFault):
            directory_at(path, files, "truncate").load()
        files.leave(mode)
        left = [file.read_bytes() for file in path.iterdir()]
        assert originals[DAMAGED] in left, f"{kind} {number}"
        assert originals[file_name(3)] in left, f"{kind} {number}"
        if not files.is_off:
            break
        put_back(path, originals)
    assert number > 1, "the power was cut at least once"
    assert not files.is_off, "and once it was not"


def test_what_was_given_up_does_not_come_back_behind_what_is_acknowledged_later(path: Path) -> None:
    files = FaultyFiles(path, None, 1)
    work(directory_at(path, files, "truncate"), range(6, 8))
    files.leave("lost")
    assert ids_in(path) == [1, 2, 3, 4, 5, 6, 7]


@pytest.fixture
def trimmed(tmp_path: Path) -> Path:
    """Four segments of which the second was deleted; what says that it could be is in the last one, and damaged."""
    path = tmp_path / "journal"
    work(directory_at(path), range(1, 15))
    (path / file_name(2)).unlink()
    content = bytearray((path / file_name(4)).read_bytes())
    content[100] ^= 4
    (path / file_name(4)).write_bytes(content)
    return path


@pytest.mark.parametrize("mode", ["lost", "sectors", "kill"])
@pytest.mark.parametrize("kind", ["create", "write", "sync", "sync_directory", "rename", "names"])
def test_a_start_that_gave_up_may_end_before_its_first_append(trimmed: Path, kind: str, mode: str) -> None:
    """The next one, which may give up too, goes on; and so does one that may not, if the first one had come to its
    end."""
    originals = {file.name: file.read_bytes() for file in trimmed.iterdir()}
    for number in range(1, 30):
        files = FaultyFiles(trimmed, Point(kind, number, mode), number)
        with contextlib.suppress(StorageFault):
            directory_at(trimmed, files, "truncate").load()
        files.leave(mode)
        on_damage = "truncate" if files.is_off else "stop"
        ids = [run.first_id for run in directory_at(trimmed, None, on_damage).load().runs]
        assert ids == [1, 2, 3, 4, 9, 10, 11, 12]
        work(directory_at(trimmed), range(15, 16))
        assert ids_in(trimmed)[-1] == 15
        assert "journal-forgone" not in [file.name for file in trimmed.iterdir()], "the journal says it by now"
        put_back(trimmed, originals)
        if not files.is_off:
            break
    assert not files.is_off


@pytest.mark.parametrize("left", [b"", b"\0" * 4, b"2 3\n\0\0\0\0", b"1 2\n3"])
def test_a_note_that_is_damaged_is_named_where_a_file_is_missing(trimmed: Path, left: bytes) -> None:
    """The file that it spoke of may be missing for good, and nobody could put it back."""
    directory_at(trimmed, None, "truncate").load()  # and ends before its first append
    note = trimmed / "journal-forgone"
    assert note.read_bytes() == b"2 3\n"
    assert [run.first_id for run in directory_at(trimmed).look().runs] == [1, 2, 3, 4, 9, 10, 11, 12]
    note.write_bytes(left)
    if left.startswith(b"2 3"):
        assert [run.first_id for run in directory_at(trimmed).load().runs] == [1, 2, 3, 4, 9, 10, 11, 12]
        return
    why = (
        f"journal-forgone: it is damaged, and may have said that a start goes on without {file_name(2)}, which is miss"
    )
    for _ in range(2):
        with pytest.raises(Unusable, match=why) as raised:
            directory_at(trimmed).load()
        assert "put back that file, or look at the disk" in raised.value.remedy
    recovered = directory_at(trimmed, None, "truncate").load()
    assert [run.first_id for run in recovered.runs] == [1, 2, 3, 4, 9, 10, 11, 12]
    assert [each.fields["file"] for each in recovered.findings if each.event == "journal-file-missing"] == [
        file_name(2)
    ]
    assert note.read_bytes() == b"2 3\n"
    work(directory_at(trimmed), range(15, 16))
    assert ids_in(trimmed)[-1] == 15
    assert not note.exists()


def test_a_note_that_is_damaged_is_no_fault_where_nothing_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    work(directory_at(path), range(1, 15))
    (path / "journal-forgone").write_bytes(b"")
    assert ids_in(path) == list(range(1, 15))
    directory_at(path).load()
    assert not (path / "journal-forgone").exists()


@pytest.mark.parametrize("mode", ["sectors", "kill"])
@pytest.mark.parametrize("kind", ["rename", "sync_directory"])
def test_files_are_set_aside_from_the_end(tmp_path: Path, kind: str, mode: str) -> None:
    """Else one of them would be missed, and that is nothing that a start may give up."""
    path = tmp_path / "journal"
    work(directory_at(path), range(1, 19))
    content = bytearray((path / DAMAGED).read_bytes())
    content[30] ^= 4
    (path / DAMAGED).write_bytes(content)
    originals = {file.name: file.read_bytes() for file in path.iterdir()}
    for number in range(1, 12):
        files = FaultyFiles(path, Point(kind, number, mode), number)
        with contextlib.suppress(StorageFault):
            directory_at(path, files, "truncate").load()
        files.leave(mode)
        assert [run.first_id for run in directory_at(path, None, "truncate").load().runs] == [1, 2, 3, 4]
        put_back(path, originals)
        if not files.is_off:
            break
    assert not files.is_off


def test_a_file_that_is_missing_later_is_missed(trimmed: Path) -> None:
    directory_at(trimmed, None, "truncate").load()
    (trimmed / file_name(1)).unlink()
    with pytest.raises(StorageFault, match=f"{file_name(2)}: the file is missing"):
        directory_at(trimmed).load()


def test_what_a_start_settled_is_settled_after_a_power_cut(path: Path) -> None:
    """Also where nothing but names changed: the third file, damaged at its head, is set aside."""
    work_on = path / DAMAGED
    content = bytearray(work_on.read_bytes())
    content[20_000] ^= 4
    work_on.write_bytes(content)
    head = bytearray((path / file_name(3)).read_bytes())
    head[30] ^= 4
    (path / file_name(3)).write_bytes(head)
    files = FaultyFiles(path, None, 1)
    directory_at(path, files, "truncate").load()
    before = sorted(file.name for file in path.iterdir())
    files.leave("lost")
    assert sorted(file.name for file in path.iterdir()) == before == [
        file_name(1), file_name(2), file_name(3) + ".damaged-1"
    ]  # fmt: skip


def test_what_was_cut_off_is_wiped_on_disk(tmp_path: Path) -> None:
    """Also where nothing of the file is left that would be written again: its first entry was cut short."""
    path = tmp_path / "journal"
    work(directory_at(path), range(1, 12))
    content = (path / file_name(3)).read_bytes()
    (path / file_name(3)).write_bytes(content[:5_000].ljust(len(content), b"\0"))
    files = FaultyFiles(path, None, 1)
    (cut,) = directory_at(path, files).load().cuts
    assert (cut.segment, cut.offset) == (3, FILE_HEADER_BYTES)
    files.leave("lost")
    assert not any((path / file_name(3)).read_bytes()[FILE_HEADER_BYTES:])


@pytest.mark.parametrize("seed", range(12))
def test_files_made_ahead_go_from_the_end(tmp_path: Path, seed: int) -> None:
    """One that is left, of those before which another is gone, would be taken for the proof of a loss."""
    path = tmp_path / "journal"
    work(directory_at(path), range(1, 4))
    for number in (2, 3, 4):
        ready = directory_at(path).prepare(number, FILE_BYTES)
        directory_at(path).name(ready)
        os.close(ready.fd)
    files = FaultyFiles(path, Point("sync_directory", 2, "sectors"), seed)
    with pytest.raises(StorageFault, match="Input/output error"):
        directory_at(path, files).load()
    files.leave("sectors")
    assert ids_in(path) == [1, 2, 3]
