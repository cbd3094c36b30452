"""A journal as rows and back: nothing is lost and nothing is added, whatever happened before."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqbroker.base.errors import ConfigFault
from mqbroker.core.store.journal_export import Importer, rows_of
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Recovered

from tests.sim.disk import Faults, SimDisk
from tests.support.stage import Stage, options_with

NODE = "11111111-2222-4333-8444-555555555555"
SMALL = {"journal_file_size_bytes": 8192, "journal_compact_min_files": 2, "journal_compact_percentage": 90}


class Kept:
    """Bodies of large messages in memory."""

    def __init__(self) -> None:
        self.files: dict[int, bytes] = {}
        self.finished: list[int] = []

    def write(self, file: int, offset: int, data: bytes) -> None:
        assert offset == len(self.files.get(file, b""))
        self.files[file] = self.files.get(file, b"") + data

    def finish(self, file: int) -> None:
        self.finished.append(file)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["send", "accepted", "modified", "released", "rejected", "purge"]),
        st.sampled_from(["orders", "news", "a"]),
        st.integers(1, 5),
    ),
    max_size=25,
)


def history(actions: list[tuple[str, str, int]], *, is_clean: bool, delay_ms: int = 0) -> Recovered:
    """What a node's disk holds after all of that."""
    matches = {"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 3, "redelivery_delay": delay_ms}}
    stage = Stage(options_with(journal=SMALL, address_settings=matches))
    stage.admin("queue-create", name="a", address="news", routing_type="multicast")
    stage.admin("queue-create", name="b", address="news", routing_type="multicast", ring_size=4)
    stage.admin("queue-create", name="DLQ")
    stage.admin("address-create", name="kept", routing_types=["multicast"])
    stage.admin("address-pause", name="news")
    for number, (what, name, count) in enumerate(actions):
        if what == "send":
            bodies = [{"body": f"{number}-{each}" * 50, "durable": each != 3} for each in range(count)]
            stage.admin("send", address=name, messages=bodies)
        elif what == "purge":
            stage.admin("queue-purge", name=name, selector="JMSPriority = 4")
        elif name in stage.broker.store.queues:
            request = stage.ask("receive", address=name, count_max=count, wait_ms=1)
            stage.wait(2)
            tag = stage.replies[request].result["tag"]
            if tag is not None:
                stage.admin("settle", tag=tag, outcome=what)
    if is_clean:
        stage.stop()
    else:
        stage.crash()
    return stage.disk.load()


def imported(rows: list[Any]) -> Recovered:
    """The rows in a journal of their own, as recovery finds it."""
    return disk_of(rows).load()


def disk_of(rows: list[Any], owner: bytes = b"other") -> SimDisk:
    options = options_with(journal=SMALL).journal
    faults = Faults(write_error=0.0, sync_error=0.0)
    disk = SimDisk(random.Random(0), owner.ljust(16, b"\0"), options.journal_file_size_bytes, faults)
    importer = Importer(Journal(options, Recovered()), Kept())
    appends = [importer.take(json.loads(json.dumps(row))) for row in rows] + [importer.finish()]
    for append in appends:
        if append is not None:
            disk.commit([append])
    return disk


@given(ACTIONS, st.booleans(), st.sampled_from([0, 0, 3, 60_000]))
@settings(max_examples=40, deadline=None)
def test_a_round_trip_changes_nothing(actions: list[tuple[str, str, int]], is_clean: bool, delay_ms: int) -> None:
    found = history(actions, is_clean=is_clean, delay_ms=delay_ms)
    rows = list(rows_of(found, NODE))
    back = imported(rows)
    assert list(rows_of(back, NODE))[1:] == rows[1:]
    assert back.was_clean
    assert back.queues == found.queues
    assert back.addresses == found.addresses
    assert back.next_id == found.next_id
    assert set(back.addresses) == {"kept", "news"}


def test_a_broker_goes_on_with_what_was_imported() -> None:
    found = history([("send", "orders", 3), ("modified", "orders", 2), ("send", "a", 1)], is_clean=False)
    rows = list(rows_of(found, NODE))
    stage = Stage(options_with(journal=SMALL))
    stage.crash()
    faults = Faults(write_error=0.0, sync_error=0.0)
    stage.disk = SimDisk(random.Random(0), b"stage".ljust(16, b"\0"), SMALL["journal_file_size_bytes"], faults)
    importer = Importer(Journal(stage.options.journal, Recovered()), Kept())
    for append in [importer.take(row) for row in rows] + [importer.finish()]:
        if append is not None:
            stage.disk.commit([append])
    stage.start()
    messages = stage.admin("browse", queue="orders")["messages"]
    assert [(one["body"][:3], one["delivery_count"]) for one in messages] == [("0-0", 1), ("0-1", 1), ("0-2", 1)]


def test_what_is_held_back_is_so_after_an_import() -> None:
    found = history([("send", "orders", 3), ("modified", "orders", 2)], is_clean=True, delay_ms=60_000)
    rows = list(rows_of(found, NODE))
    due_ms = 1_700_000_060_003
    assert [row["due_ms"] for row in rows if "due_ms" in row] == [{"4": due_ms}] * 2
    back = imported(rows)
    assert [(count.first_id, count.delivery_count, count.due_ms) for count in back.counts] == [
        (1, 1, due_ms), (2, 1, due_ms),
    ]  # fmt: skip


def known(stage: Stage, *ids: str) -> Any:
    messages = [{"body": "x", "application_properties": {"_AMQ_DUPL_ID": each}} for each in ids]
    stage.admin("send", address="orders", messages=messages)
    return stage.broker.store.duplicates.dropped_total


@pytest.mark.slow
def test_what_was_seen_is_known_after_an_import() -> None:
    stage = Stage(options_with(address_settings={"#": {"id_cache_size": 3000}}))
    known(stage, *(f"id-{number}" for number in range(2500)))
    stage.stop()
    rows = list(rows_of(stage.disk.load(), NODE))
    assert [len(row["ids"]) for row in rows if row["type"] == "ids"] == [1000, 1000, 500]
    back = imported(rows)
    assert list(rows_of(back, NODE))[1:] == rows[1:]
    stage.disk = disk_of(rows, b"stage")
    stage.start()
    assert [known(stage, each) for each in ("id-0", "id-2499", "new", "new")] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([[2, "YQ=="], [2, "YQ=="]], "id 2 of 'orders' does not follow id 2"),
        ([[0, "YQ=="]], "id 0 of 'orders' does not follow id 0"),
        ([["1", "YQ=="]], "id '1' of 'orders' does not follow"),
        ([[1, "!"]], "a row of type ids is not like this"),
        ([1], "a row of type ids is not like this"),
        ([[1, "YWFh" * 30_000]], "or something is too long"),
    ],
)
def test_faulty_ids_are_refused(ids: Any, said: str) -> None:
    with pytest.raises(ConfigFault, match="line 2") as fault:
        imported([GOOD[0], {"type": "ids", "name": "orders", "ids": ids}])
    assert said in str(fault.value)


ROUTE = {"type": "route", "router": "r", "key": "k", "target": "mq1:5672", "used_ms": 1}
GOOD = list(rows_of(history([("send", "orders", 2)], is_clean=True), NODE))
PLACE = next(number for number, row in enumerate(GOOD) if row["type"] == "messages")


@pytest.mark.parametrize(
    ("place", "change", "said"),
    [
        (0, None, "line 1: an export begins with one row of type journal"),
        (0, {"next_id": 0}, "line 1: next_id is from 1 to"),
        (0, {"schema": "other/1"}, "line 1: schema 'other/1' is not"),
        (1, {"type": "journal"}, "line 2: an export begins with one row"),
        (1, {"type": "colour"}, "line 2: there are no rows of type 'colour'"),
        (1, {"id": 0}, "line 2: queue 0"),
        (2, {"id": 1}, "line 3: queue 1"),
        (1, {"attributes": {"name": "x", "address": "x", "colour": 1}}, "line 2: a row of type queue is not like this"),
        (1, None, "in queues that are not declared before"),
        (PLACE, {"first_id": 0}, "message 0 does not follow"),
        (PLACE, {"frames": ["!"]}, "a row of type messages is not like this"),
        (PLACE, {"frames": ["AAAA"]}, "the frames from message 1 on are not those of one run"),
        (PLACE, {"queues": {}}, "or in none"),
        (PLACE, {"due_ms": {"9": 5}}, "message 1 is due in a queue that never gave it to anybody"),
        (PLACE, {"due_ms": [5]}, "a row of type messages is not like this"),
        (PLACE, {"due_ms": {"4": 1 << 63}}, "message 1 is due in a queue that never"),
        (PLACE, None, "rows are missing: there were"),
        (len(GOOD) - 1, None, "the export is cut off"),
    ],
)
def test_a_faulty_export_is_refused_with_its_line(place: int, change: dict[str, Any] | None, said: str) -> None:
    held = [index for index, row in enumerate(GOOD) if row.get("attributes", {}).get("name") == "orders"]
    at = held[0] if said.startswith("in queues") else place
    rows = GOOD[:at] + ([GOOD[at] | change] if change else []) + GOOD[at + 1 :]
    with pytest.raises(ConfigFault, match="line") as caught:
        imported(rows)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "the route of 'k' is there already"),
        ({"key": 5}, "something of it is no text"),
        ({"key": []}, "something of it is no text"),
        ({"target": "x" * 1025}, "too long"),
        ({"key": "other", "used_ms": -1}, "was used at no time"),
        ({"key": "other", "used_ms": True}, "was used at no time"),
    ],
)
def test_a_faulty_route_is_refused(change: dict[str, Any], said: str) -> None:
    assert [row for row in rows_of(imported([GOOD[0], ROUTE, *GOOD[1:]]), NODE) if row["type"] == "route"] == [ROUTE]
    with pytest.raises(ConfigFault, match="line 3: the route of") as caught:
        imported([GOOD[0], ROUTE, ROUTE | change, *GOOD[1:]])
    assert said in str(caught.value)
    with pytest.raises(ConfigFault, match="line 2: a row of type route is not like this"):
        imported([GOOD[0], {"type": "route"}])


@pytest.mark.parametrize(
    "change",
    [
        {"selector": "a = "}, {"selector": 5}, {"ring_size": None}, {"max_consumers": "3"}, {"paused": 1},
        {"name": ""}, {"name": 5}, {"address": ""}, {"address": 5}, {"routing": "any"}, {"routing": "forward"},
        {"name": "\ud800"}, {"address": "\ud800"}, {"selector": "a = '\ud800'"}, {"group_first_key": "\udfff"},
    ],
)  # fmt: skip
def test_a_queue_that_no_broker_could_load_is_refused(change: dict[str, Any]) -> None:
    assert GOOD[1]["type"] == "queue"
    rows = [GOOD[0], GOOD[1] | {"attributes": GOOD[1]["attributes"] | change}]
    with pytest.raises(ConfigFault, match="line 2"):
        imported(rows)


def test_nothing_may_follow_the_end() -> None:
    with pytest.raises(ConfigFault, match="behind the row of type end"):
        imported([*GOOD, GOOD[-1]])


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, {"next_id": float("inf")}),
        (1, {"id": 2**70}),
        (1, {"id": float("inf")}),
        (PLACE, {"arrived_ms": -1}),
        (PLACE, {"arrived_ms": 2**64}),
        (PLACE, {"arrived_ms": float("inf")}),
        (PLACE, {"first_id": float("inf")}),
    ],
)
def test_a_number_that_no_journal_can_hold_is_refused_with_its_line(place: int, change: dict[str, Any]) -> None:
    rows = [*GOOD[:place], GOOD[place] | change, *GOOD[place + 1 :]]
    with pytest.raises(ConfigFault, match=f"line {place + 1}: "):
        imported(rows)
