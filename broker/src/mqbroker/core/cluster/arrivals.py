"""Messages that other nodes forward: into the queues that they name, and each of them once.

The source numbers its messages, and sends again what it has no answer for. The ranges of ids that have arrived from
each of its queues are kept with the messages, in the same append, as ids of duplicate detection are, and under a name
that no address has. The last IDS_MAX messages of a source are enough, because it holds back so that only those may come
again (core/queue/unanswered_forwards.py). One id under two marks (core/cluster/marks.py) is two messages, so each mark
of a source has ranges of its own. Source: docs/adr/0012-cluster-connections.md, docs/adr/0014-message-identity.md,
docs/adr/0015-handed-over.md."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.address.address import Address
from mqbroker.core.address.stored_tables import unreadable
from mqbroker.core.cluster.id_digest import NO_IDS, PACKED_SIZE_BYTES, IdDigest
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.id_ranges import IdRanges
from mqbroker.core.queue.kinds import INTERNAL_PREFIX, NODE_ID_SIZE
from mqbroker.core.queue.message_view import view_at
from mqbroker.core.queue.meter import PAGE
from mqbroker.core.queue.times import expires_ms
from mqbroker.core.queue.unanswered_forwards import WINDOW
from mqbroker.wire.parts import part_of, parts_of

if TYPE_CHECKING:
    from mqbroker.core.cluster.cluster_bindings import Remote
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.core.queue.queue import Queue
    from mqbroker.journal.recovered import Recovered
    from mqbroker.wire.run import Run

PREFIX: Final = INTERNAL_PREFIX + "arrived."
DIGEST_PREFIX: Final = INTERNAL_PREFIX + "arrived-digest."  # of all that came of a queue that drains, by its source
IDS_MAX: Final = 2 * WINDOW  # messages of a source that are known at least: all that may come again are of these
SOURCES_MAX: Final = 10_000  # each mark of one counts; there are more only where more have links
SOURCE_MARKS_MAX: Final = 1_000  # of one source
MARKED: Final = "#"  # between a source and a mark, which has none
_RANGE: Final = Struct(">QI")
DIGEST_NUMBER: Final = 1  # of the one that stands under each name


class Arrival(Address):
    """Where the messages of one link of another node go. `names`: queues, by their names in the cluster; `key`: what is
    known of its source is known under this name."""

    __slots__ = ("is_counted", "key", "names", "queue", "source")

    def __init__(self, whole: Address, source: str, names: tuple[str, ...]) -> None:
        super().__init__(whole.name, whole.meter, pages=whole.pages)
        self.target = ""
        self.source = self.key = source
        self.names = names
        self.is_counted = False  # whether a digest is kept of what comes
        self.queue: Queue | None = None  # of one that drains here: a later one of its name is another subscription
        self.can_page = whole.can_page
        self.is_topic = True  # nothing is made for it

    def numbered_under(self, mark: str) -> None:
        """What comes from now on has ids under this mark; an older release has none."""
        LOOK.has_touched = True
        self.key = f"{self.source}{MARKED}{mark}" if mark else self.source


def _values_of(run: Run, queues: list[Queue]) -> Iterator[Run]:
    """Parts of one shape; a message each where a queue tells by a property of its own which value it replaces."""
    for part in parts_of(run):
        if part.count > 1 and any(queue.kind.last_value_key for queue in queues):
            yield from (part_of(part, index, index + 1, part.traits) for index in range(part.count))
        else:
            yield part


def _there(queue: Queue) -> list[Queue]:
    return [] if queue.is_deleted else [queue]


def source_of(key: str) -> str:
    """Of an `Arrival.key`. The name of a queue may have a # in it, but has a dot behind."""
    source, _, mark = key.rpartition(MARKED)
    return key if not source or "." in mark else source


class ArrivedRanges:
    """What arrived of one source: number -> (first id, count), in the order in which it came."""

    __slots__ = ("_ids", "count", "known", "next_number")

    def __init__(self) -> None:
        self.known: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._ids = IdRanges()  # the same by id, because what is sent again comes in any order
        self.count = 0
        self.next_number = 1

    def add(self, number: int, first: int, count: int) -> None:
        """These messages have arrived: `count` ids from `first` on, under this number."""
        LOOK.has_touched = True
        self.known[number] = first, count
        self.next_number = number + 1
        self.count += count
        self._ids.add(first, first + count)
        while len(self.known) > 1 and self.count - self.known[self.oldest][1] >= IDS_MAX:
            begin, n = self.known.pop(self.oldest)
            self.count -= n
            self._ids.remove(begin, begin + n)

    @property
    def oldest(self) -> int:
        """The number of the first that is kept."""
        return next(iter(self.known))

    def fresh(self, first: int, count: int) -> list[tuple[int, int]]:
        """Which of these (index, count) have not arrived."""
        return [(low - first, high - low) for low, high in self._ids.missing(first, first + count)]


class Arrivals:
    """All sources. Since the process began, `arrived_total` counts messages and `dropped_total` those that had arrived
    before."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self._ranges: dict[str, ArrivedRanges] = {}  # by key
        self._keys: dict[str, list[str]] = {}  # by source; what was heard of last comes last
        self._digests: dict[str, IdDigest] = {}  # by source: of all durable messages that came while it was counted
        self._counted: dict[str, None] = {}  # sources of which one is kept, as far as they had a link in this process
        self._links: dict[str, int] = {}  # by source, where it has any
        self._parted: dict[str, None] = {}  # sources that are known and have none; whose ended last comes last
        self.node_id = store.node_id
        self.arrived_total = 0
        self.dropped_total = 0

    def address_for(self, address: str, source: str, names: tuple[str, ...]) -> Arrival | None:
        """For a link of another node on which messages of an address come; None where none of the queues is known.

        `source` names that node and its queue. One that has sent before is heard also without a queue: what it sends
        again may have gone on from here, and must not take another way as well.
        """
        whole = self._store.addresses.get(address)
        if source in self._keys:
            whole = whole or self._nowhere(address)
        elif whole is None or not self._queues(whole, names, source[:NODE_ID_SIZE]):
            return None
        return Arrival(whole, source, names)

    def _nowhere(self, name: str) -> Address:
        """An address that is not there, and is not made: nobody would forget it."""
        settings = self._store.settings.of(name)
        return Address(name, self._store.meters.of(name, settings), pages=settings.address_full_policy == PAGE)

    def publish(self, arrival: Arrival, run: Run, first_id: int) -> bool | None:
        """Take messages in whose source has numbered them from `first_id` on. True: as `Store.publish`.

        None: none of their queues is here any more, some of them have not come before, and nothing was taken.
        """
        store = self._store
        whole = store.addresses.get(arrival.name, arrival)
        sender = arrival.source[:NODE_ID_SIZE]
        queues = self._queues(whole, arrival.names, sender) if arrival.queue is None else _there(arrival.queue)
        if not queues and not self._has_come(arrival.key, first_id, run.count):
            return None
        known = self._known(arrival.key)
        waits, went = False, 0
        for index, count in known.fresh(first_id, run.count):
            part = run if count == run.count else part_of(run, index, index + count)
            waits = self._take_in(whole, part, queues) or waits
            if queues and len(arrival.names) > 1:
                waits = self._hand_on(whole, part, arrival.names) or waits
            self._note(arrival.key, first_id + index, count, is_durable=waits)
            if arrival.is_counted and waits:
                self._digest(arrival.source, first_id + index, count)
            went += count
        LOOK.has_touched = True
        self.arrived_total += went
        self.dropped_total += run.count - went
        if went < run.count and run.section.is_durable and not store.decisions.is_idle:
            self._say_again(arrival.key)
            return True  # what came first may not be on disk yet
        return waits

    def _take_in(self, address: Address, run: Run, queues: list[Queue]) -> bool:
        store = self._store
        waits = False
        LOOK.has_touched = True
        for part in _values_of(run, queues):
            part.arrived_ms = store.at.wall_ms
            part.expires_ms = expires_ms(part, store.settings.of(address.name))
            store.number(part)
            address.routed_total += part.count
            deliveries = part.section.delivery_count  # another node has counted them
            segment = Segment(part, 0, part.count, deliveries)
            takers = [queue for queue in queues if not queue.is_outdated(segment)]
            if len(takers) < len(queues):
                store.dead_letters.outdated((each for each in queues if each not in takers), part.first_id)
                waits = waits or run.section.is_durable  # else it could come again when the later one is gone
            if takers:
                waits = store.put(address, segment, takers) or waits
        return waits

    def _hand_on(self, address: Address, run: Run, names: tuple[str, ...]) -> bool:
        """What some of the queues of these names took, of which others are gone: who sent it has no more of it, and so
        another node that has the same subscription, or this one, gets the copies of these."""
        gone = [
            name[:-NODE_ID_SIZE]
            for name in names
            if self._here(address, name) is None and self._further(address, name) is None
        ]
        waits = False
        for index in range(run.count if gone else 0):
            view = view_at(run, index, address.name)
            if takers := self._store.remotes.redistribution.takers(address, gone, view):
                waits = self._take_in(address, part_of(run, index, index + 1), takers) or waits
        return waits

    def _queues(self, address: Address, names: tuple[str, ...], sender: str) -> list[Queue]:
        """Those of this node, and store-and-forward queues for those further on, but not back to who sends."""
        queues: list[Queue] = []
        for name in names:
            queue, remote = self._here(address, name), self._further(address, name)
            if queue is not None:
                queues.append(queue)
            elif remote is not None and remote.binding.target != sender:  # who sends it knows no other way
                queues += remote.via.queues_for(address, [remote.binding])
        return queues

    def _here(self, address: Address, name: str) -> Queue | None:
        queue = self._store.remotes.queue_here(name, self.node_id)
        return queue if queue is not None and queue.kind.address == address.name else None

    def _further(self, address: Address, name: str) -> Remote | None:
        remote = self._store.remotes.by_name.get(name)
        return remote if remote is not None and remote.binding.address == address.name else None

    # -- what has arrived ----------------------------------------------------------------------------------------------

    def _has_come(self, key: str, first_id: int, count: int) -> bool:
        """Whether all of these have arrived before."""
        known = self._ranges.get(key)
        return known is not None and not known.fresh(first_id, count)

    def _known(self, key: str) -> ArrivedRanges:
        ranges = self._ranges.get(key)
        LOOK.has_touched = True
        if ranges is None:
            if len(self._ranges) >= SOURCES_MAX and self._parted:  # who has a link is going to send
                self._forget_key(self._keys[next(iter(self._parted))][0])
            source = source_of(key)
            if source not in self._links:
                self._parted.setdefault(source)
            keys = self._keys.setdefault(source, [])
            number = max((self._ranges[each].next_number for each in keys), default=1)
            while len(keys) >= SOURCE_MARKS_MAX or sum(self._ranges[each].count for each in keys[1:]) >= IDS_MAX:
                self._forget_key(keys[0])  # none of it is without an answer
            keys.append(key)
            ranges = self._ranges[key] = ArrivedRanges()
            ranges.next_number = number
        return ranges

    def _note(self, key: str, first: int, count: int, *, is_durable: bool) -> None:
        known = self._ranges[key]
        number = known.next_number
        LOOK.has_touched = True
        known.add(number, first, count)
        if is_durable:
            self._store.journal.duplicates.add(PREFIX + key, number, _RANGE.pack(first, count), known.oldest)

    def counted(self, arrival: Arrival) -> IdDigest:
        """What comes on this link is counted; what has come of its source so far."""
        LOOK.has_touched = True
        arrival.is_counted = True
        self._counted[arrival.source] = None
        arrival.queue = self._store.remotes.queue_here(arrival.names[0], self.node_id)
        if arrival.queue is not None and arrival.queue.kind.is_ring:
            arrival.meter = None  # what is kept for later queues counts at no bound of its address
        return self._digests.get(arrival.source, NO_IDS)

    def come(self, source: str) -> None:
        """All of a queue that drains here is here: that its namesake was here is kept, in the append that made it."""
        LOOK.has_touched = True
        if source not in self._digests and len(self._digests) < SOURCES_MAX:
            self._say_digest(source, NO_IDS)

    def had_here(self, source: str) -> bool:
        """Whether the namesake of a queue that drains was on disk here."""
        return source in self._digests

    def drained_here(self) -> list[str]:
        """Sources that have a link, and are queues that drain to their namesakes here."""
        return [source for source in self._counted if source in self._links]

    def has_link(self, source: str) -> bool:
        """Whether this source has one."""
        return source in self._links

    def is_linked(self, node_id: str) -> bool:
        """Whether a link of that node is there on which messages come."""
        return any(source.startswith(node_id) for source in self._links)

    def _digest(self, source: str, first: int, count: int) -> None:
        self._say_digest(source, self._digests.get(source, NO_IDS).plus(first, count))

    def _say_digest(self, source: str, digest: IdDigest) -> None:
        LOOK.has_touched = True
        self._digests[source] = digest
        self._store.journal.duplicates.add(DIGEST_PREFIX + source, DIGEST_NUMBER, digest.packed(), DIGEST_NUMBER)

    def _say_again(self, key: str) -> None:
        """The last one once more, so that there is an append."""
        known = self._ranges[key]
        number = next(reversed(known.known))
        said = _RANGE.pack(*known.known[number])
        self._store.journal.duplicates.add(PREFIX + key, number, said, known.oldest)

    def attached(self, source: str) -> None:
        """The source has a link more."""
        LOOK.has_touched = True
        self._links[source] = self._links.get(source, 0) + 1
        self._parted.pop(source, None)

    def detached(self, source: str, *, is_for_good: bool) -> None:
        """It has one less; `is_for_good`: its queue is gone, and nothing of it comes again."""
        LOOK.has_touched = True
        left = self._links.pop(source, 1) - 1
        if left:
            self._links[source] = left
        else:
            self._counted.pop(source, None)
            if is_for_good:
                self.forget(source)
            elif source in self._keys:
                self._parted[source] = None

    def forget(self, source: str) -> None:
        """The source is gone for good."""
        for key in list(self._keys.get(source, ())):
            self._forget_key(key)
        self._forget_digest(source)

    def _forget_key(self, key: str) -> None:
        source = source_of(key)
        LOOK.has_touched = True
        self._keys[source].remove(key)
        if not self._keys[source]:
            del self._keys[source]
            self._parted.pop(source, None)
            self._forget_digest(source)
        del self._ranges[key]
        self._store.journal.duplicates.drop(PREFIX + key)

    def _forget_digest(self, source: str) -> None:
        LOOK.has_touched = True
        if self._digests.pop(source, None) is not None:
            self._store.journal.duplicates.drop(DIGEST_PREFIX + source)

    def load(self, recovered: Recovered) -> None:
        """Take over what recovery found. Raises StorageFault."""
        for key, number, first, count in arrived_in(recovered):
            if key not in self._ranges:
                self._ranges[key] = ArrivedRanges()
                self._keys.setdefault(source_of(key), []).append(key)
            self._ranges[key].add(number, first, count)
        for name, stored in recovered.duplicates.items():
            if name.startswith(DIGEST_PREFIX) and stored:
                self._digests[name.removeprefix(DIGEST_PREFIX)] = _digest_in(name, stored[-1].duplicate_id)
        self._parted = dict.fromkeys(self._keys)
        for keys in self._keys.values():
            keys.sort(key=lambda each: self._ranges[each].next_number)


def _digest_in(name: str, packed: bytes) -> IdDigest:
    """Raises StorageFault."""
    if len(packed) != PACKED_SIZE_BYTES:
        raise unreadable(f"how much has come, {name!r}", f"it has {len(packed)} bytes")
    return IdDigest.of(packed)


def arrived_in(recovered: Recovered) -> Iterator[tuple[str, int, int, int]]:
    """What has come, in its order: key of the source, number, first id, count. Raises StorageFault."""
    for name, stored in recovered.duplicates.items():
        for each in stored if name.startswith(PREFIX) else ():
            if len(each.duplicate_id) != _RANGE.size:
                raise unreadable(f"what has come from {name!r}", f"a range has {len(each.duplicate_id)} bytes")
            first, count = _RANGE.unpack(each.duplicate_id)
            yield name.removeprefix(PREFIX), each.number, first, count
