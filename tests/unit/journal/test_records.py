"""Every kind of record: out and back, and what is malformed is Malformed and nothing else."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.journal import message_records, records
from mqbroker.journal.records import MalformedRecord, RecordKind

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
ids = st.integers(0, 2**62)


# Some have the word in their name, as it stands for something else without it.
NAMES = {kind.name.title().replace("_", ""): kind for kind in RecordKind}


def decode(payload: bytes) -> list[records.Record]:
    return list(records.decode(memoryview(payload)))


@given(ids, u32, st.lists(u64, min_size=1, max_size=50), st.binary(max_size=200))
def test_run(first_id: int, n: int, queue_ids: list[int], frames: bytes) -> None:
    (run,) = decode(message_records.encode_run_head(first_id, n, queue_ids, len(frames), 77) + frames)
    assert isinstance(run, records.RunRecord)
    assert run == (first_id, n, 77, tuple(queue_ids), frames)


@given(u64, st.lists(st.tuples(ids, st.integers(1, 2**33)), min_size=1, max_size=20))
def test_settle(queue_id: int, ranges: list[tuple[int, int]]) -> None:
    (settle,) = decode(
        message_records.encode_settle(queue_id, [bound for first, n in ranges for bound in (first, first + n)])
    )
    assert isinstance(settle, records.Settle)
    assert settle.queue_id == queue_id
    pieces = iter(settle.ranges)
    for first, n in ranges:  # what does not fit into 32 bits comes in pieces
        while n > 0:
            piece = next(pieces)
            assert piece[0] == first
            first, n = first + piece[1], n - piece[1]
        assert n == 0
    assert next(pieces, None) is None


@given(u64, st.binary(max_size=100))
def test_queue(queue_id: int, attributes: bytes) -> None:
    assert decode(records.encode_queue(queue_id, attributes)) == [records.QueueRecord(queue_id, attributes)]


@given(u64)
def test_single_numbers(number: int) -> None:
    payload = b"".join(
        records.encode_number(kind, number)
        for kind in (RecordKind.QUEUE_DROP, RecordKind.CONSUMED, RecordKind.START, RecordKind.TRIM)
    )
    found = decode(payload)
    assert found == [(number,)] * 4
    assert [type(record) for record in found] == [
        records.QueueDrop,
        records.Consumed,
        records.StartRecord,
        records.Trim,
    ]


@given(u64, st.lists(st.tuples(u64, u64), max_size=3))
def test_start(boot: int, missing: list[tuple[int, int]]) -> None:
    forgone = [records.Forgone(*each) for each in missing]
    assert decode(records.encode_start(boot, forgone)) == [*forgone, records.StartRecord(boot)]


@given(u64, u64, u32, u32, u64)
def test_count(queue_id: int, first_id: int, n: int, delivery_count: int, due_ms: int) -> None:
    count = records.Count(queue_id, first_id, n, delivery_count, due_ms)
    assert decode(records.encode_count(count) + records.encode_stop()) == [count, records.StopRecord()]


def test_a_count_without_a_due_time_is_what_it_always_was_and_one_with_it_begins_alike() -> None:
    always = struct.pack(">BIQQII", 6, 24, 5, 7, 2, 3)
    assert records.encode_count(records.Count(5, 7, 2, 3)) == always
    due = struct.pack(">BIQQIIQ", 6, 32, 5, 7, 2, 3, 1_700_000_000_000)
    assert records.encode_count(records.Count(5, 7, 2, 3, 1_700_000_000_000)) == due
    assert due[5 : len(always)] == always[5:]


@given(u64, u64, u64, st.dictionaries(u64, st.tuples(st.binary(max_size=50), st.booleans()), max_size=20))
def test_checkpoint(boot: int, next_id: int, trim: int, queues: dict[int, tuple[bytes, bool]]) -> None:
    checkpoint = records.Checkpoint(boot, next_id, trim, queues)
    assert decode(records.encode_checkpoint(checkpoint)) == [checkpoint]


@pytest.mark.slow
@given(st.text(max_size=50), u64, st.lists(st.tuples(u64, st.binary(max_size=100)), max_size=20))
def test_duplicates(address: str, oldest: int, ids: list[tuple[int, bytes]]) -> None:
    duplicates = records.DuplicateIdsRecord(address, oldest, ids)
    assert decode(records.encode_duplicates(duplicates)) == [duplicates]


@pytest.mark.slow
@given(st.text(max_size=50), st.binary(max_size=100))
def test_address(name: str, attributes: bytes) -> None:
    payload = records.encode_address(name, attributes) + records.encode_address_drop(name)
    assert decode(payload) == [records.AddressRecord(name, attributes), records.AddressDrop(name)]


@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_malformed(payload: bytes) -> None:
    with contextlib.suppress(MalformedRecord):
        assert all(type(record).__name__ in NAMES for record in decode(payload))


@given(st.sampled_from(RecordKind), st.binary(max_size=80))
def test_any_body_is_a_record_or_malformed(kind: RecordKind, body: bytes) -> None:
    with contextlib.suppress(MalformedRecord):
        (record,) = decode(struct.pack(">BI", kind, len(body)) + body)
        assert NAMES[type(record).__name__.removesuffix("Record").removesuffix("Ids")] == kind


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"\x07", "stray bytes"),
        (struct.pack(">BI", 99, 0), "unknown kind of record 99"),
        (struct.pack(">BI", 7, 8) + b"1234", "longer than its entry"),
        (struct.pack(">BI", 7, 4) + b"1234", "too short"),
        (struct.pack(">BIQQIII", 6, 28, 5, 7, 2, 3, 9), "record of kind 6 is too short"),
        (struct.pack(">BIQH", 11, 10, 1, 1), "ends inside its address"),
        (struct.pack(">BIQHB", 11, 11, 1, 1, 255), "is not UTF-8"),
        (struct.pack(">BIQHQH", 11, 20, 1, 0, 1, 1), "ends inside an id"),
        (struct.pack(">BIQQQQBI", 10, 37, 1, 1, 1, 5, 0, 9), "ends inside a queue"),
    ],
)
def test_malformed_says_what(payload: bytes, why: str) -> None:
    with pytest.raises(MalformedRecord, match=why):
        decode(payload)
