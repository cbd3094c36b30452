"""Loading a directory: what is done to its files, and what a person is told when they are damaged."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.base.errors import StorageFault, Unusable
from mqbroker.config.declarations.options import defaults
from mqbroker.io.disk.disk import Disk
from mqbroker.io.disk.files import Files
from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.journal.format import FILE_HEADER_BYTES, decode_file_header, file_name
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import encode_attributes

NODE_ID = b"n" * 16
FILE_BYTES = 64 << 10


def directory_at(
    path: Path, on_damage: str = "stop", files: Files | None = None, term: int | None = None
) -> JournalDirectory:
    changes = {"journal_file_size_bytes": FILE_BYTES, "journal_on_damage": on_damage}
    return JournalDirectory(path, NODE_ID, replace(defaults().journal, **changes), files, term)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three segments of one message in each append."""
    directory = directory_at(tmp_path / "journal")
    written(directory, 11)
    return directory.path


def numbers(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def flip(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 4
    file.write_bytes(content)


def test_only_the_owner_may_read(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in path.iterdir())


def test_a_file_that_was_ready_and_not_used_is_removed(path: Path) -> None:
    used = [file_name(1), file_name(2), file_name(3)]
    assert numbers(path) == used, "the end of the node removed its own"
    directory = directory_at(path)
    ready = directory.prepare(4, FILE_BYTES)
    directory.name(ready)
    os.close(directory.prepare(5, FILE_BYTES).fd)
    os.close(ready.fd)
    assert numbers(path) == [*used, file_name(4), file_name(5) + ".unused"]
    looked = directory_at(path).look()
    assert looked.unused == [4]
    assert numbers(path) == [*used, file_name(4), file_name(5) + ".unused"], "to look changes nothing"
    assert directory_at(path).load().last_position == looked.last_position
    assert numbers(path) == used


def test_what_is_not_ours_stays(path: Path) -> None:
    (path / "notes.txt").write_text("mine")
    directory_at(path).load()
    assert (path / "notes.txt").read_text() == "mine"


def test_damage_stops_and_nothing_is_changed(path: Path) -> None:
    flip(path / file_name(2), 20_000)
    before = {file.name: file.read_bytes() for file in path.glob("*.mqj")}
    with pytest.raises(StorageFault, match=r"journal-0000000002\.mqj at byte \d+: .*journal-on-damage") as caught:
        directory_at(path).load()
    assert caught.value.file == str(path / file_name(2))
    assert {file.name: file.read_bytes() for file in path.glob("*.mqj")} == before


def test_truncate_keeps_copies_of_all_that_it_gives_up(path: Path) -> None:
    flip(path / file_name(2), 20_000)
    damaged = (path / file_name(2)).read_bytes()
    later = (path / file_name(3)).read_bytes()
    found = directory_at(path, "truncate").load()
    assert [run.first_id for run in found.runs] == [1, 2, 3, 4, 5]
    assert (path / (file_name(2) + ".damaged-1")).read_bytes() == damaged
    assert (path / (file_name(3) + ".damaged-1")).read_bytes() == later
    assert [notice.event for notice in found.findings] == ["journal-damage-given-up"]
    again = directory_at(path).load()
    assert [run.first_id for run in again.runs] == [1, 2, 3, 4, 5]
    assert not again.findings


class UnreadableFiles(Files):
    def read(self, path: Path) -> bytes:
        if path.name == file_name(2):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return super().read(path)


def test_a_file_that_can_not_be_read_is_named(path: Path) -> None:
    with pytest.raises(StorageFault, match=r"journal-0000000002\.mqj: Input/output error; look at the disk"):
        directory_at(path, files=UnreadableFiles()).load()


def test_a_path_that_is_no_directory_is_named_and_no_start_would_find_another(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("a file")
    with pytest.raises(Unusable, match=f"{tmp_path}/journal: .*; move it away"):
        directory_at(tmp_path / "journal").load()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda file: file.symlink_to("nowhere")])
@pytest.mark.parametrize("on_damage", ["stop", "truncate"])
def test_what_stands_in_the_place_of_a_file_is_named_and_stays(path: Path, make: Any, on_damage: str) -> None:
    """No further start would find anything else, so none is tried."""
    file = path / file_name(2)
    file.unlink()
    make(file)
    with pytest.raises(Unusable, match=r"journal-0000000002\.mqj: Is a .* and no regular file; move it away"):
        directory_at(path, on_damage).load()
    assert numbers(path) == [file_name(1), file_name(2), file_name(3)]


# -- terms -------------------------------------------------------------------------------------------------------------


def written(directory: JournalDirectory, count: int = 9) -> int:
    """A process that goes on with what is there; the term that it found."""
    recovered = directory.load()
    faults: list[StorageFault] = []
    disk = Disk(directory, recovered, lambda item: None, faults.append)
    journal = Journal(directory.options, recovered)
    if not recovered.queues:
        journal.declare(1, encode_attributes({"name": "orders"}))
    for _ in range(count):
        number = journal.next_id
        journal.store(number, 1, (1,), bytes([number]) * 15_000)
        append = journal.take(sync=True)
        assert append is not None
        disk.submit(append)
    assert disk.close()
    assert not faults
    return recovered.term


def headers(path: Path) -> list[tuple[int, int]]:
    """Version and term of each file, in order."""
    found = [decode_file_header(file.read_bytes()[:FILE_HEADER_BYTES]) for file in sorted(path.glob("*.mqj"))]
    return [(header.version, header.term) for header in found if header is not None]


def test_files_have_no_term_unless_one_is_given(path: Path) -> None:
    assert set(headers(path)) == {(1, 0)}
    assert written(directory_at(path)) == 0
    assert set(headers(path)) == {(1, 0)}


def test_files_that_are_begun_say_the_term_and_those_before_stay(path: Path) -> None:
    before = headers(path)
    assert written(directory_at(path, term=6)) == 0
    after = headers(path)
    assert after[: len(before)] == before
    assert after[len(before) :]
    assert set(after[len(before) :]) == {(2, 6)}


@pytest.mark.parametrize(("given", "follows"), [(None, 6), (2, 6), (6, 6), (7, 7)])
def test_a_journal_that_has_a_term_goes_on_in_no_lower_one(path: Path, given: int | None, follows: int) -> None:
    """Also where nobody gives one any more: the next start would refuse what it wrote."""
    written(directory_at(path, term=6))
    before = len(headers(path))
    assert written(directory_at(path, term=given)) == 6
    assert set(headers(path)[before:]) == {(2, follows)}
    assert directory_at(path).load().term == follows
