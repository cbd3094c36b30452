"""A journal as rows that JSON can carry, and the way back: for backups, moves to other hosts and a look inside.

    {"type": "journal", "schema": …, "node_id": …, "boot": …, "next_id": …, "was_clean": …}
    {"type": "queue", "id": 1, "attributes": {"name": "orders", …}}
    {"type": "file", "file": …, "offset": 0, "data": "base64"}
    {"type": "address", "name": "news", "attributes": {"routing_types": ["multicast"]}}
    {"type": "ids", "name": "orders", "ids": [[7, "base64"], …]}
    {"type": "route", "router": "spread", "key": "app-1", "target": "mq2.example.org:5672", "used_ms": …}
    {"type": "messages", "first_id": 7, "arrived_ms": …, "queues": {"1": 0}, "frames": ["base64", …]}
    {"type": "end", "queues": 1, "messages": 1}

Ids are those of duplicate detection, by address, and what else is kept as such (arrivals.py, group_owners.py): numbers
ascend over all rows of a name. `next_id` holds after an import too: other nodes know the ids of what was sent to them,
and would drop what comes under one of these.

A row of messages holds consecutive ids of one run, which are in the same queues with the same delivery counts (the
values of `queues`); `due_ms`, where it is there, maps queues to when they are to come again. A frame is the transfer
frame as it is stored. After a kill the messages of queues that had consumers count one delivery more, as they do when a
broker starts. Files of large messages come before them (core/store/exported_bodies.py). Rows come in the order of ids,
so both ways need memory for one row; the last row says that none is missing.
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from mqbroker.base.errors import ConfigFault, PeerFault, Refused, StorageFault
from mqbroker.core.address.address_records import check_attributes, said_in
from mqbroker.core.address.routes import PREFIX as ROUTES
from mqbroker.core.address.routes import RouterRoute, keep, routes_of
from mqbroker.core.address.stored_tables import kinds_in
from mqbroker.core.cluster.arrivals import arrived_in
from mqbroker.core.cluster.group_owners import pins_in
from mqbroker.core.paging.recorded_messages import by_count, counts_by_queue, delivered_at_least, run_of
from mqbroker.core.queue.kinds import NAME_SIZE_MAX
from mqbroker.core.queue.kinds import check_attributes as check_kind
from mqbroker.core.queue.queue import QueueKind
from mqbroker.core.selector.selector import compile_selector
from mqbroker.core.store.exported_bodies import Bodies, BodiesIn, Read, rows_of_file
from mqbroker.journal.append import Append
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import DUPLICATE_HEAD_BYTES, ID_MAX, Attempts, encode_attributes
from mqbroker.journal.recovered import Recovered, RecoveredRun
from mqbroker.wire.large import is_large
from mqbroker.wire.parts import parts_of
from mqbroker.wire.run import Run

SCHEMA: Final = "mqbroker.journal/1"
APPEND_BYTES: Final = 1 << 20  # what is gathered of rows before it is written
COUNT_MAX: Final = 0xFFFF_FFFF
DUE_MS_MAX: Final = (1 << 63) - 1
IDS_MAX: Final = 1000  # of one row
ID_BYTES_MAX: Final = 0xFFFF  # of a name, and of an id
ROUTE_TEXT_MAX: Final = 1024  # characters of a name or a key, which no router makes as long


class RecordPiece(NamedTuple):
    """Ids from `first` to before `end` of a record; queue id -> delivery count and due time."""

    first: int
    end: int
    record: RecoveredRun
    queues: dict[int, Attempts]


def rows_of(recovered: Recovered, node_id: str, read: Read | None = None) -> Iterator[dict[str, Any]]:
    """All rows; those of files only with `read`. Raises StorageFault for what a start could not read."""
    for look in (kinds_in, said_in, pins_in, arrived_in):
        deque(look(recovered), 0)
    yield {
        "type": "journal", "schema": SCHEMA, "node_id": node_id, "boot": recovered.boot,
        "next_id": recovered.next_id, "was_clean": recovered.was_clean,
    }  # fmt: skip
    for queue_id, attributes in sorted(recovered.queues.items()):
        yield {"type": "queue", "id": queue_id, "attributes": attributes}
    for name, attributes in sorted(recovered.addresses.items()):
        yield {"type": "address", "name": name, "attributes": attributes}
    for route in routes_of(recovered):
        yield {"type": "route", **route._asdict()}
    yield from _rows_of_ids(recovered)
    messages = 0
    parsed: tuple[RecoveredRun, Run] | None = None
    files: set[int] = set()
    for piece in pieces_of(recovered):
        if parsed is None or parsed[0] is not piece.record:
            parsed = piece.record, run_of(piece.record)
        run = parsed[1]
        if run.large is not None and read is not None and run.large.file not in files:
            files.add(run.large.file)
            yield from rows_of_file(run.large, read)
        indexes = range(piece.first - run.first_id, piece.end - run.first_id)
        dues = {str(queue_id): attempts.due_ms for queue_id, attempts in piece.queues.items() if attempts.due_ms}
        yield {
            "type": "messages", "first_id": piece.first, "arrived_ms": run.arrived_ms,
            "queues": {str(queue_id): attempts.delivery_count for queue_id, attempts in piece.queues.items()},
            **({"due_ms": dues} if dues else {}),
            "frames": [base64.b64encode(run.block(index, 1)).decode() for index in indexes],
        }  # fmt: skip
        messages += len(indexes)
    yield {"type": "end", "queues": len(recovered.queues), "messages": messages}


def _rows_of_ids(recovered: Recovered) -> Iterator[dict[str, Any]]:
    for name, stored in sorted(recovered.duplicates.items()):
        if name.startswith(ROUTES):
            continue
        for begin in range(0, len(stored), IDS_MAX):
            part = stored[begin : begin + IDS_MAX]
            ids = [[each.number, base64.b64encode(each.duplicate_id).decode()] for each in part]
            yield {"type": "ids", "name": name, "ids": ids}


def large_runs(recovered: Recovered) -> Iterator[Run]:
    """Messages that are live and have their bodies in files."""
    for record in recovered.runs:
        if record.live and is_large(bytes(record.frames[:6])):
            yield run_of(record)


def pieces_of(recovered: Recovered) -> list[RecordPiece]:
    """Everything that is live, in the order of ids, cut where queues, delivery counts or due times change."""
    counts = counts_by_queue(recovered)
    pieces: list[RecordPiece] = []
    for record in recovered.runs:
        held: list[tuple[int, int, int, Attempts]] = []
        for queue_id, ranges in record.live.items():
            at_least = delivered_at_least(recovered, queue_id)
            for first, n in ranges:
                for begin, end, (deliveries, due_ms) in by_count(first, first + n, counts.get(queue_id)):
                    held.append((begin, end, queue_id, Attempts(max(deliveries, at_least), due_ms)))
        cuts = sorted({edge for begin, end, _, _ in held for edge in (begin, end)})
        for begin, end in pairwise(cuts):
            queues = {queue_id: attempts for low, high, queue_id, attempts in held if low <= begin and end <= high}
            if queues:
                pieces.append(RecordPiece(begin, end, record, queues))
    pieces.sort(key=lambda piece: piece.first)
    return pieces


class Importer:
    """Rows into a new journal, in their order. Every error names the line (from 1) and says what is wrong with it."""

    def __init__(self, journal: Journal, bodies: Bodies) -> None:
        self._journal = journal
        self._bodies = BodiesIn(bodies)
        self._line = 0
        self._is_begun = False
        self._queues: dict[int, str] = {}
        self._names: dict[str, int] = {}
        self._addresses: set[str] = set()
        self._routes: set[tuple[str, str]] = set()
        self._ids: dict[str, tuple[int, int]] = {}  # the first and the last number of each name
        self._next_id = 1
        self._last_id = 0
        self._size_bytes = 0
        self.messages = 0
        self.is_complete = False

    @property
    def queues(self) -> int:
        """How many there were so far."""
        return len(self._queues)

    def take(self, row: Any) -> Append | None:
        """One row; an append when enough has gathered. Raises ConfigFault."""
        self._line += 1
        kind = row.get("type") if isinstance(row, dict) else None
        if self.is_complete:
            raise self._fault("there is more behind the row of type end")
        if self._is_begun == (kind == "journal"):
            raise self._fault("an export begins with one row of type journal, and has no other")
        try:
            if kind == "journal":
                self._begin(row)
            elif kind == "queue":
                self._queue(int(row["id"]), dict(row["attributes"]))
            elif kind == "address":
                self._address(str(row["name"]), dict(row["attributes"]))
            elif kind == "route":
                self._route(RouterRoute(*(row[name] for name in RouterRoute._fields)))
            elif kind == "ids":
                self._known(str(row["name"]), row["ids"])
            elif kind == "messages":
                self._messages(row)
            elif kind == "file":
                self._require(self._bodies.take(row))
            elif kind == "end":
                self._end(row)
            else:
                raise self._fault(f"there are no rows of type {kind!r}")
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, binascii.Error, Refused) as error:
            raise self._fault(f"a row of type {kind} is not like this: {error!r}") from None
        if self._size_bytes < APPEND_BYTES:
            return None
        self._size_bytes = 0
        return self._journal.take(sync=False)

    def finish(self) -> Append | None:
        """The last append: the journal ends in good order. Raises ConfigFault if the last row is missing."""
        if not self.is_complete:
            raise self._fault("the export is cut off: its last row, of type end, is missing")
        if self._next_id > self._journal.next_id:
            self._journal.reserve(self._next_id)
        self._journal.stop()
        return self._journal.take(sync=True)

    def _begin(self, row: dict[str, Any]) -> None:
        if row["schema"] != SCHEMA:
            raise self._fault(f"schema {row['schema']!r} is not {SCHEMA!r}; take a release that knows it")
        self._next_id = int(row["next_id"])
        if not 0 < self._next_id <= ID_MAX:
            raise self._fault(f"next_id is from 1 to {ID_MAX}, not {self._next_id}")
        self._is_begun = True

    def _queue(self, queue_id: int, attributes: dict[str, Any]) -> None:
        check_kind(attributes)
        kind = QueueKind.of(attributes)
        if not kind.is_internal and max(len(kind.name), len(kind.address)) > NAME_SIZE_MAX:
            raise self._fault(f"the name of queue {queue_id} is too long")
        if kind.selector:
            compile_selector(kind.selector)
        if not 0 < queue_id <= ID_MAX or queue_id in self._queues or kind.name in self._names:
            raise self._fault(f"queue {queue_id} ({kind.name}) is there already, or its id is not from 1 to {ID_MAX}")
        self._queues[queue_id] = kind.name
        self._names[kind.name] = queue_id
        self._journal.declare(queue_id, encode_attributes(attributes))

    def _address(self, name: str, attributes: dict[str, Any]) -> None:
        check_attributes(attributes)
        if not 0 < len(name) <= NAME_SIZE_MAX or name in self._addresses:
            raise self._fault(f"address {name!r} is there already, or its name is empty or too long")
        self._addresses.add(name)
        self._journal.declare_address(name, attributes)

    def _route(self, route: RouterRoute) -> None:
        texts, place = (route.router, route.key, route.target), (route.router, route.key)
        if not all(isinstance(text, str) and len(text) <= ROUTE_TEXT_MAX for text in texts) or place in self._routes:
            why = "is there already, or something of it is no text or is too long"
            raise self._fault(f"the route of {route.key!r} {why}")
        if type(route.used_ms) is not int or not 0 <= route.used_ms <= DUE_MS_MAX:
            raise self._fault(f"the route of {route.key!r} was used at no time")
        self._routes.add(place)
        keep(self._journal, route)

    def _known(self, name: str, ids: list[tuple[int, str]]) -> None:
        for number, text in ids:
            duplicate_id = base64.b64decode(text, validate=True)
            oldest, last = self._ids.get(name, (number, 0))
            is_next = type(number) is int and last < number <= ID_MAX
            if not is_next or max(len(name.encode()), len(duplicate_id)) > ID_BYTES_MAX or name.startswith(ROUTES):
                raise self._fault(f"id {number!r} of {name[:80]!r} does not follow id {last}, or something is too long")
            self._ids[name] = oldest, number
            self._journal.duplicates.add(name, number, duplicate_id, oldest)
            self._size_bytes += len(duplicate_id) + DUPLICATE_HEAD_BYTES

    def _messages(self, row: dict[str, Any]) -> None:
        first, frames = int(row["first_id"]), [base64.b64decode(text, validate=True) for text in row["frames"]]
        queues = {int(queue_id): int(count) for queue_id, count in row["queues"].items()}
        dues = {int(queue_id): int(due_ms) for queue_id, due_ms in row.get("due_ms", {}).items()}
        if not self._last_id < first <= ID_MAX - len(frames) or not frames:
            raise self._fault(f"message {first} does not follow message {self._last_id}, or there is none")
        if not queues or set(queues) - set(self._queues) or not all(0 <= n <= COUNT_MAX for n in queues.values()):
            raise self._fault(f"message {first} is in queues that are not declared before, or in none")
        if not all(queues.get(queue_id) and 0 < due_ms <= DUE_MS_MAX for queue_id, due_ms in dues.items()):
            raise self._fault(f"message {first} is due in a queue that never gave it to anybody, or at no time")
        block, arrived_ms = b"".join(frames), int(row["arrived_ms"])
        if not 0 <= arrived_ms <= DUE_MS_MAX:
            raise self._fault(f"message {first} arrived at no time")
        self._check(RecoveredRun(first, len(frames), memoryview(block), 0, {}, arrived_ms))
        self._journal.store(first, len(frames), sorted(queues), block, arrived_ms)
        for queue_id, count in queues.items():
            if count:
                self._journal.count(queue_id, first, len(frames), count, dues.get(queue_id, 0))
        self._last_id = first + len(frames) - 1
        self._size_bytes += len(block)
        self.messages += len(frames)

    def _check(self, record: RecoveredRun) -> None:
        """Whether a broker could load it."""
        try:
            run = run_of(record)
            is_one = len(parts_of(run)) == 1
        except (StorageFault, PeerFault):
            is_one = False
        if not is_one:
            raise self._fault(f"the frames from message {record.first_id} on are not those of one run")
        if run.large is not None and (why := self._bodies.needed(run.large)):
            raise self._fault(f"message {record.first_id} has its body in a file: {why}")

    def _end(self, row: dict[str, Any]) -> None:
        if (row["queues"], row["messages"]) != (self.queues, self.messages):
            wanted = f"{row['queues']} queues and {row['messages']} messages"
            raise self._fault(f"rows are missing: there were {self.queues} and {self.messages}, and should be {wanted}")
        self._require(self._bodies.end())
        self.is_complete = True

    def _require(self, why: str) -> None:
        if why:
            raise self._fault(why)

    def _fault(self, why: str) -> ConfigFault:
        return ConfigFault(f"line {self._line}", why)
