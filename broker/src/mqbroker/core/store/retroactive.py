"""What an address keeps for queues that are made later: its newest messages, in a ring that nobody consumes from.

The ring is a queue as all others, so the journal, recovery and compaction know it; clients do not, nor do other nodes
of a cluster, and what it holds counts at no bound of its address. It is made by the first message. A queue that is made
later gets copies: new messages with the same bytes, as far as its selector wants them, in the append that makes it.
Nothing comes back by that: not what was expired by then, and no dead letters to queues that keep those of one address.
What a subscriber published itself is not known of old messages, so one without it (`no-local`) gets none of them. A
message of the past makes room for those of the present: where the memory is full, rings give up their oldest.
The rings of a node that leaves for good drain as its queues do, each to a new one at the heir, so that each is in the
order of one; queues that are made there later get the newest of all of them, by when they came to the first node.
Source: Artemis's manual, "Retroactive Addresses"; docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING

from mqbroker.amqp import frame_costs
from mqbroker.base.look import LOOK
from mqbroker.core.address.address import Address, parts_by
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.cluster_bindings import passes
from mqbroker.core.queue.backlog import OVERFLOWED, Segment, first_id_of
from mqbroker.core.queue.kinds import INTERNAL_PREFIX, RETROACTIVE, RING_PREFIX, TEMPORARY_PREFIX, QueueKind
from mqbroker.core.queue.message_view import view_at
from mqbroker.core.queue.moved_message import came_ms
from mqbroker.wire.parts import part_of
from mqbroker.wire.run import Run

if TYPE_CHECKING:
    from mqbroker.core.address.overdue import Overdue
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.core.queue.queue import Queue

KeptPiece = tuple[int, str, Segment, "Queue"]  # when it came first, the name of its ring, and what


class Retroactive:
    """The rings of all addresses."""

    def __init__(self, store: ClusterStore, overdue: Overdue) -> None:
        self._store = store
        self._overdue = overdue
        self._rings: dict[str, Queue] = {}  # by the queue's name

    def count_at(self, name: str) -> int:
        """How many messages an address keeps. One that ends with its client keeps none."""
        if name.startswith((TEMPORARY_PREFIX, INTERNAL_PREFIX)):
            return 0
        return self._store.settings.of(name).retroactive_message_count

    def ring_of(self, address: Address) -> Queue:
        """The ring of an address that keeps messages; a new one is on disk with this step's append."""
        ring = self._store.addresses.get(address.name, address).ring  # one for what comes again has none of its own
        if ring is not None:
            return ring
        kind = QueueKind(RING_PREFIX + address.name, address.name, RETROACTIVE, ring_size=address.retains_max)
        return self._store.add_queue(kind)

    def added(self, ring: Queue) -> None:
        """A ring was made, or recovery found it."""
        LOOK.has_touched = True
        self._rings[ring.kind.name] = ring

    def gone(self, ring: Queue) -> None:
        """The ring of an address was deleted."""
        LOOK.has_touched = True
        del self._rings[ring.kind.name]

    def apply(self) -> Iterator[int]:
        """Other settings hold, or may do so since the last run of the process: rings shrink, grow and end.

        Each address is a piece, and yields what it cost, in units of amqp/frame_costs.py.
        """
        for address in list(self._store.addresses.values()):
            self._apply(address)
            yield frame_costs.DUE

    def _apply(self, address: Address) -> None:
        store = self._store
        count = self.count_at(address.name)
        LOOK.has_touched = True
        address.retains_max = count
        for ring in address.rings:
            is_idle = not (ring.kind.is_draining or ring.consumers or ring.arriving_count or ring.delivering_count)
            if is_idle and (not count or (ring is not address.ring and not ring.message_count)):
                store.delete_queue(ring, BROKER)
            elif ring.kind.ring_size != count:
                ring.kind = replace(ring.kind, ring_size=count)
                store.journal.declare(ring.journal_id, ring.kind.encoded())
                store.changed(ring)
                self._overdue.add(ring)

    # -- what comes of nodes that leave --------------------------------------------------------------------------------

    def moves_here(self, kind: QueueKind) -> Queue:
        """The ring for what comes of another node's, with as much room as one of this node's."""
        address = self._store.addresses.get(kind.address)
        count = self.count_at(kind.address) if address is None else address.retains_max
        return self._store.add_queue(replace(kind, ring_size=count))

    def all_came(self, came: Queue) -> None:
        """All of a ring is here: what is not of the newest of all of them goes, and rings that hold nothing."""
        address = self._store.addresses[came.kind.address]
        rings = [each for each in address.rings if each is not address.ring and not each.kind.is_draining]
        kept = self._newest(address, address.retains_max)
        LOOK.has_touched = True
        for ring in rings:
            excess = ring.backlog.count - sum(piece.n for _, _, piece, of in kept if of is ring)
            while excess > 0:
                taken = ring.backlog.take_oldest(excess)
                excess -= taken.n
                ring.gone.append((OVERFLOWED, taken))
            self._store.changed(ring)
            if ring is not came:
                self.parted(ring)

    def parted(self, ring: Queue) -> None:
        """The link on which messages of a ring came is gone, or it has lost some: one that is empty is not kept."""
        if not (ring.is_deleted or ring.message_count or ring.kind.is_draining):
            self._store.delete_queue(ring, BROKER)
            self._store.forget_address(ring.kind.address)

    def _newest(self, address: Address, count: int) -> list[KeptPiece]:
        """The newest messages of all rings of an address, newest first; as many at least, where there are."""
        kept = [each for ring in address.rings for each in _kept_in(ring, is_own=ring is address.ring)]
        return nlargest(count, kept, key=lambda each: (*each[:2], first_id_of(each[2]))) if count else []

    def give(self, queue: Queue) -> None:
        """A new queue gets what its address keeps, oldest first; where there is no room for all, the newest of it."""
        address = self._store.addresses[queue.kind.address]
        if not address.rings or queue.kind.moved_from or queue.kind.no_local:
            return
        LOOK.has_touched = True
        for segment in self._fitting(address):
            copy = self._copied(segment)
            for index, count, takers in parts_by(copy.count, partial(_takers, queue, copy)):
                if takers:
                    self._store.put(address, Segment(copy, index, count, 0), takers)

    def keep(self, address: Address, segment: Segment) -> None:
        """What none of its queues took is kept, as a message of its own."""
        copy = self._copied(segment)
        self._store.put(address, Segment(copy, 0, copy.count, 0), [self.ring_of(address)])

    def _copied(self, segment: Segment) -> Run:
        run = segment.run
        copy = part_of(run, segment.start, segment.start + segment.n, run.traits)
        LOOK.has_touched = True
        copy.arrived_ms, copy.expires_ms = run.arrived_ms, run.expires_ms
        self._store.name_next(copy)
        return copy

    def _fitting(self, address: Address) -> list[Segment]:
        memory, meter, now_ms = self._store.memory, address.meter, self._store.at.wall_ms
        fitting: list[Segment] = []
        size_bytes, messages = 0, 0
        for _, _, segment, _ in self._newest(address, address.retains_max):
            run, left = segment.run, address.retains_max - messages  # of one that was made smaller not all are gone
            if left <= 0:
                break
            if left < segment.n:
                segment = segment.part(segment.start + segment.n - left, left)
            if 0 < run.expires_ms <= now_ms:
                continue
            is_tight = meter is not None and meter.would_be_full(meter.size_bytes + size_bytes, meter.count + messages)
            size_bytes += run.size_bytes(segment.start, segment.n)
            messages += segment.n
            is_tight = is_tight or memory.held_bytes + size_bytes > memory.max_bytes
            if memory.is_shut or (is_tight and not address.can_page):
                break
            fitting.append(segment)
        fitting.reverse()
        return fitting

    def make_room(self) -> None:
        """The memory has no room: the oldest messages of rings go until it has room, or they are empty."""
        memory = self._store.memory
        for ring in self._rings.values():
            while ring.backlog.count and memory.is_tight and not ring.kind.is_draining:  # the heir may have some
                ring.gone.append((OVERFLOWED, ring.backlog.take_oldest(ring.backlog.count)))
                self._store.dead_letters.clear(ring)


def _kept_in(ring: Queue, *, is_own: bool) -> Iterator[KeptPiece]:
    """Of what came from other nodes each message says when it came there first. None is newer than what came behind
    it, whatever a clock said."""
    latest_ms = 0
    for segment in sorted(ring.segments(), key=first_id_of):
        for piece in [segment] if is_own else [segment.part(segment.start + i, 1) for i in range(segment.n)]:
            latest_ms = max(latest_ms, piece.run.arrived_ms if is_own else came_ms(piece.run, piece.start))
            yield latest_ms, ring.kind.name, piece, ring


def _takers(queue: Queue, run: Run, index: int) -> list[Queue]:
    view = None if queue.filter is None else view_at(run, index, queue.kind.address)
    return [queue] if passes(queue, view) else []
