"""Headers of segment files: of two versions, of which the second says the term, and the first is what it always was."""

from __future__ import annotations

from zlib import crc32

import pytest
from mqbroker.base.errors import Bug, StorageFault, Unusable
from mqbroker.base.term import TERM_MAX
from mqbroker.journal.format import (
    FILE_HEADER_BYTES,
    FORMAT_VERSION,
    TERM_VERSION,
    decode_file_header,
    encode_file_header,
)
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import encode_attributes
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Recovered

from .disk_image import NODE_ID, DiskImage, options, take


def test_without_a_term_every_byte_is_that_of_earlier_releases() -> None:
    header = encode_file_header(7, 4096, bytes(range(16)))
    assert header.hex() == (
        "4d514f50534a4e4c" "0001" "0000" "00000000" "0000000000000007" "0000000000001000"
        "000102030405060708090a0b0c0d0e0f" "000000000000000000000000" "9b5ff0a6"
    )  # fmt: skip


@pytest.mark.parametrize("term", [0, 1, 7, TERM_MAX])
def test_a_term_comes_back_and_is_of_version_2(term: int) -> None:
    found = decode_file_header(encode_file_header(7, 4096, NODE_ID, term))
    assert found is not None
    assert (found.version, found.term, found.segment, found.size_bytes) == (TERM_VERSION, term, 7, 4096)


def test_version_1_has_no_term() -> None:
    found = decode_file_header(encode_file_header(7, 4096, NODE_ID))
    assert found is not None
    assert (found.version, found.term) == (FORMAT_VERSION, 0)


def test_nor_has_it_one_where_its_bytes_are_not_those_that_we_wrote() -> None:
    header = bytearray(encode_file_header(7, 4096, NODE_ID, 5))
    header[8:10] = FORMAT_VERSION.to_bytes(2, "big")
    header[-4:] = crc32(header[:-4]).to_bytes(4, "big")
    found = decode_file_header(bytes(header))
    assert found is not None
    assert (found.version, found.term) == (FORMAT_VERSION, 0)


def test_files_of_two_terms_are_told_apart_by_their_seeds() -> None:
    """So an entry of one is never taken for one of the other, though node, number and position are the same."""
    seeds = [decode_file_header(encode_file_header(7, 4096, NODE_ID, term)) for term in (None, 0, 1, 2)]
    assert len({found.seed for found in seeds if found is not None}) == 4


@pytest.mark.parametrize("bit", range(8 * FILE_HEADER_BYTES))
def test_no_flipped_bit_makes_another_term(bit: int) -> None:
    header = bytearray(encode_file_header(7, 4096, NODE_ID, 5))
    header[bit // 8] ^= 1 << bit % 8
    assert decode_file_header(bytes(header)) is None


# -- several files -----------------------------------------------------------------------------------------------------


def life(disk: DiskImage, found: Recovered, term: int | None, count: int = 3) -> Recovered:
    """A process that begins files in this term, each with a message."""
    disk.term = term
    journal = Journal(options(), found)
    if not found.queues:
        journal.declare(1, encode_attributes({"name": "orders"}))
    take(journal, disk)
    for _ in range(count):
        journal.store(journal.next_id, 1, [1], bytes(3000))
        take(journal, disk)
    return disk.recover()


@pytest.mark.parametrize(
    ("terms", "version"),
    [((None, None), 1), ((None, 0), 2), ((0, None), 2), ((None, 4), 2), ((2, 2), 2), ((2, 9), 2), ((0, TERM_MAX), 2)],
)
def test_a_journal_holds_files_of_both_versions(terms: tuple[int | None, ...], version: int) -> None:
    disk, found = DiskImage(), Recovered()
    for term in terms:
        found = life(disk, found, term)
    assert (found.term, found.format_version) == (max(term or 0 for term in terms), version)
    assert sum(run.count for run in found.runs) == 6
    assert found.findings == []


@pytest.mark.parametrize("on_damage", ["stop", "truncate"])
@pytest.mark.parametrize("terms", [(2, 1), (2, 0), (1, None)])
def test_a_term_that_goes_back_is_of_another_history(terms: tuple[int, int | None], on_damage: str) -> None:
    disk = DiskImage()
    found = life(disk, Recovered(), terms[0])
    why = f"it was begun in term {terms[1] or 0}, and a file before it in term {terms[0]}"
    with pytest.raises(StorageFault, match=why):
        life(disk, found, terms[1])
    files = [(number, bytes(content)) for number, content in sorted(disk.files.items())]
    with pytest.raises(Unusable, match="put back the missing file or a backup"):
        recover(files, NODE_ID, on_damage)


def test_a_file_to_which_nothing_was_written_gives_no_term() -> None:
    """It is removed, so the next start would know nothing of it; nothing was done in that term."""
    disk = DiskImage()
    life(disk, Recovered(), 3)
    disk.term = 4
    disk.new_file(max(disk.files) + 1)
    assert [disk.recover().term for _ in range(2)] == [3, 3]


@pytest.mark.parametrize("place", [0, FILE_HEADER_BYTES])
def test_a_file_that_is_set_aside_gives_no_term_either(place: int) -> None:
    """The next start knows nothing of it: who had told others of its term would be of the one before then."""
    disk = DiskImage()
    life(disk, life(disk, Recovered(), 3), 4, count=1)
    damaged = max(disk.files)
    disk.files[damaged][place : place + 32] = bytes([7]) * 32
    files = [(number, bytes(content)) for number, content in sorted(disk.files.items())]
    found = recover(files, NODE_ID, "truncate")
    assert (found.set_aside, found.term) == ([damaged], 3)
    assert recover(files[:-1], NODE_ID).term == 3


def test_but_one_of_another_history_is_refused_there_too() -> None:
    disk = DiskImage()
    life(disk, Recovered(), 3)
    disk.term = 2
    disk.new_file(max(disk.files) + 1)
    with pytest.raises(StorageFault, match="begun in term 2, and a file before it in term 3"):
        disk.recover()


@pytest.mark.parametrize("term", [-1, TERM_MAX + 1, 2**64 - 1, 2**64])
def test_no_file_is_begun_in_a_term_that_no_node_could_be_told_of(term: int) -> None:
    with pytest.raises(Bug, match="is not from 0 to"):
        encode_file_header(7, 4096, NODE_ID, term)


@pytest.mark.parametrize("term", [TERM_MAX + 1, 2**64 - 1])
def test_nor_is_one_read(term: int) -> None:
    disk = DiskImage()
    life(disk, Recovered(), 3)
    first = min(disk.files)
    header = bytearray(encode_file_header(first, 4096, NODE_ID, 3))
    header[48:56] = term.to_bytes(8, "big")
    header[-4:] = crc32(header[:-4]).to_bytes(4, "big")
    disk.files[first][:FILE_HEADER_BYTES] = header
    with pytest.raises(StorageFault, match=f"begun in term {term}, and terms end at"):
        disk.recover()


def test_a_later_version_is_refused() -> None:
    disk = DiskImage()
    life(disk, Recovered(), None)
    first = min(disk.files)
    header = bytearray(encode_file_header(first, 4096, NODE_ID, 1))
    header[8:10] = (3).to_bytes(2, "big")
    header[-4:] = crc32(header[:-4]).to_bytes(4, "big")
    disk.files[first][:FILE_HEADER_BYTES] = header
    with pytest.raises(StorageFault, match="format version 3, this release reads versions 1 and 2"):
        disk.recover()
