"""The decision table over all its facts, and files that are torn, flipped, cut short or swapped."""

from __future__ import annotations

import itertools
import random
import zlib
from typing import cast

import pytest
from mqbroker.base.errors import Bug, StorageFault
from mqbroker.base.notice import Level
from mqbroker.journal.damage import TABLE, DamageFacts, DamageVerdict, decide, gather, matches, misplaced
from mqbroker.journal.entry import ENTRY_HEADER_BYTES
from mqbroker.journal.format import (
    FILE_HEADER_BYTES,
    SECTOR_BYTES,
    decode_file_header,
    encode_file_header,
    file_name,
)
from mqbroker.journal.places import Slice
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import encode_attributes
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Recovered

from tests.support.values import replaced

from .disk_image import NODE_ID, DiskImage, options, take

ALL_FACTS = [DamageFacts(*bits) for bits in itertools.product((False, True), repeat=5)]


def verdicts() -> dict[DamageFacts, DamageVerdict]:
    return {facts: next(row for row in TABLE if matches(row, facts)).verdict for facts in ALL_FACTS}


@pytest.mark.parametrize("facts", ALL_FACTS, ids=lambda facts: "".join("NY"[fact] for fact in facts))
def test_every_combination_of_facts_has_exactly_one_row(facts: DamageFacts) -> None:
    rows = [row for row in TABLE if matches(row, facts)]
    assert len(rows) == 1
    if rows[0].verdict is DamageVerdict.IMPOSSIBLE:
        with pytest.raises(Bug):
            decide(facts)
    else:
        assert decide(facts) is rows[0]


def test_what_was_proven_to_be_on_disk_is_never_cut() -> None:
    for facts, verdict in verdicts().items():
        if facts.is_covered or not facts.is_last or not facts.is_torn:
            assert verdict is not DamageVerdict.CUT


def test_no_row_is_useless() -> None:
    for row in TABLE:
        assert any(matches(row, facts) for facts in ALL_FACTS), row


class Image:
    """One segment with two acknowledged entries, then a group of three that were written together."""

    def __init__(self, body: bytes = b"\x55") -> None:
        self.disk = DiskImage(16384)
        self.journal = Journal(options(journal_file_size_bytes=16384), Recovered())
        self.journal.declare(1, encode_attributes({"name": "orders"}))
        self.next_id = 1
        for size in (100, 600):
            self.store(size, body)
        self.synced = self.journal.position - 1
        for size in (700, 30, 900):
            self.store(size, body, self.synced)

    def store(self, size: int, body: bytes, watermark: int | None = None) -> None:
        self.journal.store(self.next_id, 1, (1,), body * size)
        append = self.journal.take(sync=True)
        assert append is not None
        self.disk.write(append, watermark)
        self.next_id += 1

    @property
    def buffer(self) -> bytearray:
        return self.disk.files[1]

    def entry(self, number: int) -> tuple[int, int]:
        """(offset, end), counted from the first entry."""
        return self.disk.entries[number][1:3]

    def facts(self, number: int, is_last: bool = True) -> DamageFacts:
        header = decode_file_header(bytes(self.buffer))
        assert header is not None
        return gather(
            bytes(self.buffer), self.entry(number)[0], header.seed, (self.disk.entries[number][3] - 1, is_last)
        )

    def zero(self, start: int, stop: int) -> None:
        self.buffer[start:stop] = bytes(stop - start)


def test_facts_of_a_flipped_bit_that_a_later_entry_covers() -> None:
    image = Image()
    image.buffer[image.entry(0)[0] + 50] ^= 1
    assert image.facts(0) == DamageFacts(False, True, False, True, True)


def test_facts_of_a_flipped_bit_in_the_last_group() -> None:
    image = Image()
    image.buffer[image.entry(2)[0] + 50] ^= 1
    assert image.facts(2) == DamageFacts(False, True, False, True, False)
    image.zero(image.entry(3)[0], len(image.buffer))
    assert image.facts(2) == DamageFacts(False, True, False, False, False)


def test_a_header_that_is_gone_while_the_rest_of_its_sector_is_there_is_not_torn() -> None:
    """A disk writes sectors whole."""
    image = Image()
    offset, end = image.entry(4)
    assert offset + ENTRY_HEADER_BYTES < (offset // SECTOR_BYTES + 1) * SECTOR_BYTES < end
    image.zero(offset, offset + ENTRY_HEADER_BYTES)
    assert image.facts(4) == DamageFacts(False, True, False, False, False)


@pytest.mark.parametrize("missing_bytes", [1, 100])
def test_an_entry_that_ends_behind_its_file_is_not_torn(missing_bytes: int) -> None:
    """Files are as long as they will ever be before anything is written into them: somebody has cut this one."""
    image = Image()
    _, end = image.entry(4)
    del image.buffer[end - missing_bytes :]
    assert image.facts(4) == DamageFacts(False, True, False, False, False)


def test_a_mapping_is_not_searched_by_its_own_means() -> None:
    """Which would look behind its end: a view has the same bytes, and no such means."""
    image = Image()
    offset = image.entry(0)[0]
    image.buffer[offset + 50] ^= 1
    header = decode_file_header(bytes(image.buffer))
    assert header is not None
    view = cast(bytes, memoryview(bytes(image.buffer)))
    assert gather(view, offset, header.seed, (image.disk.entries[0][3] - 1, True)) == image.facts(0)
    third = image.disk.entries[2]
    assert misplaced(view, 0, [header.seed], third[3]) == third[1]
    assert misplaced(view, third[1] + 1, [header.seed], third[3]) is None


def test_facts_of_lost_sectors() -> None:
    image = Image()
    offset, end = image.entry(4)
    image.zero(offset // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES, end)
    assert image.facts(4) == DamageFacts(False, True, True, False, False)
    image = Image()
    offset, end = image.entry(2)
    sector = (offset // SECTOR_BYTES + 1) * SECTOR_BYTES
    image.zero(offset, sector)
    assert image.facts(2) == DamageFacts(False, True, True, True, False)
    assert image.facts(2, is_last=False) == DamageFacts(False, False, True, True, False)


def test_facts_of_a_write_that_never_happened() -> None:
    image = Image()
    image.zero(image.entry(2)[0], len(image.buffer))
    assert image.facts(2) == DamageFacts(True, True, False, False, False)


def live_ids(found: Recovered) -> list[int]:
    return [first + i for first, n, _ in found.queue_contents().get(1, []) for i in range(n)]


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"\x55", b"\0"], ids=["full", "zeros"])
def test_a_flip_of_any_bit_is_a_fault_that_names_the_place(body: bytes) -> None:
    image = Image(body)
    starts = [0, *(entry[1] for entry in image.disk.entries)]
    for offset in range(image.entry(4)[1]):
        bit = 1 << (offset % 8)
        image.buffer[offset] ^= bit
        with pytest.raises(StorageFault) as caught:
            recover([(1, bytes(image.buffer))], NODE_ID)
        assert caught.value.file == file_name(1)
        assert caught.value.offset == max(start for start in starts if start <= offset)
        image.buffer[offset] ^= bit
    assert live_ids(recover([(1, bytes(image.buffer))], NODE_ID)) == [1, 2, 3, 4, 5]


def test_any_set_of_lost_sectors_of_the_last_group_is_cut_to_whole_entries() -> None:
    image = Image()
    first, last = image.entry(2)[0], image.entry(4)[1]
    whole = bytes(image.buffer)
    sectors = range(first // SECTOR_BYTES, (last - 1) // SECTOR_BYTES + 1)
    for lost in itertools.product((False, True), repeat=len(sectors)):
        image.buffer[:] = whole
        for sector, is_lost in zip(sectors, lost, strict=True):
            if is_lost:
                image.zero(max(first, sector * SECTOR_BYTES), (sector + 1) * SECTOR_BYTES)
        check_prefix(image, whole)


@pytest.mark.slow
def test_a_last_group_cut_at_any_byte_is_cut_to_whole_entries() -> None:
    image = Image()
    first, last = image.entry(2)[0], image.entry(4)[1]
    whole = bytes(image.buffer)
    for stop in range(first, last + 1):
        image.buffer[:] = whole
        image.zero(stop, last)
        check_prefix(image, whole)


def check_prefix(image: Image, whole: bytes) -> None:
    """Acknowledged entries and a whole number of others are there; what is left of the file takes new entries."""
    found = image.disk.recover()
    ids = live_ids(found)
    assert ids == list(range(1, len(ids) + 1))
    assert len(ids) >= 2
    end = image.entry(len(ids) - 1)[1]
    assert image.buffer[:end] == whole[:end]
    assert not any(image.buffer[end:])
    assert found.segments[-1].used_bytes == end
    if len(ids) < 5:
        assert image.buffer == whole or not found.was_clean


@pytest.mark.parametrize("shift", [-2, -1, 1, 3])
def test_an_acknowledged_write_that_the_disk_has_put_elsewhere_is_no_torn_one(shift: int) -> None:
    """Sectors of the last write, which was acknowledged, lie before or behind their place."""
    image = Image()
    image.zero(image.entry(2)[1], len(image.buffer))
    offset, end = image.entry(2)[:2]
    start, stop = offset // SECTOR_BYTES * SECTOR_BYTES, -(-end // SECTOR_BYTES) * SECTOR_BYTES
    sectors = bytes(image.buffer[start:stop])
    image.zero(offset, len(image.buffer))
    image.buffer[start + shift * SECTOR_BYTES : stop + shift * SECTOR_BYTES] = sectors
    with pytest.raises(StorageFault):
        recover([(1, bytes(image.buffer))], NODE_ID)


def test_a_write_that_the_disk_has_put_into_the_file_made_ahead_is_found_there() -> None:
    disk, _ = three_segments()
    _, offset, end, position = disk.entries[-1]
    disk.new_file(4)
    disk.files[4][1024 : 1024 + end - offset] = disk.files[3][offset:end]
    disk.files[3][offset:end] = bytes(end - offset)
    why = f"{file_name(4)} at byte 1024: entry {position} lies here and belongs elsewhere"
    with pytest.raises(StorageFault, match=why):
        disk.recover()
    assert live_ids(disk.recover("truncate")) == list(range(1, 10))


def test_a_file_of_zeros_before_one_with_entries_is_damage() -> None:
    """Also the first one, before which no position is known."""
    disk, _ = three_segments()
    disk.files[1][FILE_HEADER_BYTES:] = bytes(len(disk.files[1]) - FILE_HEADER_BYTES)
    with pytest.raises(StorageFault, match=f"{file_name(1)} at byte 64: nothing is written here"):
        disk.recover()


def test_an_entry_in_the_place_of_the_first_one_is_damage_and_no_other_release() -> None:
    image = Image()
    offset, end = image.entry(1)[:2]
    image.buffer[FILE_HEADER_BYTES : FILE_HEADER_BYTES + end - offset] = image.buffer[offset:end]
    with pytest.raises(StorageFault, match="does not begin the file") as caught:
        recover([(1, bytes(image.buffer))], NODE_ID)
    assert "truncate" in caught.value.remedy


def test_a_cut_tail_is_told_and_then_forgotten() -> None:
    image = Image()
    image.zero(image.entry(4)[1] - 40, image.entry(4)[1])
    found = image.disk.recover()
    assert [notice.event for notice in found.findings] == ["journal-tail-cut"]
    assert found.findings[0].fields["offset"] == image.entry(4)[0]
    journal = Journal(options(), found)
    take(journal, image.disk)
    again = image.disk.recover()
    assert not again.findings
    assert live_ids(again) == [1, 2, 3, 4]


def three_segments() -> tuple[DiskImage, Journal]:
    disk = DiskImage()
    journal = Journal(options(journal_compact_min_files=0), Recovered())
    journal.declare(1, encode_attributes({}))
    for number in range(1, 11):
        journal.store(number, 1, (1,), bytes([number]) * 900)
        take(journal, disk)
    assert sorted(disk.files) == [1, 2, 3]
    return disk, journal


def segments(count: int) -> DiskImage:
    """Full ones of three messages or four each, and one that two were written to."""
    disk = DiskImage()
    journal = Journal(options(journal_compact_min_files=0), Recovered())
    journal.declare(1, encode_attributes({}))
    number = 0
    while len(disk.files) < count or len([entry for entry in disk.entries if entry[0] == count]) < 2:
        number += 1
        journal.store(number, 1, (1,), bytes([number]) * 900)
        take(journal, disk)
    return disk


def test_a_torn_tail_before_a_later_segment_is_damage() -> None:
    disk, _ = three_segments()
    _, offset, end, _ = [entry for entry in disk.entries if entry[0] == 2][-1]
    disk.files[2][offset + 100 : end] = bytes(end - offset - 100)
    with pytest.raises(StorageFault, match=rf"{file_name(2)} at byte {offset}"):
        disk.recover()


def test_entries_that_vanished_at_the_end_of_a_segment_are_missed() -> None:
    disk, _ = three_segments()
    _, offset, end, _ = [entry for entry in disk.entries if entry[0] == 2][-1]
    disk.files[2][offset:end] = bytes(end - offset)
    with pytest.raises(StorageFault, match=rf"{file_name(3)} at byte 64: entry \d+ follows entry \d+"):
        disk.recover()


@pytest.mark.parametrize("missing", [1, 2])
@pytest.mark.parametrize("on_damage", ["stop", "truncate"])
def test_a_missing_file_is_a_fault_whatever_was_told(missing: int, on_damage: str) -> None:
    disk, _ = three_segments()
    disk.delete(missing)
    with pytest.raises(StorageFault, match=f"{file_name(missing)}: the file is missing"):
        disk.recover(on_damage)


def test_a_missing_file_below_the_trim_is_fine() -> None:
    disk, journal = three_segments()
    journal.settle(1, 1, 8)
    take(journal, disk)
    assert journal.deletable() == []
    take(journal, disk)
    assert journal.deletable() == [1, 2]
    for gone in ((1,), (2,), (1, 2)):
        copy = {number: bytes(buffer) for number, buffer in disk.files.items() if number not in gone}
        found = recover(sorted(copy.items()), NODE_ID)
        assert live_ids(found) == [9, 10]
        assert found.obsolete == [number for number in (1, 2) if number not in gone]
        assert Journal(options(), found).deletable() == found.obsolete


def test_an_old_data_directory_put_back_lacks_its_newest_file() -> None:
    disk, _ = three_segments()
    found = recover([(number, bytes(disk.files[number])) for number in (1, 2)], NODE_ID)
    assert found.last_position < disk.entries[-1][3]  # a prefix of history can't be told from the whole of an older one


def test_files_in_each_others_place_are_refused() -> None:
    disk, _ = three_segments()
    with pytest.raises(StorageFault, match=f"by its header it is {file_name(3)}"):
        recover([(1, bytes(disk.files[1])), (2, bytes(disk.files[3])), (3, bytes(disk.files[2]))], NODE_ID)


def test_another_nodes_file_is_refused_with_both_ids() -> None:
    disk, _ = three_segments()
    with pytest.raises(StorageFault, match=rf"written by node {NODE_ID.hex()}, this is node {(b'x' * 16).hex()}"):
        recover([(1, bytes(disk.files[1]))], b"x" * 16, "truncate")


def test_an_unknown_format_version_is_refused_with_both_numbers() -> None:
    disk, _ = three_segments()
    raw = bytearray(disk.files[1])
    raw[9] = 7
    raw[60:64] = zlib.crc32(raw[:60]).to_bytes(4, "big")
    with pytest.raises(StorageFault, match="format version 7, this release reads versions 1 and 2"):
        recover([(1, bytes(raw))], NODE_ID, "truncate")


@pytest.mark.parametrize("length", [0, 10, 63, 64, 500, 4095, 5000])
def test_a_file_of_another_length_is_refused(length: int) -> None:
    disk, _ = three_segments()
    raw = bytes(disk.files[3])[:length].ljust(length, b"\0")
    with pytest.raises(StorageFault):
        recover([(1, bytes(disk.files[1])), (2, bytes(disk.files[2])), (3, raw)], NODE_ID)


def test_no_journal_at_all_is_a_new_one() -> None:
    found = recover([], NODE_ID)
    assert (found.last_position, found.next_id, found.boot, found.was_clean) == (0, 1, 0, True)


def test_what_was_made_ahead_and_not_used_is_passed_over() -> None:
    disk, journal = three_segments()
    disk.new_file(4)
    disk.new_file(5)
    found = disk.recover()
    assert found.unused == [4, 5]
    assert live_ids(found) == list(range(1, 11))
    journal = Journal(options(), found)
    take(journal, disk)
    assert disk.entries[-1][0] == 3
    assert disk.recover().boot == 2


@pytest.mark.parametrize("on_damage", ["stop", "truncate"])
@pytest.mark.parametrize(("missing", "ahead"), [((3,), (4,)), ((2, 3), (4,)), ((4,), (5,)), ((1, 2, 3), (4,))])
def test_a_missing_last_file_is_missed_where_one_was_made_after_it(
    missing: tuple[int, ...], ahead: tuple[int, ...], on_damage: str
) -> None:
    disk, _ = three_segments()
    for number in range(4, ahead[0] + 1):
        disk.new_file(number)
    for number in missing:
        disk.delete(number)
    with pytest.raises(StorageFault, match=f"{file_name(missing[0])}: the file is missing: {file_name(ahead[0])}"):
        disk.recover(on_damage)


def test_a_new_journal_may_consist_of_files_made_ahead() -> None:
    disk = DiskImage()
    disk.new_file(1)
    disk.new_file(2)
    assert disk.recover().unused == [1, 2]


@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_file_is_told_of_where_what_may_explain_it_was_given_up(missing: int) -> None:
    """Its TRIM record may have been in what was given up, so this does not stop the node."""
    disk, _ = three_segments()
    disk.delete(missing)
    disk.files[3][disk.entries[-1][1] + 50] ^= 1
    found = disk.recover("truncate")
    assert [(notice.level, notice.event, notice.fields["file"]) for notice in found.findings] == [
        (Level.ERROR, "journal-damage-given-up", file_name(3)),
        (Level.ERROR, "journal-file-missing", file_name(missing)),
    ]


def test_positions_go_on_behind_a_gap_of_which_the_next_file_was_given_up_from_its_head() -> None:
    disk, _ = three_segments()
    disk.delete(2)
    disk.files[3][FILE_HEADER_BYTES + 40] ^= 1
    found = disk.recover("truncate")
    last = max(position for number, *_, position in disk.entries if number == 1)
    assert found.last_position == last
    journal = Journal(options(), found)
    take(journal, disk)
    assert disk.recover().last_position == last + 1


def deleted(disk: DiskImage, *numbers: int) -> DiskImage:
    for number in numbers:
        disk.delete(number)
    return disk


def gone_on(disk: DiskImage) -> Journal:
    """A start that gives up what is damaged, and its first append."""
    journal = Journal(options(journal_compact_min_files=0), disk.recover("truncate"))
    journal.deletable()
    take(journal, disk)
    return journal


@pytest.mark.parametrize("missing", [(1,), (2,), (1, 2), (3,), (2, 4), (2, 3)])
def test_later_starts_go_on_without_files_that_a_start_went_on_without(missing: tuple[int, ...]) -> None:
    """Live messages lie before and behind them, so no TRIM record will say that they are not needed."""
    disk = deleted(segments(5), *missing)
    disk.files[5][disk.entries[-1][1] + 50] ^= 1
    gone_on(disk)
    kept = live_ids(disk.recover())
    assert kept
    journal = Journal(options(), disk.recover())
    take(journal, disk)
    assert live_ids(disk.recover()) == kept


@pytest.mark.parametrize(
    ("missing", "damaged", "is_gapless"),
    [((), 3, True), ((1,), 3, False), ((2,), 3, False), ((3,), 5, False), ((1, 2), 3, False)],
)
def test_whether_all_files_are_there_is_a_matter_of_the_start_that_went_on_without_them(
    missing: tuple[int, ...], damaged: int, is_gapless: bool
) -> None:
    """What is numbered after it does not depend on what was in them."""
    disk = deleted(segments(damaged), *missing)
    disk.files[damaged][disk.entries[-1][1] + 50] ^= 1
    found = disk.recover("truncate")
    assert found.is_gapless is is_gapless
    take(Journal(options(journal_compact_min_files=0), found), disk)
    assert disk.recover().is_gapless


@pytest.mark.parametrize("lost", [1, 3, 4])
def test_what_is_missing_later_is_missed(lost: int) -> None:
    disk = deleted(segments(5), 2)
    disk.files[5][disk.entries[-1][1] + 50] ^= 1
    gone_on(disk)
    disk.delete(lost)
    with pytest.raises(StorageFault, match=r"the file is missing|what was between them is gone"):
        disk.recover()


def test_a_number_that_was_missing_and_is_written_again_is_missed_when_it_is_gone() -> None:
    """What lay behind the missing file was set aside, so the next file has the number of the one that was missing."""
    disk = deleted(segments(3), 2)
    disk.files[3][30] ^= 1
    journal = gone_on(disk)
    for number in range(20, 30):
        journal.store(number, 1, (1,), bytes(1000))
        take(journal, disk)
    assert sorted(disk.files)[:3] == [1, 2, 3]
    disk.delete(2)
    with pytest.raises(StorageFault, match="the file is missing"):
        disk.recover()


def test_places_behind_a_file_that_is_missing_are_found() -> None:
    disk = deleted(segments(5), 2)
    disk.files[5][disk.entries[-1][1] + 50] ^= 1
    journal = gone_on(disk)
    for segment in (1, 3, 4, 5):
        journal.pin(Slice(segment, 64, 10, 0), 1)
    with pytest.raises(Bug, match="journal segment 2 is not where it should be"):
        journal.pin(Slice(2, 64, 10, 0), 1)


def test_a_torn_tail_before_a_file_made_ahead_is_cut() -> None:
    disk, _ = three_segments()
    disk.new_file(4)
    _, offset, end, _ = disk.entries[-1]
    disk.files[3][offset + 100 : end] = bytes(end - offset - 100)
    found = disk.recover()
    assert [(cut.segment, cut.offset) for cut in found.cuts] == [(3, offset)]
    assert live_ids(found) == list(range(1, 10))


def test_before_a_file_made_ahead_unproven_entries_are_written_again() -> None:
    disk, _ = three_segments()
    expected = disk.recover().unproven
    assert expected is not None
    disk.new_file(4)
    assert disk.recover().unproven == expected


def test_a_file_of_zeros_between_others_is_no_file_made_ahead() -> None:
    disk, _ = three_segments()
    disk.files[2][FILE_HEADER_BYTES:] = bytes(len(disk.files[2]) - FILE_HEADER_BYTES)
    with pytest.raises(StorageFault, match=f"{file_name(2)} at byte 64: nothing is written here"):
        disk.recover()


def test_a_file_made_ahead_belongs_to_this_node_and_place() -> None:
    disk, _ = three_segments()
    disk.new_file(4)
    disk.files[4][30] ^= 1
    with pytest.raises(StorageFault, match=rf"{file_name(4)} at byte 0: its header is damaged"):
        disk.recover()


def test_an_entry_of_the_same_file_at_another_place_is_not_taken_for_a_later_one() -> None:
    """A misdirected write put an older entry behind the end: it proves nothing and is not skipped either."""
    image = Image()
    offset, end = image.entry(0)
    behind = image.entry(4)[1]
    image.buffer[behind : behind + end - offset] = image.buffer[offset:end]
    with pytest.raises(StorageFault, match=f"byte {behind}"):
        image.disk.recover()


def test_a_journal_file_sent_as_a_message_does_not_confuse_recovery() -> None:
    image = Image()
    foreign = DiskImage(16384)
    foreign.new_file(9)
    other = Journal(options(), Recovered())
    other._position = 10_000
    append = other.take(sync=True)
    assert append is not None
    foreign.write(replaced(append, segment=9), watermark=99_999)
    image.journal.store(6, 1, (1,), bytes(foreign.files[9][:2000]) + b"\x55" * 1000)
    append = image.journal.take(sync=True)
    assert append is not None
    image.disk.write(append, image.synced)
    offset, end = image.entry(5)
    image.zero(offset + 2600, end)
    assert image.facts(5) == DamageFacts(False, True, True, False, False)


@pytest.mark.parametrize("seed", range(20))
def test_truncate_keeps_everything_before_the_damage_and_names_the_rest(seed: int) -> None:
    chance = random.Random(seed)
    disk, _ = three_segments()
    number = chance.choice((1, 2, 3))
    entries = [entry for entry in disk.entries if entry[0] == number]
    offset = chance.randrange(0, entries[-1][2])
    disk.files[number][offset] ^= 0x10
    with pytest.raises(StorageFault, match="journal-on-damage"):
        disk.recover()
    found = disk.recover("truncate")
    kept = [entry for entry in disk.entries if entry[0] < number or (entry[0] == number and entry[2] <= offset)]
    if offset < FILE_HEADER_BYTES:
        kept = [entry for entry in disk.entries if entry[0] < number]
    assert found.last_position == len(kept)
    assert not found.was_clean
    assert [notice.event for notice in found.findings] == ["journal-damage-given-up"]
    assert found.set_aside == ([] if any(e[0] == number for e in kept) else [number]) + list(range(number + 1, 4))
    assert all(cut.is_damage for cut in found.cuts)
    journal = Journal(options(), found)
    take(journal, disk)
    assert disk.recover().boot == found.boot + 1


def test_a_header_of_a_file_reads_back() -> None:
    header = decode_file_header(encode_file_header(7, 4096, NODE_ID))
    assert header is not None
    assert header[:4] == (1, 7, 4096, NODE_ID)
