"""Which start of a node numbered which messages, by what its journal says."""

from __future__ import annotations

import pytest
from mqbroker.core.address.address import ANYCAST
from mqbroker.core.cluster import marks
from mqbroker.core.cluster.marks import NAME, NONE, Marks
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.store.journal_export import Importer, rows_of
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import Forgone
from mqbroker.journal.recovered import Recovered
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.support.stage import Stage

TARGET = "00000003-0000-4000-8000-000000000000"


class Starts:
    """A node whose starts are told their marks, on one disk."""

    def __init__(self, *, has_marks: bool = True) -> None:
        self.stage = Stage()
        self.has_marks = has_marks
        self.numbers: dict[str, int] = {}  # start -> a message that it has numbered for another node

    def start(self, mark: str, *, is_message: bool = True) -> Marks:
        stage, store = self.stage, self.stage.broker.store
        if self.numbers or store.next_id > 1:
            stage.crash()
            stage.start()
            store = stage.broker.store
        found = store.remotes.marks
        if self.has_marks:
            found.begin(store, recovered_of(stage), mark)
        store.remotes.reserve_ids()
        if is_message:
            binding = RemoteBinding("orders", "orders", ANYCAST, "", TARGET, TARGET, 1)
            via = store.remotes.connection("c")
            via.add(binding)
            self.numbers[mark] = store.next_id
            store.publish(store.addresses["orders"], single(build_message(b"m", durable=True)))
            via.remove(binding)
        stage.step()
        stage.run()
        return found


def recovered_of(stage: Stage) -> Recovered:
    return stage.disk.load()


def test_each_message_has_the_mark_of_the_start_that_numbered_it() -> None:
    starts = Starts()
    for mark in ("m1", "m2", "m3"):
        found = starts.start(mark)
    assert {mark: found.of(number) for mark, number in starts.numbers.items()} == {
        each: each for each in starts.numbers
    }
    assert (found.own, found.of(1 << 50)) == ("m3", "m3")


def test_between_two_starts_a_number_is_left_out() -> None:
    starts = Starts()
    starts.start("m1")
    before = recovered_of(starts.stage).next_id
    starts.start("m2")
    assert starts.numbers["m2"] > before


def test_a_start_that_numbered_nothing_and_reserved_nothing_gives_its_numbers_to_nobody() -> None:
    stage, found = Stage(), [Marks() for _ in range(3)]
    for number, each in enumerate(found):
        each.begin(stage.broker.store, recovered_of(stage), f"m{number}")
        stage.step()
        stage.run()
        stage.crash()
        stage.start()
    firsts = [each._own_from for each in found]
    assert firsts == sorted(set(firsts))


def test_what_an_older_release_numbered_has_no_mark() -> None:
    starts = Starts(has_marks=False)
    starts.start("old")
    starts.has_marks = True
    found = starts.start("m1")
    assert (found.of(starts.numbers["old"]), found.of(starts.numbers["m1"])) == (NONE, "m1")
    assert starts.start("m2").of(starts.numbers["old"]) == NONE


def test_only_what_waits_is_remembered() -> None:
    starts = Starts()
    for mark in ("m1", "m2", "m3"):
        starts.start(mark)
    assert [each.duplicate_id for each in recovered_of(starts.stage).duplicates[NAME]] == [b"m1", b"m2", b"m3"]
    for queue in starts.stage.broker.store.remotes.queues_of(TARGET):
        starts.stage.broker.store.purge(queue)
    starts.stage.step()
    starts.stage.run()
    starts.start("m4", is_message=False)
    assert [each.duplicate_id for each in recovered_of(starts.stage).duplicates[NAME]] == [b"m3", b"m4"]


def test_starts_are_remembered_within_a_bound_and_what_is_beyond_it_is_no_message_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marks, "MARKS_MAX", 3)
    starts = Starts()
    for mark in ("m1", "m2", "m3", "m4", "m5"):
        found = starts.start(mark)
    said = {mark: found.of(number) for mark, number in starts.numbers.items()}
    assert said == {"m1": "m5", "m2": "m5", "m3": "m3", "m4": "m4", "m5": "m5"}


def test_where_a_file_is_gone_no_mark_is_believed() -> None:
    """What was cut off said that the file may go, and what was moved on from it was there as well."""
    starts = Starts()
    starts.start("m1")
    recovered = recovered_of(starts.stage)
    recovered.forgone = [Forgone(1, 2)]
    found = Marks()
    found.begin(starts.stage.broker.store, recovered, "m2")
    assert found.of(starts.numbers["m1"]) == "m2"
    starts.stage.step()
    starts.stage.run()
    assert [each.duplicate_id for each in recovered_of(starts.stage).duplicates[NAME]] == [b"m2"]


def test_marks_go_with_an_export() -> None:
    starts = Starts()
    starts.start("m1")
    starts.start("m2")
    rows = list(rows_of(recovered_of(starts.stage), "stage"))
    told = [row for row in rows if row["type"] == "ids" and row["name"] == NAME]
    assert [len(row["ids"]) for row in told] == [2]
    importer = Importer(Journal(starts.stage.options.journal, Recovered()), lambda _file: None)  # type: ignore[arg-type]
    for row in rows:
        importer.take(row)
    assert importer.is_complete
