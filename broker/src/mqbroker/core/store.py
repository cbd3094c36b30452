"""What the node keeps: addresses, queues and their messages, and the journal's view of them.

Invariants: a durable message is deliverable only when its append is synced; a message behind such a one in the same
queue waits with it; `run.live` counts (message, queue) pairs that are not settled. Everything that touches the journal
for messages goes through here, so that memory and disk tell the same story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from mqbroker.base.errors import Bug, Refused, StorageFault
from mqbroker.config.slices import AddressOptions, LimitOptions
from mqbroker.core.address import ANYCAST, Address
from mqbroker.core.decisions import Decisions
from mqbroker.core.memory import Memory
from mqbroker.core.queue import Queue, QueueKind, Segment
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Recovered, RecoveredRun
from mqbroker.wire.run import Run, parse_run

NAME_SIZE_MAX = 1024

InDelivery = Callable[[], Iterator[tuple[Queue, Segment]]]


class Store:
    """Addresses, queues, messages. `in_delivery` tells what is with consumers (segments and their queues)."""

    def __init__(self, limits: LimitOptions, addresses: AddressOptions, journal: Journal) -> None:
        self.limits = limits
        self.options = addresses
        self.journal = journal
        self.decisions = Decisions(journal.position - 1)
        self.memory = Memory(limits.global_max_size_bytes)
        self.addresses: dict[str, Address] = {}
        self.queues: dict[str, Queue] = {}
        self.dirty: dict[Queue, None] = {}
        self.next_id = journal.next_id
        # Since the process began, never less than before: queues may go, these stay.
        self.received_total = 0
        self.received_bytes_total = 0
        self.added_total = 0
        self.unrouted_total = 0
        self.returned_total = 0
        self.acknowledged_total = 0
        self._next_queue_id = 1
        self.in_delivery: InDelivery = lambda: iter(())

    # -- names ---------------------------------------------------------------------------------------------------------

    def address_for(self, name: str) -> Address:
        """The address, made with an anycast queue of its name where that is allowed. Raises Refused."""
        found = self.addresses.get(name)
        if found is not None and found.queues:
            return found
        if not self.options.auto_create_queues:
            raise Refused("amqp:not-found", f"there is no address {name!r}, and auto-create-queues is off")
        self.create_queue(QueueKind(name, name))
        return self.addresses[name]

    def queue_for(self, name: str) -> Queue:
        """The queue to consume from, by its own name. Raises Refused."""
        found = self.queues.get(name)
        if found is None:
            self.address_for(name)
            found = self.queues.get(name)
        if found is None:
            raise Refused(
                "amqp:not-found", f"there is no queue {name!r}; address {name!r} has only queues of other names"
            )
        return found

    def create_queue(self, kind: QueueKind) -> Queue:
        """Make and bind a queue; on disk with this step's append. Raises Refused."""
        for what, name in (("name", kind.name), ("address", kind.address)):
            if not name or len(name) > NAME_SIZE_MAX:
                raise Refused("amqp:invalid-field", f"a queue's {what} has 1 to {NAME_SIZE_MAX} characters")
        if kind.name in self.queues:
            raise Refused("amqp:precondition-failed", f"queue {kind.name!r} exists")
        if len(self.queues) >= self.limits.queues_max:
            raise Refused("amqp:resource-limit-exceeded", f"there are {len(self.queues)} queues, which is queues-max")
        queue_id = self._next_queue_id
        self._next_queue_id += 1
        if kind.is_durable:
            self.journal.declare(queue_id, {"name": kind.name, "address": kind.address, "routing": kind.routing})
        return self._bind(kind, queue_id)

    def _bind(self, kind: QueueKind, queue_id: int) -> Queue:
        queue = self.queues[kind.name] = Queue(kind, queue_id if kind.is_durable else 0)
        address = self.addresses.get(kind.address)
        if address is None:
            address = self.addresses[kind.address] = Address(kind.address)
        address.bind(queue)
        return queue

    # -- messages ------------------------------------------------------------------------------------------------------

    def publish(self, address: Address, run: Run) -> bool:
        """Take a run in. True: its acceptance must wait for this step's append (`decisions.wait`)."""
        run.first_id = self.next_id
        self.next_id += run.count
        self.received_total += run.count
        self.received_bytes_total += run.size_bytes(0, run.count)
        waits = False
        for index, count, queues in address.route(run):
            if not queues:
                address.unrouted_total += count
                self.unrouted_total += count
                continue
            address.routed_total += count
            self.added_total += count * len(queues)
            if not run.live:
                self.memory.hold(run)
            run.live += count * len(queues)
            if run.section.is_durable:
                durable = [queue.journal_id for queue in queues if queue.journal_id]
                if durable:
                    self.journal.store(run.first_id + index, count, durable, run.block(index, count))
                    waits = True
            for queue in queues:
                self._enqueue(queue, Segment(run, index, count, 0))
        return waits

    def _enqueue(self, queue: Queue, segment: Segment) -> None:
        if segment.run.section.is_durable and queue.journal_id:
            queue.add_waiting(segment)
            self.decisions.wait(self._release, queue)
        elif queue.waiting:
            queue.add_waiting(segment)
            self.decisions.wait_for_earlier(self._release, queue)
        else:
            queue.add(segment)
            self.dirty[queue] = None

    def _release(self, queue: Queue) -> None:
        queue.release()
        self.dirty[queue] = None

    def settle(self, queue: Queue, segment: Segment) -> None:
        """Messages that were in delivery have left this queue for good."""
        run = segment.run
        if run.section.is_durable and queue.journal_id:
            self.journal.settle(queue.journal_id, segment.first_id, segment.n)
        queue.settled(segment.n)
        self.acknowledged_total += segment.n
        run.live -= segment.n
        if run.live <= 0:
            if run.live < 0:
                raise Bug(f"run {run.first_id} settled more often than it was routed")
            self.memory.release(run)

    def give_back(self, queue: Queue, segment: Segment, *, was_delivered: bool) -> None:
        """Messages that were in delivery return to their place; `was_delivered` counts one delivery more."""
        if was_delivered:
            segment = segment._replace(deliveries=segment.deliveries + 1)
            if segment.run.section.is_durable and queue.journal_id:
                self.journal.count(queue.journal_id, segment.first_id, segment.n, segment.deliveries)
        queue.put_back(segment)
        self.returned_total += segment.n
        self.dirty[queue] = None

    def consume(self, queue: Queue, start: Callable[[], None]) -> None:
        """Call `start` when the queue may hand out messages to one more consumer.

        After a crash every message of a queue that had a consumer may have been delivered; the journal knows which
        queues those are before the first message leaves.
        """
        if queue.journal_id and not queue.is_consumed:
            queue.is_consumed = True
            self.journal.consumed(queue.journal_id)
            self.decisions.wait(start)
        else:
            self.decisions.wait_for_earlier(start)

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def live_segments(self) -> Iterator[tuple[Queue, Segment]]:
        """Everything that is not settled."""
        for queue in self.queues.values():
            for segment in queue.segments():
                yield queue, segment
        yield from self.in_delivery()

    def upkeep(self) -> bool:
        """One bounded piece of compaction and of memory's sweep; whether there may be more."""
        ranges = self.journal.compactable()
        if ranges:
            self._store_again(ranges)
        if self.memory.wants_sweep:
            self.memory.sweep((segment.run, segment.start, segment.n) for _, segment in self.live_segments())
        return bool(ranges)

    def _store_again(self, ranges: list[tuple[int, int]]) -> None:
        """Journal what is live of these ids once more, each message once with all its queues."""
        low = min(first for first, _ in ranges)
        high = max(first + count for first, count in ranges)
        parts: dict[int, tuple[Run, list[tuple[int, int, int, int]]]] = {}
        for queue, segment in self.live_segments():
            first = segment.first_id
            if first >= high or first + segment.n <= low:
                continue
            if not queue.journal_id or not segment.run.section.is_durable:
                continue
            for start, count in ranges:
                begin, end = max(first, start), min(first + segment.n, start + count)
                if begin < end:
                    known = parts.setdefault(id(segment.run), (segment.run, []))[1]
                    known.append((begin, end, queue.journal_id, segment.deliveries))
        for run, pieces in parts.values():
            self._store_pieces(run, pieces)

    def _store_pieces(self, run: Run, pieces: list[tuple[int, int, int, int]]) -> None:
        cuts = sorted({edge for begin, end, _, _ in pieces for edge in (begin, end)})
        for begin, end in pairwise(cuts):
            here = [piece for piece in pieces if piece[0] <= begin and end <= piece[1]]
            if not here:
                continue
            index, count = begin - run.first_id, end - begin
            self.journal.store(begin, count, [queue_id for _, _, queue_id, _ in here], run.block(index, count))
            for _, _, queue_id, deliveries in here:
                if deliveries:
                    self.journal.count(queue_id, begin, count, deliveries)

    # -- recovery ------------------------------------------------------------------------------------------------------

    def load(self, recovered: Recovered) -> None:
        """Take over what recovery found. Raises StorageFault where a record's frames are not a run."""
        by_id: dict[int, Queue] = {}
        for queue_id, attributes in recovered.queues.items():
            self._next_queue_id = max(self._next_queue_id, queue_id + 1)
            kind = QueueKind(attributes["name"], attributes["address"], attributes.get("routing", ANYCAST))
            by_id[queue_id] = self._bind(kind, queue_id)
        counts = _counts_by_queue(recovered)
        runs: dict[int, Run] = {}
        for queue_id, contents in recovered.queue_contents().items():
            queue = by_id[queue_id]
            extra = int(not recovered.was_clean and queue_id in recovered.consumed)
            for first, count, record in contents:
                run = runs.get(id(record))
                if run is None:
                    run = runs[id(record)] = self._run_of(record)
                run.live += count
                for begin, end, deliveries in _by_count(first, first + count, counts.get(queue_id, {})):
                    queue.add(Segment(run, begin - run.first_id, end - begin, deliveries + extra))
                    if extra:
                        # Written down, because the next crash may come before this queue has a consumer again.
                        self.journal.count(queue_id, begin, end - begin, deliveries + extra)
        for run in runs.values():
            self.memory.hold(run)
        self.dirty.update(dict.fromkeys(by_id.values()))

    def _run_of(self, record: RecoveredRun) -> Run:
        frames = bytes(record.frames)
        parsed = parse_run(frames, 0, len(frames), record.count, 0xFFFFFFFF)
        if parsed is None or parsed.run.count != record.count:
            found = 0 if parsed is None else parsed.run.count
            why = f"the record of messages {record.first_id}+{record.count} holds {found} frames of one shape"
            raise StorageFault(f"journal segment {record.segment}", -1, why, "restore the data directory from a backup")
        parsed.run.first_id = record.first_id
        return parsed.run


def _counts_by_queue(recovered: Recovered) -> dict[int, dict[int, int]]:
    """queue id -> message id -> delivery count; later records win."""
    found: dict[int, dict[int, int]] = {}
    for count in recovered.counts:
        of_queue = found.setdefault(count.queue_id, {})
        for message_id in range(count.first_id, count.first_id + count.n):
            of_queue[message_id] = count.delivery_count
    return found


def _by_count(first: int, end: int, counts: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """Split a range of ids where the delivery count changes: (begin, end, count)."""
    if not counts:
        yield first, end, 0
        return
    begin = first
    while begin < end:
        deliveries = counts.get(begin, 0)
        stop = begin + 1
        while stop < end and counts.get(stop, 0) == deliveries:
            stop += 1
        yield begin, stop, deliveries
        begin = stop


def attributes_of(queue: Queue) -> dict[str, Any]:
    """What admin shows of a queue."""
    return {
        "name": queue.kind.name,
        "address": queue.kind.address,
        "routing_type": queue.kind.routing,
        "durable": queue.kind.is_durable,
        "message_count": queue.message_count,
        "delivering_count": queue.delivering_count,
        "consumer_count": len(queue.consumers),
        "messages_added": queue.added_total,
        "messages_acknowledged": queue.acknowledged_total,
    }
