"""Ids of duplicate detection in the journal: none is lost with a segment, and none keeps segments for ever."""

from __future__ import annotations

import pytest
from mqbroker.journal.duplicates import FREED_SHARE, MOVED_MAX
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import encode_attributes
from mqbroker.journal.recovered import Recovered

from .disk_image import DiskImage, options


class Life:
    """A journal with one queue, its deletions carried out."""

    def __init__(self, **changes: int) -> None:
        self.disk = DiskImage()
        self.options = options(**changes)
        self.journal = Journal(self.options, Recovered())
        self.journal.declare(1, encode_attributes({"name": "orders"}))
        self.next_id = 1
        self.sizes: list[int] = []
        self.step()

    def step(self) -> None:
        for number in self.journal.deletable():
            self.disk.delete(number)
        append = self.journal.take(sync=True)
        if append is not None:
            self.disk.write(append)
            self.sizes.append(append.size_bytes)
            self.journal.synced(append.position)

    def pass_messages(self, count: int) -> None:
        """Messages that come and go: they fill segments and need none."""
        for _ in range(count):
            self.journal.store(self.next_id, 1, [1], b"x" * 500)
            self.step()
            self.journal.settle(1, self.next_id, 1)
            self.next_id += 1
            self.step()

    def ids(self) -> dict[str, list[tuple[int, bytes]]]:
        found = self.disk.recover()
        return {address: [(one.number, one.duplicate_id) for one in ids] for address, ids in found.duplicates.items()}


def test_an_id_outlives_the_segment_that_it_came_with() -> None:
    life = Life()
    life.journal.duplicates.add("orders", 1, b"first", 1)
    life.pass_messages(200)
    assert min(life.disk.files) > 10
    assert len(life.disk.files) <= 3
    assert life.ids() == {"orders": [(1, b"first")]}


@pytest.mark.parametrize("first", [1, 4, 9, 12])
def test_what_a_file_that_could_not_be_deleted_says_does_not_hold_any_more(first: int) -> None:
    life = Life()
    for number in range(5, 9):
        life.journal.duplicates.add("orders", number, b"old", 5)
    life.step()
    stays = life.disk.files[1]
    life.pass_messages(20)
    assert max(life.disk.files) > 1
    life.journal.duplicates.drop("orders")
    life.pass_messages(200)  # what says that they were dropped is gone
    assert min(life.disk.files) > 10
    life.disk.files[1] = stays
    for number in range(first, first + 20):
        life.journal.duplicates.add("orders", number, b"%d" % number, max(first, number - 2))
        life.step()
        expected = [(each, b"%d" % each) for each in range(max(first, number - 2), number + 1)]
        assert life.ids() == {"orders": expected}


def test_what_left_the_cache_is_not_found_again() -> None:
    life = Life()
    for number in range(1, 6):
        life.journal.duplicates.add("orders", number, b"%d" % number, max(1, number - 2))
        life.pass_messages(5)
    assert life.ids() == {"orders": [(3, b"3"), (4, b"4"), (5, b"5")]}


def test_a_dropped_address_has_no_ids_and_may_begin_anew() -> None:
    life = Life()
    life.journal.duplicates.add("orders", 1, b"old", 1)
    life.step()
    life.journal.duplicates.drop("orders")
    life.journal.duplicates.add("orders", 1, b"new", 1)
    life.step()
    assert life.ids() == {"orders": [(1, b"new")]}
    life.journal.duplicates.drop("orders")
    life.step()
    assert life.ids() == {}


def test_ids_alone_do_not_keep_the_journal_busy() -> None:
    life = Life()
    for number in range(1, 501):
        life.journal.duplicates.add("orders", number, b"id-%d" % number * 5, 1)
        life.step()
    written = len(life.sizes)
    for _ in range(20):
        life.step()
    assert len(life.sizes) - written <= 2, "nothing is written again where that would free little"
    assert len(life.ids()["orders"]) == 500


def test_they_are_written_again_in_pieces_and_only_where_it_frees_much() -> None:
    life = Life(journal_file_size_bytes=4096)
    count = MOVED_MAX + 100
    for number in range(1, count + 1):
        life.journal.duplicates.add("orders", number, b"%08d" % number, 1)
    life.step()
    life.sizes.clear()
    life.pass_messages(1500)
    pieces = [size for size in life.sizes if size > 1000]
    again = sum(pieces)
    assert again > 18 * count
    assert max(pieces) < 18 * MOVED_MAX + 1000
    assert again * FREED_SHARE <= 2 * sum(life.sizes), "most of what is written are messages"
    assert [number for number, _ in life.ids()["orders"]] == list(range(1, count + 1))
