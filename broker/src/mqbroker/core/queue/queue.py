"""A queue: which messages it has, in order, and which consumers compete for them.

Messages are segments (run, start, n, delivery count), never single objects. Three places: the `backlog` (deliverable,
in order), `waiting` (durable and not synced yet, or behind such), and `scheduled` (their time has not come). What
leaves by itself, because it expired, was replaced or overflowed a ring, is handed over by `take_gone`: the store alone
settles. Who gets what is in dispatch.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.queue import draining
from mqbroker.core.queue.backlog import EXPIRED, OVERFLOWED, REPLACED, Backlog, Segment
from mqbroker.core.queue.consumer import Client, Consumer
from mqbroker.core.queue.dispatch import Dispatch
from mqbroker.core.queue.id_ranges import IdRanges
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.last_value import keyed
from mqbroker.core.queue.message_view import Filter
from mqbroker.core.queue.meter import Meter
from mqbroker.core.queue.moved_message import valid_ms
from mqbroker.core.queue.pages import Pages
from mqbroker.core.queue.redistributor import Redistributor
from mqbroker.core.queue.unanswered_forwards import HandedOver

OVERFLOWED_MAX: Final = 100  # pieces that one segment which comes pushes out of a ring, if it has no more messages

__all__ = ["Client", "Consumer", "Filter", "Queue", "QueueKind", "Segment"]


class Queue:
    """See the module's docstring. `journal_id` is 0 for a queue that is not durable."""

    __slots__ = (
        "_on_due", "acknowledged_total", "added_total", "alone", "apart", "arriving_count", "backlog", "coming_values",
        "consumers", "counted_from_ms", "delivering_count", "dispatcher", "due_ns", "expired_total", "expiring_from",
        "filter", "freed_waits", "gone", "handed_over", "idle_until_ms", "is_consumed", "is_deleted", "is_ending",
        "is_expiring", "is_in_order", "is_paused", "is_used", "journal_id", "killed_total", "kind", "last_values",
        "made_on", "meter", "next_expiry_ms", "pages", "part_of", "picky_count", "ran_empty", "redistributor",
        "replaced_total", "rested_ms", "scheduled", "scheduled_count", "scheduled_ns", "takers_count", "vain_looks",
        "waiting", "waiting_count",
    )  # fmt: skip

    def __init__(self, kind: QueueKind, journal_id: int, on_due: Callable[[Queue], None] | None = None) -> None:
        self.kind = kind
        self.journal_id = journal_id
        self.alone: Any = None  # the address for those who send to `address::queue`, once somebody does
        self.made_on = 0  # the connection that it counts for as long as that is there (quotas.py)
        self._on_due = on_due  # is told when a deadline of the queue has come
        self.filter: Filter | None = None
        self.meter: Meter | None = None  # of its address, if that has a bound
        self.backlog = Backlog()
        self.pages: Pages | None = None  # what is not in memory, while there is any
        self.handed_over: HandedOver | None = None  # of a store-and-forward queue, or one that drains
        self.apart: list[IdRanges] = []  # ids of which a node before may have the messages, each with its own
        self.part_of: Queue | None = None  # all that is here is in delivery from that one (core/cluster/held_back.py)
        self.waiting: deque[Segment] = deque()
        self.scheduled: list[tuple[int, int, Segment]] = []
        self.is_in_order = True  # what is scheduled is a sorted list, not only a heap (picking.py)
        self.gone: list[tuple[str, Segment]] = []
        self.last_values: dict[str, Segment] = {}  # by its key, a message each
        self.coming_values: dict[str, Segment] = {}  # the same of what waits for the disk
        self.waiting_count = 0
        self.freed_waits = 0  # segments that were taken out while they waited: so many calls of `release` are for them
        self.scheduled_count = 0
        self.delivering_count = 0
        self.counted_from_ms = 0  # when it was made, or the process began: the totals were 0
        self.added_total = 0
        self.acknowledged_total = 0
        self.expired_total = 0
        self.killed_total = 0
        self.replaced_total = 0
        self.consumers: list[Consumer] = []
        self.takers_count = 0  # of these, those that are no browsers
        self.picky_count = 0  # and those that do not take every message away
        self.arriving_count = 0  # consumers that are let in and wait for the disk
        self.is_consumed = False  # the journal knows that it had a consumer in this run of the process
        self.is_paused = kind.paused
        self.is_expiring = False  # something in it may expire
        self.is_used = False  # it had a consumer
        self.is_deleted = False
        self.is_ending = False  # it is to go as soon as nobody uses it
        self.ran_empty = True  # since somebody last looked: all that could be handed out was
        self.next_expiry_ms = 0
        self.expiring_from = -1  # the place up to which expired messages were looked for, while they are
        self.vain_looks = 0  # how many of those that were looked at had not expired
        self.rested_ms = 0  # not before this time are they looked for again
        self.idle_until_ms = 0  # from then on it may be deleted if it is still idle
        self.due_ns = 0
        self.scheduled_ns = 0
        self.redistributor: Redistributor | None = None  # while messages may go to other nodes of the cluster
        self.dispatcher = Dispatch(self)

    def on_time(self, now_ns: int) -> None:
        """A deadline of this queue has come."""
        LOOK.has_touched = True
        self.due_ns = 0
        if self._on_due is not None:
            self._on_due(self)

    # -- counts --------------------------------------------------------------------------------------------------------

    @property
    def takers(self) -> list[Consumer]:
        """Consumers that take messages away: browsers change nothing of what a queue does for these."""
        return [each for each in self.consumers if not each.is_browser]

    @property
    def ready_count(self) -> int:
        """Messages that could be delivered now."""
        return self.backlog.count

    @property
    def message_count(self) -> int:
        """Messages in the queue: deliverable, not yet synced, scheduled, in delivery, and paged."""
        return self.backlog.count + self.waiting_count + self.scheduled_count + self.delivering_count + self.paged_count

    @property
    def paged_count(self) -> int:
        """Messages that are on disk alone."""
        return 0 if self.pages is None else self.pages.count

    @property
    def unanswered_count(self) -> int:
        """Messages that another node may have, of which it has not said so: in delivery, or back from a link that is
        lost. Each of them comes twice where it is routed anew."""
        handed_over, pages = self.handed_over, self.pages
        if handed_over is None:
            return self.delivering_count
        if pages is not None and pages.count and handed_over.is_old(pages.first_id):
            return self.message_count
        return self.delivering_count + handed_over.awaited_in(self.backlog)

    # -- in ------------------------------------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """At its place, deliverable at once."""
        LOOK.has_touched = True
        self.added_total += segment.n
        self._arrive(segment)

    def add_waiting(self, segment: Segment) -> None:
        """At the end, deliverable when `release` is called for it."""
        LOOK.has_touched = True
        self.waiting.append(segment)
        self.waiting_count += segment.n
        self.added_total += segment.n
        if self.kind.last_value and not segment.run.deliver_at_ms:
            for key, piece in keyed(self.kind, segment):
                self.coming_values[key] = piece.part(piece.start + piece.n - 1, 1)

    def release(self, now_ms: int = 0) -> bool:
        """The oldest waiting segment is deliverable now, or scheduled from now on; says whether it was still there."""
        LOOK.has_touched = True
        if self.freed_waits:
            self.freed_waits -= 1
            return False
        segment = self.waiting.popleft()
        self.waiting_count -= segment.n
        for key, piece in keyed(self.kind, segment) if self.coming_values else ():
            if key in self.coming_values and self.coming_values[key].first_id <= piece.first_id + piece.n - 1:
                del self.coming_values[key]
        if segment.run.deliver_at_ms > now_ms and not self.kind.is_internal:
            self.schedule(segment, segment.run.deliver_at_ms)
        else:
            self._arrive(segment)
        return True

    def take_waiting(self) -> list[Segment]:
        """All that waits, which nobody is to get. `release` is called for each of them nevertheless."""
        LOOK.has_touched = True
        taken = list(self.waiting)
        self.freed_waits += len(taken)
        self.waiting.clear()
        self.coming_values.clear()
        self.waiting_count = 0
        return taken

    def add_scheduled(self, segment: Segment, due_ms: int) -> None:
        """A message whose time has not come: a new one, or one of before a restart."""
        LOOK.has_touched = True
        self.added_total += segment.n
        if self.kind.last_value and due_ms != segment.run.deliver_at_ms:
            for key, piece in keyed(self.kind, segment):
                if key:
                    self.last_values[key] = piece
        self.schedule(segment, due_ms)

    def come_back(self, segment: Segment, now_ms: int, due_ms: int = 0) -> None:
        """Messages that were paged; they were counted when they came."""
        due_ms = max(segment.run.deliver_at_ms, due_ms)
        if due_ms > now_ms and not self.kind.is_internal:
            self.schedule(segment, due_ms)
        else:
            self._arrive(segment)

    def is_hungry(self, low_count: int) -> bool:
        """Whether consumers could have more than what is here, or soon can."""
        if self.redistributor is not None and self.redistributor.is_running:
            return self.backlog.count <= low_count or self.redistributor.seen > self.backlog.last_rank
        is_held = self.is_paused and not self.kind.is_draining
        served = self.consumers if not is_held else [each for each in self.consumers if each.is_browser]
        return bool(served) and self.dispatcher.is_hungry(low_count)

    def schedule(self, segment: Segment, due_ms: int) -> None:
        """Messages are here that are deliverable at this time."""
        LOOK.has_touched = True
        if self.kind.is_draining and due_ms == segment.run.deliver_at_ms:
            self._arrive(segment)  # it goes with its time
        else:
            heappush(self.scheduled, (due_ms, segment.rank, segment))
            self.is_in_order = False
            self.scheduled_count += segment.n

    def _arrive(self, segment: Segment) -> None:
        for key, piece in keyed(self.kind, segment) if self.kind.last_value else (("", segment),):
            if key and self.kind.is_draining:
                draining.arrived(self, key, piece)
            elif key and self._is_past(key, piece):
                self.gone.append((REPLACED, piece))
                continue
            elif key:
                self._replace(key, piece)
            self.backlog.add(piece)
        if self.dispatcher.is_selective:
            self.dispatcher.arrived(segment.rank)
        if self.redistributor is not None:
            self.redistributor.returned(segment.rank)
        self.note_expiry(segment)
        if self.kind.ring_size >= 0:
            self.overflow(max(segment.n, OVERFLOWED_MAX))

    def note_expiry(self, segment: Segment) -> None:
        """When to look for it, if it may expire."""
        expires_ms = segment.run.expires_ms
        if expires_ms:
            LOOK.has_touched = True
            self.is_expiring = True
            if not self.next_expiry_ms or expires_ms < self.next_expiry_ms:
                self.next_expiry_ms = expires_ms

    def look_for_expired(self) -> None:
        """What had to stay although it has expired need not any more."""
        LOOK.has_touched = True
        self.is_expiring, self.next_expiry_ms = True, 1

    def free_count(self, segment: Segment) -> int:
        """How many of these, from the first on, leave once they have expired: no other node may have them."""
        first, count = segment.first_id, segment.n
        if self.handed_over is not None:
            count = self.handed_over.free_count(first, count)
        return min([count, *(ids.first_within(first, first + count) - first for ids in self.apart)])

    def _replace(self, key: str, segment: Segment) -> None:
        """The last value of a key replaces an earlier one, if nobody is being given that just now."""
        old = self.last_values.get(key)
        LOOK.has_touched = True
        self.last_values[key] = segment.part(segment.start + segment.n - 1, 1)
        if segment.n > 1:
            self.gone.append((REPLACED, segment.part(segment.start, segment.n - 1)))
        if old is not None and self.backlog.has(old.rank):
            self.gone.append((REPLACED, self.backlog.take_at(old.rank, 1)))

    def _is_past(self, key: str, segment: Segment) -> bool:
        """Whether the value that is here was due after this one had come: a start brings them back by their ids."""
        held = self.last_values.get(key)
        due_ms = 0 if held is None else held.run.deliver_at_ms
        return due_ms > 0 and due_ms > valid_ms(segment.run, segment.start)

    def is_outdated(self, segment: Segment, *, is_ours: bool = False) -> bool:
        """Whether one message, which was elsewhere before, is an older value of its key than what is here.

        `is_ours`: its id is one of this node, which tells of two that came at the same time which was first.
        """
        if not self.kind.last_value:
            return False
        key, _ = next(keyed(self.kind, segment))
        held = (self.coming_values.get(key) or self.last_values.get(key)) if key else None
        if held is None:
            return False
        here_ms, there_ms = valid_ms(held.run, held.start), valid_ms(segment.run, segment.start)
        return here_ms > there_ms or (is_ours and here_ms == there_ms and held.first_id > segment.first_id)

    def is_last(self, key: str, segment: Segment) -> bool:
        """Whether a message is the last value of its key, as far as is known here."""
        held = self.last_values.get(key)
        return held is not None and held.rank == segment.rank

    def overflow(self, count_max: int) -> int:
        """Messages beyond the size of a ring are gone, so many pieces of them at most; says how many these were.

        Those that are with consumers, or scheduled, have no place in it until they come back: else they would keep out
        what is newer.
        """
        if self.kind.is_draining:
            return draining.push_out(self, count_max)
        excess, count = self.excess_count, 0
        LOOK.has_touched = True
        while excess > 0 and count < count_max:
            # Who comes later wants what came last, whatever its priority.
            taken = self.backlog.take_oldest(excess) if self.kind.is_internal else self.backlog.take(excess)
            excess -= taken.n
            count += 1
            self.gone.append((OVERFLOWED, taken))
        return count

    @property
    def excess_count(self) -> int:
        """Deliverable messages beyond the size of a ring: there are some while one that was made smaller shrinks."""
        is_ring = self.kind.ring_size >= 0 and not self.kind.is_draining  # another node may have some of them
        return max(self.backlog.count - self.kind.ring_size, 0) if is_ring else 0

    # -- out -----------------------------------------------------------------------------------------------------------

    def take(self, count: int) -> Segment:
        """The next messages in order, at most `count`, as one segment. There must be one."""
        taken = self.backlog.take(count)
        LOOK.has_touched = True
        self.delivering_count += taken.n
        return taken

    def take_at(self, rank: int, count: int) -> Segment:
        """`count` messages from a place on, all of one segment. They must be there."""
        taken = self.backlog.take_at(rank, count)
        LOOK.has_touched = True
        self.delivering_count += taken.n
        return taken

    def put_back(self, segment: Segment, due_ms: int = 0) -> None:
        """Messages that were in delivery return to their place, `due_ms`: at that time."""
        LOOK.has_touched = True
        self.delivering_count -= segment.n
        if due_ms:
            self.schedule(segment, due_ms)
        else:
            self._return(segment)

    def _return(self, segment: Segment) -> None:
        """Messages that were delivered in vain are at their place again, but for values that were replaced since."""
        for key, piece in keyed(self.kind, segment) if self.kind.last_value else (("", segment),):
            if draining.is_stale(self, key, piece):
                self.gone.append((REPLACED, piece))
                continue
            self.backlog.add(piece)
            self.note_expiry(piece)
            self.dispatcher.returned(piece.rank)
            if self.redistributor is not None:
                self.redistributor.returned(piece.rank)
        if self.kind.ring_size >= 0:
            self.overflow(max(segment.n, OVERFLOWED_MAX))

    def take_scheduled(self, now_ms: int) -> list[Segment]:
        """New messages whose time has not come; they count as in delivery. What comes again later stays."""
        taken = [each for each in self.scheduled if each[2].run.deliver_at_ms > now_ms]
        LOOK.has_touched = True
        if taken:
            self.scheduled = [each for each in self.scheduled if each[2].run.deliver_at_ms <= now_ms]
            heapify(self.scheduled)
        count = sum(segment.n for _, _, segment in taken)
        self.scheduled_count -= count
        self.delivering_count += count
        return [segment for _, _, segment in taken]

    def settled(self, segment: Segment) -> None:
        """Messages in delivery are gone for good, and so are the values that they were the last of."""
        LOOK.has_touched = True
        self.delivering_count -= segment.n
        self.acknowledged_total += segment.n
        if self.part_of is not None:
            self.part_of.settled(segment)
        for key, piece in keyed(self.kind, segment) if self.kind.last_value else ():
            if key and self.is_last(key, piece):
                del self.last_values[key]

    def take_gone(self) -> list[tuple[str, Segment]]:
        """What left by itself since the last call, each with why. They count as in delivery until they are settled."""
        LOOK.has_touched = True
        gone, self.gone = self.gone, []
        for why, segment in gone:
            self.delivering_count += segment.n
            if why == EXPIRED:
                self.expired_total += segment.n
            else:
                self.replaced_total += segment.n
        return gone

    # -- time ----------------------------------------------------------------------------------------------------------

    def is_schedule_due(self, now_ms: int) -> bool:
        """Whether the time of a scheduled message has come."""
        return bool(self.scheduled) and self.scheduled[0][0] <= now_ms

    def bring_scheduled(self, now_ms: int, count_max: int) -> int:
        """Scheduled messages whose time has come are deliverable, so many at most; says how many entries these were."""
        count = 0
        LOOK.has_touched = True
        while count < count_max and self.is_schedule_due(now_ms):
            due_ms, _, segment = heappop(self.scheduled)
            self.is_in_order = False
            self.scheduled_count -= segment.n
            count += 1
            if self.kind.last_value and due_ms != segment.run.deliver_at_ms:
                self._return(segment)
            else:
                self._arrive(segment)
        return count

    def begin_expiring(self, now_ms: int) -> bool:
        """Whether expired messages are looked for: something may have expired, or it has begun before."""
        if self.expiring_from < 0 and 0 < self.next_expiry_ms <= now_ms and self.rested_ms <= now_ms:
            LOOK.has_touched = True
            self.expiring_from = self.next_expiry_ms = self.vain_looks = 0
        return self.expiring_from >= 0

    def end_expiring(self, rested_ms: int) -> None:
        """All were looked at. Nothing is looked for before the queue has rested."""
        LOOK.has_touched = True
        self.expiring_from = -1
        self.rested_ms = rested_ms
        self.is_expiring = bool(self.next_expiry_ms)

    @property
    def due_ms(self) -> int:
        """The next wall-clock time that matters here, 0 if none does."""
        scheduled_ms = self.scheduled[0][0] if self.scheduled else 0
        gate_ms = self.dispatcher.gate_ms if self.dispatcher.is_closed else 0
        expiry_ms = self.next_expiry_ms and max(self.next_expiry_ms, self.rested_ms)
        dues = [due for due in (scheduled_ms, expiry_ms, self.idle_until_ms, gate_ms) if due]
        return min(dues, default=0)

    # -- consumers -----------------------------------------------------------------------------------------------------

    def join(self, consumer: Consumer) -> None:
        """One more consumer. Those of higher priority come first."""
        place = bisect_right(self.consumers, -consumer.priority, key=lambda each: -each.priority)
        LOOK.has_touched = True
        self.consumers.insert(place, consumer)
        self._count(consumer, 1)
        self.dispatcher.joined(consumer)

    def leave(self, consumer: Consumer) -> None:
        """A consumer is gone; groups that it had are free."""
        LOOK.has_touched = True
        self.consumers.remove(consumer)
        self._count(consumer, -1)
        self.dispatcher.left(consumer)

    def _count(self, consumer: Consumer, change: int) -> None:
        LOOK.has_touched = True
        self.takers_count += 0 if consumer.is_browser else change
        self.picky_count += change if consumer.is_browser or consumer.filter is not None else 0

    def dispatch(self, count_max: int, now_ms: int = 0) -> int:
        """Hand out messages to consumers, about `count_max` at most; says how much work that was."""
        work = self.dispatcher.run(count_max, now_ms)
        if not self.backlog.count:
            self.ran_empty = True
        return work

    def segments(self) -> Iterator[Segment]:
        """All that is not in delivery, oldest first within each place."""
        yield from self.backlog
        for _, _, segment in self.scheduled:
            yield segment
        yield from self.waiting

    def has_any_of(self, first_id: int, end_id: int) -> bool:
        """Whether any of them may be, as far as a short look says: there may be very many queues."""
        return bool(self.scheduled or self.waiting) or self.backlog.may_have(first_id, end_id)

    def segments_of(self, first_id: int, end_id: int) -> Iterator[tuple[Segment, int]]:
        """The same where messages of these ids may be, and when they are due: not a walk over a long backlog."""
        for segment in self.backlog.of_ids(first_id, end_id):
            yield segment, 0
        for due_ms, _, segment in self.scheduled:
            yield segment, due_ms
        for segment in self.waiting:
            yield segment, 0


def check_consumers(queue: Queue, common_max: int, *, is_browser: bool = False) -> None:
    """Whether one more consumer is let in; browsers do not count at the bound of the queue's own. Raises Refused."""
    if queue.kind.is_draining:
        why = f"queue {queue.kind.name!r} drains to node {queue.kind.forwards_to}, where its messages are served"
        raise Refused("amqp:resource-locked", why)
    own, taking_count = queue.kind.max_consumers, queue.takers_count + queue.arriving_count
    if not is_browser and 0 <= own <= taking_count:
        why = f"queue {queue.kind.name!r} has {taking_count} consumers, which is its max-consumers"
        raise Refused("amqp:resource-limit-exceeded", why)
    count = len(queue.consumers) + queue.arriving_count
    if count >= common_max:
        why = f"queue {queue.kind.name!r} has {count} consumers, which is consumers-per-queue-max"
        raise Refused("amqp:resource-limit-exceeded", why)
