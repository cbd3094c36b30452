"""What the plan promises one call at a time; the whole of it is in test_model.py."""

from __future__ import annotations

import pytest
from mqbroker.base.errors import Bug, StorageFault
from mqbroker.journal import plan
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import Settle, decode, encode_attributes
from mqbroker.journal.recovered import Recovered

from tests.support.processor import processor_time, yardstick_s

from .disk_image import DiskImage, options, take


def new(**changes: object) -> tuple[Journal, DiskImage]:
    journal = Journal(options(**changes), Recovered())
    disk = DiskImage(journal._options.journal_file_size_bytes)
    journal.declare(1, encode_attributes({"name": "orders"}))
    take(journal, disk)
    return journal, disk


def test_position_is_that_of_the_next_append() -> None:
    journal, disk = new()
    wanted = journal.position
    journal.store(1, 1, (1,), b"x")
    assert journal.position == wanted
    assert take(journal, disk) == wanted
    assert journal.position == wanted + 1


def test_nothing_new_is_no_append() -> None:
    journal, _ = new()
    assert journal.take(sync=True) is None


def test_frames_are_not_copied() -> None:
    journal, _ = new()
    frames = memoryview(bytes(1000))
    journal.store(1, 1, (1,), frames)
    append = journal.take(sync=True)
    assert append is not None
    assert any(chunk is frames for chunk in append.chunks)


def test_neighbours_are_settled_as_one_range_in_whatever_order() -> None:
    journal, _ = new()
    journal.store(1, 100, (1,), b"x")
    assert journal.take(sync=True)
    for first in (50, 1, 51, 3, 2, 60):
        journal.settle(1, first, 1)
    append = journal.take(sync=False)
    assert append is not None
    assert list(decode(memoryview(b"".join(append.chunks)))) == [Settle(1, [(1, 3), (50, 2), (60, 1)])]


def test_settling_what_is_not_there_is_a_bug() -> None:
    journal, disk = new()
    journal.store(1, 2, (1,), b"x")
    take(journal, disk)
    journal.settle(1, 1, 2)
    take(journal, disk)
    journal.settle(1, 1, 1)
    with pytest.raises(Bug, match="queue 1 settled 1 more messages"):
        journal.take(sync=True)


def test_settling_before_anything_was_stored_is_a_bug() -> None:
    journal, _ = new()
    journal.settle(1, 1, 1)
    with pytest.raises(Bug, match="which no journal segment holds"):
        journal.take(sync=True)


def test_a_segment_goes_only_after_its_trim_is_synced() -> None:
    journal, disk = new()
    for number in range(1, 12):
        journal.store(number, 1, (1,), bytes(900))
        take(journal, disk)
    assert len(disk.files) == 3
    journal.settle(1, 1, 4)
    take(journal, disk)
    assert journal.deletable() == []
    append = journal.take(sync=False)
    assert append is not None
    disk.write(append)
    assert journal.deletable() == []
    journal.synced(append.position)
    assert journal.deletable() == [1]
    assert journal.deletable() == []


def test_a_live_message_in_the_oldest_segment_keeps_all_until_compaction_moves_it() -> None:
    journal, disk = new(journal_compact_min_files=3)
    first = 1
    while len(disk.files) < 5:
        journal.store(first, 1, (1,), b"%-900d" % first)
        take(journal, disk)
        first += 1
    journal.settle(1, 2, first - 2)
    take(journal, disk)
    assert journal.deletable() == []
    ranges = journal.compactable()
    assert ranges is not None
    assert any(start <= 1 < start + n for start, n in ranges)
    journal.store(1, 1, (1,), b"%-900d" % 1)
    journal.count(1, 1, 1, 7, 9_000)
    take(journal, disk)
    deleted: list[int] = []
    for _ in range(6):
        assert not journal.compactable()
        deleted += journal.deletable()
        if (append := journal.take(sync=True)) is not None:
            disk.write(append)
            journal.synced(append.position)
    for number in deleted:
        disk.delete(number)
    assert len(disk.files) <= 2
    found = disk.recover()
    assert [(run.first_id, bytes(run.frames).strip()) for run in found.runs] == [(1, b"1")]
    assert [(count.delivery_count, count.due_ms) for count in found.counts] == [(7, 9_000)]
    assert found.next_id == first


def test_compaction_that_loses_a_message_is_a_bug() -> None:
    journal, disk = new()
    for number in range(1, 30):
        journal.store(number, 1, (1,), bytes(900))
        take(journal, disk)
    journal.settle(1, 2, 28)
    take(journal, disk)
    assert journal.compactable()
    journal.consumed(1)
    take(journal, disk)
    with pytest.raises(Bug, match="1 messages of segment 1 were handed out for compaction and not stored again"):
        journal.compactable()


@pytest.mark.option("journal.journal-compact-min-files")
def test_compaction_is_off_without_a_number_of_files() -> None:
    journal, disk = new(journal_compact_min_files=0)
    for number in range(1, 30):
        journal.store(number, 1, (1,), bytes(900))
        take(journal, disk)
    journal.settle(1, 2, 28)
    take(journal, disk)
    assert journal.compactable() is None


@pytest.mark.option("journal.journal-compact-min-files")
@pytest.mark.parametrize(("files_min", "starts"), [(3, True), (50, False)])
def test_compaction_waits_for_enough_files(files_min: int, starts: bool) -> None:
    journal, disk = new(journal_compact_min_files=files_min)
    for number in range(1, 30):
        journal.store(number, 1, (1,), bytes(900))
        take(journal, disk)
    journal.settle(1, 2, 28)
    take(journal, disk)
    assert (journal.compactable() is not None) is starts


@pytest.mark.option("journal.journal-compact-percentage")
@pytest.mark.parametrize(("percentage", "starts"), [(30, False), (70, True)])
def test_compaction_waits_for_enough_garbage(percentage: int, starts: bool) -> None:
    journal, disk = new(journal_compact_percentage=percentage)
    for number in range(1, 30):
        journal.store(number, 1, (1,), bytes(900))
        take(journal, disk)
    journal.settle(1, 2, 14)
    take(journal, disk)
    assert (journal.compactable() is not None) is starts


def test_settled_before_stored_again_is_said_of_the_older_record() -> None:
    journal, disk = new()
    journal.declare(2, encode_attributes({}))
    journal.store(1, 1, (1, 2), b"both")
    take(journal, disk)
    for number in range(2, 30):
        journal.store(number, 1, (1,), bytes(900))
        take(journal, disk)
    journal.settle(1, 2, 28)
    take(journal, disk)
    assert journal.compactable()
    journal.settle(1, 1, 1)
    journal.store(1, 1, (2,), b"both")
    take(journal, disk)
    found = disk.recover()
    assert [run.live for run in found.runs] == [{2: [(1, 1)]}]
    journal.settle(2, 1, 1)
    take(journal, disk)
    assert disk.recover().runs == []


def test_a_queue_id_that_lives_again_has_none_of_the_old_messages() -> None:
    journal, disk = new()
    journal.store(1, 2, (1,), b"old")
    take(journal, disk)
    journal.drop(1)
    take(journal, disk)
    journal.declare(1, encode_attributes({"name": "again"}))
    journal.store(3, 1, (1,), b"new")
    take(journal, disk)
    found = disk.recover()
    assert [(run.first_id, run.live) for run in found.runs] == [(3, {1: [(3, 1)]})]


def test_messages_for_a_queue_that_nothing_declares_are_a_fault() -> None:
    journal, disk = new()
    journal.store(1, 1, (77,), b"lost?")
    take(journal, disk)
    with pytest.raises(StorageFault, match="messages from 1 on are for queue 77"):
        disk.recover()


def test_ten_thousand_queues_fit_into_a_checkpoint() -> None:
    journal, disk = new(journal_file_size_bytes=64 << 10)
    for number in range(2, 10_002):
        journal.declare(number, encode_attributes({"name": f"queue-{number}", "address": f"queue-{number}"}))
    take(journal, disk)
    for number in range(1, 4):
        journal.store(number, 1, (1,), bytes(60_000))
        take(journal, disk)
    found = disk.recover()
    assert len(found.queues) == 10_001
    assert len(found.runs) == 3


def appends_until_idle(journal: Journal, disk: DiskImage) -> int:
    """How many the journal makes by itself, each synced at once."""
    for count in range(100):
        for segment in journal.deletable():
            disk.delete(segment)
        append = journal.take(sync=False)
        if append is None:
            return count
        disk.write(append)
        journal.synced(append.position)
    raise AssertionError("there is always one more")


@pytest.mark.parametrize("queues", range(20, 70))
def test_the_journal_comes_to_rest_however_much_of_a_file_its_checkpoint_fills(queues: int) -> None:
    """What a TRIM in a new file makes unneeded is the file before, of which another one would say so, and so on."""
    journal, disk = new()
    for number in range(2, queues):
        journal.declare(number, encode_attributes({"name": f"queue-{number}" + "x" * 60}))
    take(journal, disk)
    for number in range(1, 20):
        journal.store(number, 1, (1,), bytes(900))
        take(journal, disk)
    assert len(disk.files) >= 4
    journal.settle(1, 1, 19)
    assert 1 <= appends_until_idle(journal, disk) <= 6
    assert len(disk.files) <= 2
    found = disk.recover()
    assert len(found.queues) == queues - 1
    assert not any(run.live for run in found.runs)
    journal.store(20, 1, (1,), b"x")
    journal.settle(1, 20, 1)
    assert appends_until_idle(journal, disk) <= 3
    assert len(disk.files) <= 2


def test_what_a_call_costs() -> None:
    """A loose bound that only a change of the order of magnitude breaks: docs/adr/0002-journal.md has the figures."""
    journal, disk = new(journal_file_size_bytes=64 << 20)
    n = 100_000
    for number in range(1, n + 1, 1000):
        journal.store(number, 1000, (1,), b"x")
    take(journal, disk)
    with processor_time() as seconds:
        for number in range(1, n + 1, 2):
            journal.settle(1, number, 1)
            if number % 1000 == 999:
                journal.take(sync=False)
        took_s = seconds()
    assert took_s < 30 * yardstick_s()
    assert n < plan.COMPACT_IDS_MAX * 1000


def test_what_is_reserved_outlives_the_segment_that_says_so() -> None:
    journal, disk = new(journal_compact_min_files=0)
    journal.reserve(1_000_000)
    take(journal, disk)
    for number in range(1, 20):
        journal.store(number, 1, (1,), bytes(900))
        take(journal, disk)
        journal.settle(1, number, 1)
        take(journal, disk)
        for segment in journal.deletable():
            disk.delete(segment)
    assert 1 not in disk.files
    assert disk.recover().next_id >= 1_000_000
