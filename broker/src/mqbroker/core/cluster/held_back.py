"""Messages of queues that drain which a node that is no heir any more may have: they wait for its answer, apart.

They went out to it and were not answered, so they can go to nobody else without being there twice. They are in a queue
of their own that only a link to that node serves, over which they go as before: same name, same ids, so that it takes
each once. For everybody else they are in delivery from the queue of clients; the journal has them there, and keeps
beside it which ids these are, so a start takes them out again. What is still paged is taken out as it comes from the
disk. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.address.stored_tables import unreadable
from mqbroker.core.cluster.drains import number_of
from mqbroker.core.cluster.remote_binding import cluster_name_of
from mqbroker.core.queue.draining import ID_END
from mqbroker.core.queue.id_ranges import IdRanges
from mqbroker.core.queue.kinds import INTERNAL_PREFIX
from mqbroker.core.queue.queue import Queue
from mqbroker.core.queue.unanswered_forwards import WINDOW, HandedOver

if TYPE_CHECKING:
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.cluster.queue_tally import HeirShare
    from mqbroker.core.queue.kinds import QueueKind
    from mqbroker.core.queue.queue import Segment
    from mqbroker.journal.recovered import Recovered

FOREVER_MS: Final = 1 << 63
NUMBER: Final = 1  # of the first that stands under each name
PREFIX: Final = INTERNAL_PREFIX + "scale-down-held."
PAGED_MAX: Final = WINDOW  # messages of one queue that are in memory for it, beyond what was so already
# Of ids; beyond that what lies between the nearest waits as well, if it does for nobody else.
STRETCHES_MAX: Final = 1_000
STRETCHES_SAID_MAX: Final = 4_000  # in one piece of what the journal has, which has less than 64 KiB
_STRETCH: Final = Struct(">QQ")


class Held:
    """What one node may have of a queue, which is `of`: it is in `queue`, whose link has the name in its kind. `ids`:
    those that wait, as far as they are there."""

    __slots__ = ("ids", "of", "queue", "why")

    def __init__(self, of: Queue, kind: QueueKind, ids: IdRanges) -> None:
        LOOK.has_touched = True
        self.of: Final = of
        self.ids: Final = ids
        self.why = ""  # that node refuses its link for this reason
        self.queue: Final = Queue(kind, of.journal_id)
        self.queue.part_of = of
        self.queue.meter = of.meter
        self.queue.handed_over = HandedOver()
        self.queue.handed_over.begun_before(ID_END)

    @property
    def kind(self) -> QueueKind:
        """Where they go, and under which name."""
        return self.queue.kind

    @property
    def message_count(self) -> int:
        """How many messages wait there."""
        return self.queue.message_count

    def take_over(self, segment: Segment) -> None:
        """These, which are in delivery from the queue."""
        LOOK.has_touched = True
        self.queue.add(segment)

    def take_out(self, room: int) -> int:
        """What is in the queue by now, so many messages at most; how many these were."""
        backlog, before = self.of.backlog, room
        for first, end in self.ids:
            for segment in list(backlog.of_ids(first, end)) if room > 0 else ():
                skip = max(first - segment.first_id, 0)
                count = min(end - segment.first_id - skip, segment.n - skip, room)
                if count > 0:
                    self.take_over(self.of.take_at(segment.rank + skip, count))
                    room -= count
        return before - room

    @property
    def has_any(self) -> bool:
        """Whether something of it waits, here or in the queue."""
        return self.has_due(FOREVER_MS)

    def has_due(self, until_ms: int) -> bool:
        """Whether something of it waits, here or in the queue, that is due by then."""
        if self.message_count:
            return True
        of, (pages, backlog) = self.of, (self.of.pages, self.of.backlog)
        is_here = any(next(backlog.of_ids(first, end), None) is not None for first, end in self.ids)
        is_paged = pages is not None and any(next(iter(pages.within(*each)), None) is not None for each in self.ids)
        again = (segment for due_ms, _, segment in of.scheduled if due_ms <= until_ms)
        is_due_later = any(self.ids.within(each.first_id, each.first_id + each.n) for each in again)
        return is_here or is_paged or is_due_later


class HeldBack:
    """Of one node. By the name of a queue those of its past heirs of which something is still to be heard."""

    def __init__(self, store: AddressStore) -> None:
        self._store: Final = store
        self.by_name: dict[str, list[Held]] = {}

    def __iter__(self) -> Iterator[Held]:
        for queues in list(self.by_name.values()):
            yield from list(queues)

    def to(self, target: str, connection: str) -> list[Held]:
        """Those that wait for a node."""
        return [each for each in self if (each.kind.forwards_to, each.kind.connection) == (target, connection)]

    def fresh(self, queue: Queue, ids: IdRanges) -> IdRanges:
        """Of these ids of a queue those that wait for no node. The others went to none since: nobody knows that after a
        start, so they may be among what the node may have that the queue went to last."""
        fresh, apart = IdRanges(), self._ids_of(queue)
        for first, end in ids:
            for stretch in apart.missing(first, end):
                fresh.add(*stretch)
        return fresh

    def _ids_of(self, queue: Queue) -> IdRanges:
        """All that wait, for whom ever."""
        ids = IdRanges()
        for first, end in (stretch for each in self.of(queue) for stretch in each.ids):
            ids.add(first, end)
        return ids

    def begin(self, queue: Queue, kind: QueueKind, ids: IdRanges) -> Held:
        """These ids of a queue, which goes elsewhere from now on and of which none waits yet, wait for the node that
        this says."""
        LOOK.has_touched = True
        ids = _few(queue, ids, self._ids_of(queue))
        said = [_STRETCH.pack(*each) for each in ids]
        for number, at in enumerate(range(0, len(said), STRETCHES_SAID_MAX), NUMBER):
            piece = b"".join(said[at : at + STRETCHES_SAID_MAX])
            self._store.journal.duplicates.add(_name_of(kind), number, piece, NUMBER)
        return self.add(queue, kind, ids)

    def add(self, queue: Queue, kind: QueueKind, ids: IdRanges) -> Held:
        """The same where the journal knows it: what the process before has kept apart."""
        held = Held(queue, kind, ids)
        LOOK.has_touched = True
        self.by_name.setdefault(queue.kind.name, []).append(held)
        queue.apart.append(ids)
        held.take_out(queue.backlog.count)
        return held

    def take_out(self, queue: Queue) -> None:
        """What has come into a queue since, from the disk or as its time came, is apart as far as there is room."""
        for held in self.of(queue):
            if held.take_out(PAGED_MAX - held.message_count):
                self._store.changed(held.queue)
                self._store.changed(queue)

    def apart_count(self, queue: Queue) -> int:
        """How many messages of a queue wait apart."""
        return 0 if queue.part_of is not None else sum(each.message_count for each in self.of(queue))

    def of(self, queue: Queue) -> Sequence[Held]:
        """What past heirs may have of one queue; empty: nothing."""
        return self.by_name.get(queue.kind.name, ())

    def has_any_of(self, queue: Queue) -> bool:
        """Whether something of it waits apart, or is still to be taken out."""
        return any(each.has_any for each in self.of(queue))

    def aside(self, queue: Queue, segment: Segment) -> tuple[int, int]:
        """Messages of a queue that are on their way out of it: how many of the first ones were put apart, and how many
        behind them may go on. Both are 0 where the first one has to wait until there is room for it."""
        fresh = segment.n
        for held in self.of(queue):
            stretches = held.ids.within(segment.first_id, segment.first_id + segment.n)
            if not stretches:
                continue
            first, end = stretches[0]
            if first > segment.first_id:
                fresh = min(fresh, first - segment.first_id)
            elif held.message_count >= PAGED_MAX:
                return 0, 0
            else:
                held.take_over(segment.part(segment.start, end - first))
                self._store.changed(held.queue)  # its link may have nothing else to do
                return end - first, 0
        return 0, fresh

    def give_back(self, held: Held) -> int:
        """Nobody waits for that node any more: what it may have is in its queue again; how many messages."""
        self.end(held)
        count, backlog = held.queue.backlog.count, held.queue.backlog
        LOOK.has_touched = True
        while backlog.count:
            segment = backlog.take(backlog.count)
            held.of.put_back(segment)
            self._store.tell_returned(held.of, segment)
        held.of.look_for_expired()
        self._store.changed(held.of)
        return count

    def stuck(self, queue: Queue, why: str) -> None:
        """That node does not let in what is in this part of a queue, for this reason; empty: it does."""
        LOOK.has_touched = True
        for held in self.of(queue):
            if held.queue is queue:
                held.why = why

    def refused(self, queue: Queue, *, is_all: bool) -> None:
        """The node that may have what is in this one, which is a part of another, has said that it has not: of all, or
        of those that it refused one by one. They are in their queue again."""
        held = next((each for each in self if each.queue is queue), None)
        LOOK.has_touched = True
        if held is None or queue.handed_over is None:
            return
        if is_all:
            self.give_back(held)
            return
        for segment in list(queue.backlog):
            count = queue.handed_over.free_count(segment.first_id, segment.n)
            if count:
                taken = queue.backlog.take_at(segment.rank, count)
                held.ids.remove(taken.first_id, taken.first_id + count)
                held.of.put_back(taken)
                self._store.tell_returned(held.of, taken)
        self._store.changed(held.of)

    def end(self, held: Held) -> None:
        """It is over: nothing is in it, or that is dealt with."""
        name = held.of.kind.name
        LOOK.has_touched = True
        self.by_name[name].remove(held)
        held.of.apart = [each for each in held.of.apart if each is not held.ids]
        if not self.by_name[name]:
            del self.by_name[name]
        self._store.journal.duplicates.drop(_name_of(held.kind))


def _few(queue: Queue, ids: IdRanges, others: IdRanges) -> IdRanges:
    """The same in few stretches, as far as messages of the queue are concerned. What lies between those that are beyond
    the bound waits as well, which harms nothing: it goes to that node once. Not what waits for another one, `others`,
    which may have it: that were there twice after a start."""
    stretches: list[tuple[int, int]] = []
    for first, end in ids:
        is_near = bool(stretches) and not others.within(stretches[-1][1], first)
        is_many = len(stretches) >= STRETCHES_MAX
        if is_near and (is_many or next(queue.backlog.of_ids(stretches[-1][1], first), None) is None):
            stretches[-1] = stretches[-1][0], end
        else:
            stretches.append((first, end))
    few = IdRanges()
    for first, end in stretches:
        few.add(first, end)
    return few


def kind_for(of: QueueKind, share: HeirShare) -> QueueKind:
    """What a queue that drains was while it did so to that heir."""
    route = (cluster_name_of(of.name_elsewhere(share.target), share.target),)
    return replace(of, connection=share.connection, forwards_to=share.target, route=route, drains_as=share.link,
                   drain_ends=False)  # fmt: skip


def _name_of(kind: QueueKind) -> str:
    return f"{PREFIX}{kind.forwards_to}.{number_of(kind.drains_as or kind.name)}.{kind.name}"


def stored_in(recovered: Recovered) -> dict[tuple[str, str, int], IdRanges]:
    """What the journal keeps, by the name of a queue, the node that has to answer, and the number in the name of its
    link. Raises StorageFault."""
    waiting: dict[tuple[str, str, int], IdRanges] = {}
    for name, stored in recovered.duplicates.items():
        if not name.startswith(PREFIX) or not stored:
            continue
        node_id, number, queue = (*name.removeprefix(PREFIX).split(".", 2), "", "")[:3]
        packed = b"".join(each.duplicate_id for each in stored)
        if not number.isdecimal() or len(packed) % _STRETCH.size:
            raise unreadable(f"what waits of queue {queue!r}", f"{name!r} has {len(packed)} bytes")
        ids = waiting[queue, node_id, int(number)] = IdRanges()
        for first, end in _STRETCH.iter_unpack(packed):
            ids.add(first, end)
    return waiting
