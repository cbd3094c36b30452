"""Journals of one file with every kind of record, of which one is broken, and what a broker and the tools make of it.

A record, or what a file says of itself, may be broken under a checksum that fits, as a bug or a later release would
write it; a file without. Files are of both formats that are read: one says the term in which it was begun.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from mqbroker.base.checksum import crc32
from mqbroker.core.paging.page_moves import runs_in
from mqbroker.core.paging.paging import segments_in
from mqbroker.core.queue.pages import PagePiece
from mqbroker.core.store.journal_export import rows_of
from mqbroker.journal import records
from mqbroker.journal.entry import entry_bytes, frame_entry
from mqbroker.journal.format import FILE_HEADER_BYTES, encode_file_header
from mqbroker.journal.message_records import encode_run_head, encode_settle
from mqbroker.journal.places import Slice
from mqbroker.journal.recover import recover
from mqbroker.wire.large import body_offset, large_run
from mqbroker.wire.large_file import Large
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.support import frames
from tests.support.stage import Stage, options_with

NODE_ID = b"stage".ljust(16, b"\0")
FILE_BYTES = 1 << 16
CRC_BYTES = 4
TERMS = (None, 7)  # of files of format 1, and 2
LARGE = Large((1 << 32) + 1, 8)
ORDERS = {"name": "orders", "address": "orders", "routing": "anycast", "ring_size": 9, "paused": True}
FORWARD = {
    "name": "$.forward.c.n.7", "address": "c", "routing": "forward", "forwards_to": "n", "route": ["c|n"],
    "connection": "cluster",
}  # fmt: skip
TOPIC = {"name": "b", "address": "b", "routing": "multicast", "selector": "x = 1", "no_local": "me", "max_consumers": 1}
QUEUES = (ORDERS, TOPIC, FORWARD)
SAID = {"routing_types": ["multicast"], "paused": True, "configured": False}


def _json(row: Any) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()


def run_record(first: int, count: int, queues: list[int], block: bytes) -> bytes:
    return encode_run_head(first, count, queues, len(block), 1_700_000_000_000) + block


def ids(name: str, *known: tuple[int, bytes]) -> bytes:
    return records.encode_duplicates(records.DuplicateIdsRecord(name, 1, list(known)))


def _large() -> bytes:
    message = build_message(b"large", durable=True)
    offset = body_offset(message)
    assert offset
    return bytes(large_run(message[:offset], LARGE).buffer)


MESSAGE = bytes(single(build_message(b"m1", durable=True)).buffer)
TWO = b"".join(frames.transfer(n, b"x", durable=True) for n in (1_000_000, 1_000_001))
CHECKPOINT = records.encode_checkpoint(
    records.Checkpoint(1, 10, 1, {1: (_json(ORDERS), True), 2: (_json(TOPIC), False)})
)
RECORDS: dict[str, bytes] = {
    "checkpoint": CHECKPOINT,
    "address": records.encode_address("news", _json(SAID)),
    "address of another": records.encode_address("b", b"{}"),
    "run": run_record(10, 1, [1], MESSAGE),
    "run of two": run_record(11, 2, [1, 2], TWO),
    "large": run_record(13, 1, [2], _large()),
    "run for pages": run_record(14, 1, [], MESSAGE),
    "settle": encode_settle(1, [10, 11]),
    "queue": records.encode_queue(3, _json(FORWARD)),
    "consumed": records.encode_number(records.RecordKind.CONSUMED, 1),
    "start": records.encode_number(records.RecordKind.START, 2),
    "trim": records.encode_number(records.RecordKind.TRIM, 1),
    "count": records.encode_count(records.Count(1, 11, 2, 3)),
    "count with a due time": records.encode_count(records.Count(2, 11, 1, 3, 1_900_000_000_000)),
    "ids": ids("orders", (1, b"a"), (2, b"b")),
    "pin": ids('$.pin.["q","g"]', (1, b"owner")),
    "route": ids('$.route.["r","key"]', (1, b'["mq2.example.org:5672",1700000000000]')),
    "arrived": ids("$.arrived.n|q", (1, b"\0" * 7 + b"\x05\0\0\0\x03")),
    "ids that are forgotten": ids("orders"),
    "address drop": records.encode_address_drop("b"),
    "queue drop": records.encode_number(records.RecordKind.QUEUE_DROP, 2),
    "files forgone": records.encode_start(3, [records.Forgone(1, 2)]),
    "stop": records.encode_stop(),
}
KINDS = (records.RecordKind.CONSUMED, records.RecordKind.QUEUE_DROP, records.RecordKind.START, records.RecordKind.TRIM)
BOUNDS = (0, 1, 2**31, 2**32 - 1, 2**56, 2**63, 2**64 - 2, 2**64 - 1)
COUNTS = (0, 1, 2, 2**31, 2**32 - 1)
"""Numbers at their bounds, in each place of each record that has one."""
EXTREMES: list[bytes] = [
    *(run_record(n, count, [queue], MESSAGE) for n in BOUNDS for count in COUNTS for queue in (1, 2, n)),
    *(records.encode_queue(n, _json(TOPIC | {"name": "far", "address": "far"})) for n in BOUNDS),
    *(records.encode_number(kind, n) for n in BOUNDS for kind in KINDS),
    *(records.encode_start(1, [records.Forgone(n, end)]) for n in BOUNDS for end in BOUNDS),
    *(records.encode_count(records.Count(1, n, count, each, due)) for n in BOUNDS for count in COUNTS
      for each in COUNTS for due in (0, 1, 2**63, 2**64 - 1)),
    *(records.encode_duplicates(records.DuplicateIdsRecord(name, oldest, [(n, b"\0" * 12)])) for n in BOUNDS
      for oldest in BOUNDS for name in ("orders", "$.arrived.n|q")),
    *(ids("$.arrived.n|q", (1, n.to_bytes(8, "big") + count.to_bytes(4, "big"))) for n in BOUNDS for count in COUNTS),
    *(records.encode_checkpoint(records.Checkpoint(boot, n, trim, {n: (_json(ORDERS), False)}))
      for n in BOUNDS for boot in BOUNDS for trim in BOUNDS),
]  # fmt: skip
OPTIONS = options_with(
    address_settings={"b": {"address_full_policy": "PAGE", "max_size_messages": 1}},
    journal={"journal_file_size_bytes": FILE_BYTES},
)


def header_of(term: int | None = None) -> bytes:
    """That of a file; None: of the format that knows no terms."""
    return encode_file_header(1, FILE_BYTES, NODE_ID, term)


def file_of(payloads: list[bytes], header: bytes | None = None) -> bytes:
    """A file with an entry for each, behind a header whose checksum fits."""
    head = header_of() if header is None else header
    entries, seed = b"", int.from_bytes(head[-CRC_BYTES:], "big")
    for number, payload in enumerate(payloads, 1):
        before, behind = frame_entry([payload], len(payload), (number, number - 1), seed)
        entries += before + payload + behind
    return (head + entries).ljust(FILE_BYTES, b"\0")


def written_bytes() -> int:
    """How much of the whole file is no zeros."""
    return FILE_HEADER_BYTES + sum(entry_bytes(len(each)) for each in RECORDS.values())


@cache
def host() -> Stage:
    """A node whose disk is given files."""
    return Stage(OPTIONS)


def read(files: dict[int, bytes]) -> None:
    """What the tools and a start make of it, and the work of a broker that did start. Raises StorageFault."""
    found = recover(sorted(files.items()), NODE_ID, "stop")
    for _ in rows_of(found, "node"):
        pass
    stage = host()
    stage.crash()
    stage.disk.stable = {number: bytearray(content) for number, content in files.items()}
    stage.large_files.sizes[LARGE.file] = LARGE.size_bytes
    stage.start()
    for address in ("orders", "b", "new"):
        stage.admin("send", address=address, messages=[{"body": "x", "durable": True}] * 2)
    for operation in ("queues", "addresses", "groups"):
        assert "condition" not in stage.admin(operation)
    for queue in list(stage.broker.store.queues):
        stage.admin("browse", queue=queue)
    stage.wait(10)
    assert stage.halted is None
    for kept in (stage.batches, stage.appends, stage.notices, stage.replies):
        kept.clear()


def read_file(content: bytes) -> None:
    """A damaged file; with `truncate` as well, which may give up all but raises nothing new."""
    whole = content.ljust(FILE_BYTES, b"\0")
    recover([(1, whole)], NODE_ID, "truncate")
    read({1: whole})


def read_header(said: bytes) -> None:
    """What a file says of itself, under a checksum that fits."""
    body = said[: FILE_HEADER_BYTES - CRC_BYTES].ljust(FILE_HEADER_BYTES - CRC_BYTES, b"\0")
    read_file(file_of([*RECORDS.values()], body + crc32(body).to_bytes(CRC_BYTES, "big")))


def read_record(record: bytes) -> None:
    """As the last of a whole journal."""
    read({1: file_of([*RECORDS.values(), record])})


def read_queue(text: bytes) -> None:
    """What is said of a queue in the checkpoint that opens the file."""
    first = records.encode_checkpoint(records.Checkpoint(1, 10, 1, {1: (text, True)}))
    read({1: file_of([first, RECORDS["run"]])})


def read_queue_anew(text: bytes) -> None:
    """What is said of a queue later on."""
    read({1: file_of([CHECKPOINT, records.encode_queue(2, text), RECORDS["run of two"]])})


def read_address(text: bytes) -> None:
    """What is said of an address."""
    read({1: file_of([CHECKPOINT, records.encode_address("news", text)])})


def read_page(record: bytes) -> None:
    """What lies where a page should, under the checksum that the page knows."""
    piece = PagePiece(11, 2, 1, True, Slice(1, 100, len(record), 0))
    for _ in segments_in(piece, runs_in(piece, record)):
        pass
