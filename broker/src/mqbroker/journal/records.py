"""Records: what an entry's payload is made of. Only this knows their layout, and message_records.py, which writes two.

    record      kind u8 | length u32 | body
    RUN         first id u64 | count u32 | arrived ms u64 | queues u16 | queue id u64 … | frames
    SETTLE      queue id u64 | (first id u64 | n u32) …
    QUEUE       queue id u64 | attributes, JSON
    QUEUE_DROP  queue id u64
    CONSUMED    queue id u64                          the queue had a consumer since the last START
    COUNT       queue id u64 | first id u64 | n u32 | delivery count u32 [| due ms u64]
                not to be delivered before it is due, wall clock; without: at once
    START       boot counter u64
    STOP                                              everything before was settled in good order
    TRIM        segment u64                           nothing before this segment is needed any more
    DUPLICATES  oldest number u64 | address length u16 | address | (number u64 | length u16 | id) …
                no ids: the address has forgotten all of them
    ADDRESS     name length u16 | name | attributes, JSON
    ADDRESS_DROP  name length u16 | name
    FORGONE     first segment u64 | end u64           these files are missing, and a start went on without them
    CHECKPOINT  boot u64 | next id u64 | trim u64 | (queue id u64 | was consumed u8 | length u32 | attributes) …

`frames` are opaque here. A RUN without queues is for paging alone: recovery passes over it. A CHECKPOINT opens every
segment, so that all segments before it can go once no message of theirs is live; an ADDRESS follows it for each address
of which an administrator said something, and there are no others then. Every record may be applied twice with
the same outcome as once.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from mqbroker.journal import message_records


class RecordKind(enum.IntEnum):
    """Numbers on disk: never reuse one."""

    RUN = message_records.RUN
    SETTLE = message_records.SETTLE
    QUEUE = 3
    QUEUE_DROP = 4
    CONSUMED = 5
    COUNT = 6
    START = 7
    STOP = 8
    TRIM = 9
    CHECKPOINT = 10
    DUPLICATES = 11
    ADDRESS = 12
    ADDRESS_DROP = 13
    FORGONE = 14


ID_MAX = (1 << 56) - 1  # of messages, queues and ids of duplicates; no broker gets there, and beyond nothing is counted
BOOT_MAX = (1 << 31) - 1

_RECORD = struct.Struct(">BI")
_RUN_BODY = struct.Struct(">QIQH")
_NUMBER = struct.Struct(">BIQ")
_U64 = struct.Struct(">Q")
_FORGONE = struct.Struct(">BIQQ")
_FORGONE_BODY = struct.Struct(">QQ")
_COUNT = struct.Struct(">BIQQII")
_COUNT_BODY = struct.Struct(">QQII")
_COUNT_DUE_BODY = struct.Struct(">QQIIQ")
_CHECKPOINT = struct.Struct(">QQQ")
_CHECKPOINT_QUEUE = struct.Struct(">QBI")
_DUPLICATES = struct.Struct(">QH")
_DUPLICATE = struct.Struct(">QH")
_NAME = struct.Struct(">H")

DUPLICATE_HEAD_BYTES = _DUPLICATE.size


class RunRecord(NamedTuple):
    """`n` messages with ascending ids, each of them in all of `queue_ids`. They came at `arrived_ms`, wall clock."""

    first_id: int
    n: int
    arrived_ms: int
    queue_ids: tuple[int, ...]
    frames: memoryview


class Settle(NamedTuple):
    """These messages have left this queue for good."""

    queue_id: int
    ranges: list[tuple[int, int]]


class QueueRecord(NamedTuple):
    """A queue exists, with these attributes (JSON)."""

    queue_id: int
    attributes: bytes


class QueueDrop(NamedTuple):
    queue_id: int


class Consumed(NamedTuple):
    queue_id: int


class Attempts(NamedTuple):
    """How often a message was delivered in vain, and when it may come again: 0, at once."""

    delivery_count: int
    due_ms: int


class Count(NamedTuple):
    """`n` messages of a queue from `first_id` on had these attempts."""

    queue_id: int
    first_id: int
    n: int
    delivery_count: int
    due_ms: int = 0


class StartRecord(NamedTuple):
    boot: int


class StopRecord(NamedTuple):
    pass


class Trim(NamedTuple):
    segment: int


class Checkpoint(NamedTuple):
    """`queues` maps a queue's id to (attributes, was consumed since the start of process `boot`)."""

    boot: int
    next_id: int
    trim: int
    queues: dict[int, tuple[bytes, bool]]


class DuplicateIdsRecord(NamedTuple):
    """Ids of messages that were seen at an address, each with its number, and the oldest number that is still kept.

    Without ids: the address has forgotten all of them.
    """

    address: str
    oldest: int
    ids: list[tuple[int, bytes]]


class AddressRecord(NamedTuple):
    """An administrator said of this address what `attributes` hold (JSON)."""

    name: str
    attributes: bytes


class AddressDrop(NamedTuple):
    name: str


class Forgone(NamedTuple):
    """The files of these segments, `end` not among them, are missing for good, with whatever was in them."""

    first: int
    end: int


Record = (
    RunRecord | Settle | QueueRecord | QueueDrop | Consumed | Count | StartRecord | StopRecord | Trim | Checkpoint
    | DuplicateIdsRecord | AddressRecord | AddressDrop | Forgone
)  # fmt: skip


class MalformedRecord(Exception):
    """A record that its checksum vouches for makes no sense: written by something newer, or by a bug."""


as_json: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
"""Attributes as text: the same for the same attributes."""


def encode_attributes(attributes: dict[str, Any]) -> bytes:
    """Of a queue or an address; they must be JSON."""
    return as_json(attributes).encode()


def encode_queue(queue_id: int, attributes: bytes) -> bytes:
    return _NUMBER.pack(RecordKind.QUEUE, 8 + len(attributes), queue_id) + attributes


def encode_number(kind: RecordKind, number: int) -> bytes:
    """QUEUE_DROP, CONSUMED, START and TRIM are one number each."""
    return _NUMBER.pack(kind, 8, number)


def encode_count(count: Count) -> bytes:
    """A due time lies behind the rest, where releases that do not know it look no more."""
    if count.due_ms:
        return _RECORD.pack(RecordKind.COUNT, _COUNT_DUE_BODY.size) + _COUNT_DUE_BODY.pack(*count)
    return _COUNT.pack(RecordKind.COUNT, _COUNT_BODY.size, *count[:4])


def encode_stop() -> bytes:
    return _RECORD.pack(RecordKind.STOP, 0)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    parts = [b"", _CHECKPOINT.pack(checkpoint.boot, checkpoint.next_id, checkpoint.trim)]
    for queue_id, (attributes, was_consumed) in checkpoint.queues.items():
        parts.append(_CHECKPOINT_QUEUE.pack(queue_id, was_consumed, len(attributes)))
        parts.append(attributes)
    parts[0] = _RECORD.pack(RecordKind.CHECKPOINT, sum(map(len, parts)))
    return b"".join(parts)


def encode_address(name: str, attributes: bytes) -> bytes:
    """A name has less than 64 KiB."""
    encoded = name.encode()
    head = _RECORD.pack(RecordKind.ADDRESS, _NAME.size + len(encoded) + len(attributes))
    return head + _NAME.pack(len(encoded)) + encoded + attributes


def encode_address_drop(name: str) -> bytes:
    encoded = name.encode()
    return _RECORD.pack(RecordKind.ADDRESS_DROP, _NAME.size + len(encoded)) + _NAME.pack(len(encoded)) + encoded


def encode_start(boot: int, forgone: list[Forgone]) -> bytes:
    """A process goes on with this journal, and without these files."""
    given_up = [_FORGONE.pack(RecordKind.FORGONE, _FORGONE_BODY.size, *each) for each in forgone]
    return b"".join(given_up) + encode_number(RecordKind.START, boot)


def encode_duplicates(duplicates: DuplicateIdsRecord) -> bytes:
    """An address and its ids have less than 64 KiB each."""
    address = duplicates.address.encode()
    parts = [b"", _DUPLICATES.pack(duplicates.oldest, len(address)), address]
    for number, duplicate_id in duplicates.ids:
        parts.append(_DUPLICATE.pack(number, len(duplicate_id)))
        parts.append(duplicate_id)
    parts[0] = _RECORD.pack(RecordKind.DUPLICATES, sum(map(len, parts)))
    return b"".join(parts)


def decode(payload: memoryview) -> Iterator[Record]:
    """All records of one entry, in their order. Raises Malformed, and nothing else."""
    for _, _, record in decode_places(payload):
        yield record


def decode_places(payload: memoryview) -> Iterator[tuple[int, int, Record]]:
    """As `decode`, each with where it begins and ends."""
    offset = 0
    while offset < len(payload):
        if offset + _RECORD.size > len(payload):
            raise MalformedRecord(f"{len(payload) - offset} stray bytes behind the last record")
        kind, length = _RECORD.unpack_from(payload, offset)
        begin, start = offset, offset + _RECORD.size
        offset = start + length
        decoder = _DECODERS.get(kind)
        if decoder is None:
            raise MalformedRecord(f"unknown kind of record {kind}")
        if offset > len(payload):
            raise MalformedRecord(f"record of kind {kind} is longer than its entry")
        try:
            yield begin, offset, decoder(payload[start:offset])
        except struct.error as error:
            raise MalformedRecord(f"record of kind {kind} is too short: {error}") from error


def _decode_run(body: memoryview) -> RunRecord:
    first_id, count, arrived_ms, n = _RUN_BODY.unpack_from(body)
    queue_ids = struct.unpack_from(f">{n}Q", body, _RUN_BODY.size)
    return RunRecord(first_id, count, arrived_ms, queue_ids, body[_RUN_BODY.size + 8 * n :])


def _decode_settle(body: memoryview) -> Settle:
    (queue_id,) = _U64.unpack_from(body)
    return Settle(queue_id, [(first, n) for first, n in message_records.RANGE.iter_unpack(body[8:])])


def _decode_queue(body: memoryview) -> QueueRecord:
    (queue_id,) = _U64.unpack_from(body)
    return QueueRecord(queue_id, bytes(body[8:]))


def _decode_count(body: memoryview) -> Count:
    return Count(*(_COUNT_BODY if len(body) == _COUNT_BODY.size else _COUNT_DUE_BODY).unpack_from(body))


def _decode_checkpoint(body: memoryview) -> Checkpoint:
    boot, next_id, trim = _CHECKPOINT.unpack_from(body)
    queues: dict[int, tuple[bytes, bool]] = {}
    offset = _CHECKPOINT.size
    while offset < len(body):
        queue_id, was_consumed, length = _CHECKPOINT_QUEUE.unpack_from(body, offset)
        offset += _CHECKPOINT_QUEUE.size
        attributes = bytes(body[offset : offset + length])
        if len(attributes) != length:
            raise MalformedRecord("checkpoint ends inside a queue")
        queues[queue_id] = (attributes, bool(was_consumed))
        offset += length
    return Checkpoint(boot, next_id, trim, queues)


def _decode_duplicates(body: memoryview) -> DuplicateIdsRecord:
    oldest, length = _DUPLICATES.unpack_from(body)
    offset = _DUPLICATES.size + length
    try:
        address = bytes(body[_DUPLICATES.size : offset]).decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"the address of duplicate ids is not UTF-8: {error}") from error
    if offset > len(body):
        raise MalformedRecord("the record of duplicate ids ends inside its address")
    ids: list[tuple[int, bytes]] = []
    while offset < len(body):
        number, length = _DUPLICATE.unpack_from(body, offset)
        offset += _DUPLICATE.size + length
        if offset > len(body):
            raise MalformedRecord("the record of duplicate ids ends inside an id")
        ids.append((number, bytes(body[offset - length : offset])))
    return DuplicateIdsRecord(address, oldest, ids)


def _decode_address(body: memoryview) -> AddressRecord:
    (length,) = _NAME.unpack_from(body)
    end = _NAME.size + length
    if end > len(body):
        raise MalformedRecord("the record of an address ends inside its name")
    try:
        name = bytes(body[_NAME.size : end]).decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"the name of an address is not UTF-8: {error}") from error
    return AddressRecord(name, bytes(body[end:]))


def _number(body: memoryview) -> int:
    number: int = _U64.unpack_from(body)[0]
    return number


_DECODERS: dict[int, Callable[[memoryview], Record]] = {
    RecordKind.RUN: _decode_run,
    RecordKind.SETTLE: _decode_settle,
    RecordKind.QUEUE: _decode_queue,
    RecordKind.QUEUE_DROP: lambda body: QueueDrop(_number(body)),
    RecordKind.CONSUMED: lambda body: Consumed(_number(body)),
    RecordKind.COUNT: _decode_count,
    RecordKind.START: lambda body: StartRecord(_number(body)),
    RecordKind.STOP: lambda body: StopRecord(),
    RecordKind.TRIM: lambda body: Trim(_number(body)),
    RecordKind.CHECKPOINT: _decode_checkpoint,
    RecordKind.DUPLICATES: _decode_duplicates,
    RecordKind.ADDRESS: _decode_address,
    RecordKind.ADDRESS_DROP: lambda body: AddressDrop(_decode_address(body).name),
    RecordKind.FORGONE: lambda body: Forgone(*_FORGONE_BODY.unpack_from(body)),
}
