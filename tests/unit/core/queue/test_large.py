"""When files of large messages may go: with the append that settled their last message, and not one earlier."""

from __future__ import annotations

from mqbroker.core.queue.large import LargeFiles
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Recovered
from mqbroker.wire.large import large_run
from mqbroker.wire.large_file import Large
from mqbroker.wire.sections import build_message

from tests.support.stage import options_with

SIZE_BYTES = 5000


def stored(journal: Journal, files: LargeFiles, count: int = 1) -> int:
    """A file that the journal knows, in so many queues; nobody else holds it."""
    file = files.begin()
    run = large_run(build_message("", durable=True), Large(file, SIZE_BYTES))
    for _ in range(count):
        files.hold(file)
    files.stored(run)
    files.release(file)
    take(journal)
    return file


def take(journal: Journal) -> int:
    """One append of what there is."""
    journal.reserve(journal.next_id)
    append = journal.take(sync=True)
    assert append is not None
    return append.position


def synced(journal: Journal, files: LargeFiles, position: int) -> None:
    journal.synced(position)
    files.synced(position)


def test_a_file_goes_with_the_append_that_settled_it() -> None:
    journal = Journal(options_with().journal, Recovered())
    files, gone = LargeFiles(journal), list[int]()
    files.delete = gone.append
    first, second = stored(journal, files), stored(journal, files, 2)
    before = take(journal)
    synced(journal, files, before)
    journal.reserve(journal.next_id)
    files.settle(first)
    files.settle(second)
    settled_first = take(journal)
    journal.reserve(journal.next_id)
    files.settle(second)
    settled_second = take(journal)
    assert (settled_first, settled_second) == (before + 1, before + 2)
    assert gone == []
    synced(journal, files, before)
    assert gone == []
    synced(journal, files, settled_first)
    assert gone == [first]
    synced(journal, files, settled_second)
    assert gone == [first, second]


def test_one_that_is_settled_while_others_are_on_their_way_waits_for_its_own_append() -> None:
    journal = Journal(options_with().journal, Recovered())
    files, gone = LargeFiles(journal), list[int]()
    files.delete = gone.append
    file = stored(journal, files)
    synced(journal, files, take(journal))
    journal.reserve(journal.next_id)
    files.settle(file)
    assert gone == []
    assert (journal.synced_position, journal.latest_position) == (2, 3)


def test_one_that_is_read_beyond_that_append_goes_with_its_reader() -> None:
    """There may be no further append for long, and the room on the disk is wanted."""
    journal = Journal(options_with().journal, Recovered())
    files, gone = LargeFiles(journal), list[int]()
    files.delete = gone.append
    file = stored(journal, files)
    files.hold(file)
    journal.reserve(journal.next_id)
    files.settle(file)
    position = take(journal)
    synced(journal, files, position)
    assert gone == []
    files.release(file)
    assert gone == [file]


def test_one_that_the_journal_does_not_know_goes_with_its_last_holder() -> None:
    journal = Journal(options_with().journal, Recovered())
    files, gone = LargeFiles(journal), list[int]()
    files.delete = gone.append
    file = files.begin()
    files.hold(file)
    files.settle(file)
    assert gone == []
    files.release(file)
    assert gone == [file]
