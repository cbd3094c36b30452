"""Who gets which message of a queue.

Round robin among consumers of the highest priority that have capacity: each gets a fair share of what is there, in one
piece. That is the plain way. Where a consumer has a filter, or messages belong to groups, each message is looked at: a
consumer remembers how far it has looked (`seen`), so a message is shown to it once, however long it stays. Who gets
copies, which stay where they are, remembers that for each priority (`copied`), and so misses none that comes later.

What a run of it hands out is bounded by messages and by pieces, as a piece of one message costs no less than one of a
thousand; whoever asked for the run finds `pieces` and `looks` afterwards. Invariant of the second way: for each
consumer, no message before its `seen` is one that it may have now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from zlib import crc32

from mqbroker.base.look import LOOK
from mqbroker.core.queue.backlog import EXPIRED, ID_BITS, PRIORITY_MAX, Segment
from mqbroker.core.queue.message_filter import PLAIN_LOOKS, Candidate, Lookers, MessageFilter, message_filter
from mqbroker.core.queue.undeliverable_here import UndeliverableHere

if TYPE_CHECKING:
    from mqbroker.core.queue.kinds import QueueKind
    from mqbroker.core.queue.queue import Consumer, Queue

LOOKED_AT_MAX: Final = 200  # messages that one run looks at
PIECES_MAX: Final = 15  # that one run hands out
DROPPED_LOOKS: Final = 50  # what an expired message costs that is in the way, in looks; the others have time
DROPPED_MAX: Final = LOOKED_AT_MAX // DROPPED_LOOKS  # at a time
GROUPS_MAX: Final = 100_000
GROUP_CLOSED: Final = -1
NOWHERE: Final = PRIORITY_MAX + 1 << ID_BITS  # behind all places
FIRST_RANKS: Final = tuple(level << ID_BITS for level in range(PRIORITY_MAX + 1))  # of each priority, highest first


class Dispatch:
    """The distribution of one queue's messages."""

    __slots__ = (
        "_copied", "_cursor", "_groups", "_has_groups", "_is_rewound", "_queue", "_seen", "gate_ms", "handed_out",
        "is_closed", "is_selective", "is_unfinished", "looks", "opens_group", "pieces", "undeliverable_here",
    )  # fmt: skip

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._cursor = 0
        self._seen: dict[Consumer, int] = {}
        self._copied: dict[Consumer, list[int]] = {}
        self._groups: dict[str, Consumer] = {}
        self.undeliverable_here = UndeliverableHere()
        self.gate_ms = 0  # the time from which on messages are handed out although consumers are missing
        self.is_closed = queue.kind.consumers_before_dispatch > 0
        self._has_groups = False
        self._is_rewound = False  # somebody has to look again at what was passed
        self.is_selective = False
        self.opens_group = False  # what is being delivered is the first message of a group to that consumer
        self.is_unfinished = False  # the last run stopped at its bound
        self.handed_out = 0  # messages that consumers took in it
        self.pieces = 0  # that it handed out
        self.looks = 0  # and the messages that it looked at

    # -- what changes --------------------------------------------------------------------------------------------------

    def turn_to(self, nothing: Queue) -> None:
        """The queue is deleted: each of the two would keep the other one for ever."""
        LOOK.has_touched = True
        self._queue = nothing

    def joined(self, consumer: Consumer) -> None:
        """A consumer is new at the queue, and has seen nothing yet."""
        LOOK.has_touched = True
        self._seen[consumer] = 0
        if consumer.is_browser or self._queue.kind.is_read_by_all:
            self._copied[consumer] = list(FIRST_RANKS)
        if self._queue.kind.group_rebalance and not consumer.is_browser:
            self._groups.clear()
            self._look_again()
        self._choose_way()

    def left(self, consumer: Consumer) -> None:
        """A consumer is gone from the queue; what is remembered of it goes."""
        LOOK.has_touched = True
        del self._seen[consumer]
        self._copied.pop(consumer, None)
        self.undeliverable_here.left(consumer)
        if self._has_groups:
            self._groups = {group: each for group, each in self._groups.items() if each is not consumer}
            self._look_again()
        if not self._queue.takers_count:
            self.gate_ms = 0
            self.is_closed = self._queue.kind.consumers_before_dispatch > 0
        self._choose_way()

    def changed(self, before: QueueKind) -> None:
        """The queue was of another kind until now."""
        LOOK.has_touched = True
        if self._queue.kind.group_buckets != before.group_buckets:
            self._groups.clear()
            self._look_again()
        if not self._queue.takers_count:
            self.is_closed = self._queue.kind.consumers_before_dispatch > 0

    def returned(self, rank: int) -> None:
        """A message is at this place again, which consumers may have passed; browsers do not go back."""
        LOOK.has_touched = True
        self._is_rewound = True
        for consumer, seen in self._seen.items():
            if seen > rank and not consumer.is_browser:
                self._seen[consumer] = rank

    def arrived(self, rank: int) -> None:
        """A new message is at this place: one of a higher priority lies before what was looked at."""
        if self._queue.kind.is_read_by_all:
            return
        LOOK.has_touched = True
        for consumer, seen in self._seen.items():
            if seen > rank and not consumer.is_browser:
                self._seen[consumer] = rank

    def bar(self, segment: Segment, consumer: Consumer) -> None:
        """A consumer does not want to see these messages again, which are in delivery."""
        LOOK.has_touched = True
        if consumer in self._seen:
            for rank in self.undeliverable_here.add(segment, consumer):
                self.returned(rank)
            self.is_selective = True

    def forget(self, segment: Segment) -> None:
        """These messages are gone: whoever did not want them has nothing to remember."""
        self.undeliverable_here.forget(segment)
        if not self.undeliverable_here:
            self._choose_way()

    def grouped(self) -> None:
        """A message of a group has come: from now on each message of the queue is looked at."""
        LOOK.has_touched = True
        self._has_groups = self.is_selective = True

    def _look_again(self) -> None:
        """Groups have other consumers, or none: nothing to those that get copies, who would get them again."""
        if not self._queue.kind.is_read_by_all:
            self._is_rewound = True
            self._seen = {each: seen if each.is_browser else 0 for each, seen in self._seen.items()}

    def _choose_way(self) -> None:
        is_plain = not self._queue.picky_count and not self._queue.kind.is_read_by_all and not self.undeliverable_here
        LOOK.has_touched = True
        self.is_selective = self._has_groups or not is_plain

    # -- handing out ---------------------------------------------------------------------------------------------------

    def run(self, count_max: int, now_ms: int) -> int:
        """Hand out about `count_max` messages; says how many went, or were looked at."""
        queue = self._queue
        LOOK.has_touched = True
        self.is_unfinished = False
        self.pieces = self.looks = self.handed_out = 0
        if not queue.backlog.count or not queue.consumers:
            return 0
        is_held = (queue.is_paused or self._look_at_gate(now_ms)) and not queue.kind.is_draining  # to who holds itself
        if not self.is_selective:
            return 0 if is_held else self._plainly(count_max, now_ms)
        looked = self._copies(count_max, now_ms, everybody=queue.kind.is_read_by_all and not is_held)
        is_over = is_held or queue.kind.is_read_by_all
        return looked if is_over else looked + self._selectively(count_max - looked, now_ms)

    @property
    def refused_below(self) -> int:
        """Messages at places below this one are such that no consumer takes them, where there are consumers."""
        if not self.is_selective:
            return 0
        return min((seen for consumer, seen in self._seen.items() if not consumer.is_browser), default=0)

    def is_hungry(self, low_count: int) -> bool:
        """Whether no more than so many messages are left, or whoever looks at each of them has seen them all."""
        backlog = self._queue.backlog
        if backlog.count <= low_count:
            return True
        if not self.is_selective:
            return False
        last = backlog.last_rank
        return any(seen > last and consumer.capacity() > 0 for consumer, seen in self._seen.items())

    def _look_at_gate(self, now_ms: int) -> bool:
        """Queues may wait for a number of consumers, or for a while, before the first message goes out."""
        if self.is_closed:
            needed = self._queue.kind.consumers_before_dispatch
            self.is_closed = needed > self._queue.takers_count and not 0 < self.gate_ms <= now_ms
        return self.is_closed

    def _plainly(self, count_max: int, now_ms: int) -> int:
        queue = self._queue
        went = 0
        while went < count_max and self._drop_expired(now_ms):
            able = self._able()
            if not able:
                break
            if self.pieces >= PIECES_MAX:
                self.is_unfinished = True
                break
            share = min(max(1, queue.backlog.count // len(able)), count_max - went)
            before = went
            for consumer, capacity in able:
                went += self._serve(consumer, min(share, capacity), now_ms)
                if not queue.backlog.count or self.pieces >= PIECES_MAX:
                    break
            if went == before:
                break
        return went

    def _able(self) -> list[tuple[Consumer, int]]:
        """Consumers of the highest priority that has any with capacity, the one whose turn it is first."""
        consumers = self._queue.consumers
        if len(consumers) == 1:
            alone = consumers[0]
            return [(alone, n)] if (n := alone.capacity()) > 0 else []
        if self._queue.kind.exclusive:
            consumers = consumers[:1]
        able: list[tuple[Consumer, int]] = []
        cursor = self._cursor % len(consumers)
        level = consumers[0].priority
        if consumers[-1].priority == level:
            return [(each, n) for each in consumers[cursor:] + consumers[:cursor] if (n := each.capacity()) > 0]
        for place, each in enumerate(consumers):
            if each.priority != level and able:
                break
            level = each.priority
            if (capacity := each.capacity()) > 0:
                able.insert(0 if place == cursor else len(able), (each, capacity))
        return able

    def _drop_expired(self, now_ms: int) -> bool:
        """Whether there is something to hand out once what has expired is out of the way.

        What another node may have is handed out to it, whose answer ends that.
        """
        queue = self._queue
        backlog = queue.backlog
        while queue.is_expiring and backlog.count and 0 < backlog.head.run.expires_ms <= now_ms:
            count = queue.free_count(backlog.head)
            if not count:
                break
            if self._is_enough:
                self.is_unfinished = True
                return False
            self._drop(backlog.take(min(count, DROPPED_MAX)))
        return backlog.count > 0

    def _drop(self, segment: Segment) -> None:
        """Expired messages are not handed out; each costs what many looks do."""
        self._queue.gone.append((EXPIRED, segment))
        self.looks += segment.n * DROPPED_LOOKS

    def _serve(self, consumer: Consumer, count: int, now_ms: int) -> int:
        queue = self._queue
        went = 0
        while went < count and self.pieces < PIECES_MAX and self._drop_expired(now_ms):
            self.pieces += 1
            segment = queue.take(count - went)
            done = consumer.deliver(queue, segment)
            went += done
            self.handed_out += done
            if done < segment.n:
                queue.put_back(segment.part(segment.start + done, segment.n - done))
                break
        if went and consumer in self._seen:
            self._cursor = queue.consumers.index(consumer) + 1
        return went

    # -- looking at each message ---------------------------------------------------------------------------------------

    def _copies(self, count_max: int, now_ms: int, *, everybody: bool) -> int:
        """Browsers, and all consumers of a non-destructive queue, get copies from where they have got to."""
        looked = 0
        for consumer in [each for each in self._queue.consumers if everybody or each.is_browser]:
            looked += self._copy_to(consumer, count_max - looked, now_ms)
            if self.is_unfinished:
                break  # the others have their turn when it goes on: looking for each where it is costs as much again
        return looked

    def _copy_to(self, consumer: Consumer, count_max: int, now_ms: int) -> int:
        looked = 0
        capacity = consumer.capacity()
        if not capacity:
            return 0
        copied = self._copied[consumer]
        lookers = Lookers([] if consumer.filter is None else [message_filter(consumer.filter)], NOWHERE)
        for segment in self._not_copied(copied):
            if 0 < segment.run.expires_ms <= now_ms:
                continue  # it goes by its timer, which may be late
            level = segment.rank >> ID_BITS
            index = segment.start + max(copied[level] - segment.rank, 0)
            while index < segment.start + segment.n:
                if not capacity:
                    return looked
                if looked >= count_max or self._is_enough:
                    self.is_unfinished = True
                    return looked
                if lookers.search and looked >= PLAIN_LOOKS and (passed := self._pass_over(lookers, segment, index)):
                    looked += passed
                    index += passed
                    copied[level] = segment.rank + index - segment.start
                    continue
                looked += 1
                if consumer.filter is None:
                    self.looks += 1
                if consumer.filter is None or self._look_for_taker(Candidate(segment, index), lookers.filters):
                    self.pieces += 1
                    if not consumer.deliver(self._queue, Segment(segment.run, index, 1, segment.deliveries)):
                        return looked
                    self.handed_out += 1
                    capacity -= 1
                if consumer not in self._seen:
                    return looked
                index += 1
                copied[level] = segment.rank + index - segment.start
        self._seen[consumer] = self._queue.backlog.last_rank + 1
        return looked

    @property
    def _is_enough(self) -> bool:
        """Whether so much was looked at or handed out that others are to have a turn."""
        return self.looks >= LOOKED_AT_MAX or self.pieces >= PIECES_MAX

    def _not_copied(self, copied: list[int]) -> Iterator[Segment]:
        """What lies behind the place of its priority."""
        level = 0
        while True:
            for segment in self._queue.backlog.from_rank(copied[level]):
                if segment.rank >> ID_BITS != level:
                    level = segment.rank >> ID_BITS
                    break
                yield segment
            else:
                return

    def _selectively(self, count_max: int, now_ms: int) -> int:
        queue = self._queue
        cursor = self._cursor % len(queue.consumers)
        turn = queue.takers[:1] if queue.kind.exclusive else queue.consumers[cursor:] + queue.consumers[:cursor]
        last, seen = queue.backlog.last_rank, self._seen  # most have seen all, where there are thousands
        room = {each: n for each in turn if not each.is_browser and seen[each] <= last and (n := each.capacity()) > 0}
        if not room:
            return 0
        _keep_priorities(room)
        looked, self._is_rewound = 0, False
        start = end = min(self._seen[each] for each in room)
        lookers = self._lookers(room, start)
        is_passing = False  # the last message was for nobody, which is noted when it matters
        for segment in queue.backlog.from_rank(start):
            if 0 < segment.run.expires_ms <= now_ms and queue.free_count(segment) == segment.n:
                looked += 1
                self.looks += 1
                end = segment.rank + segment.n
                if not self._is_enough:
                    continue  # it goes when the queue comes to it (overdue.py)
            index = segment.start + max(start - segment.rank, 0)
            while index < segment.start + segment.n:
                if not room:
                    return looked
                if looked >= count_max or self._is_enough:
                    self.is_unfinished = True
                    self._pass(room, end)
                    return looked
                rank = segment.rank + index - segment.start
                if rank >= lookers.until:
                    lookers = self._lookers(room, rank)
                if lookers.search and looked >= PLAIN_LOOKS and (passed := self._pass_over(lookers, segment, index)):
                    looked += passed
                    index += passed
                    end = rank + passed
                    is_passing = True
                    continue
                looked += 1
                candidate = Candidate(segment, index)
                is_for_nobody = bool(lookers.filters) and not self._look_for_taker(candidate, lookers.filters)
                if not is_for_nobody:
                    if is_passing:
                        self._pass(room, end)
                    able_count = len(room)
                    self._offer(candidate, rank, room)
                    if len(room) < able_count:
                        if self._have_seen_all(room):
                            return looked
                        lookers = self._lookers(room, rank + 1)
                is_passing = is_for_nobody
                end = rank + 1
                index += 1
        self._pass(room, end)
        return looked

    def _have_seen_all(self, room: dict[Consumer, int]) -> bool:
        last = self._queue.backlog.last_rank
        return all(self._seen[consumer] > last for consumer in room)

    def _pass(self, room: dict[Consumer, int], end: int) -> None:
        """What is before this place is nothing for those that still have room: it belongs to groups of others."""
        for consumer in () if self._is_rewound else room:
            self._seen[consumer] = max(self._seen[consumer], end)

    def _lookers(self, room: dict[Consumer, int], rank: int) -> Lookers:
        """Those who look at what is at this place."""
        filters: dict[MessageFilter, None] = {}
        until = NOWHERE
        takes_all = False
        for consumer in room:
            seen = self._seen[consumer]
            if seen > rank:
                until = min(until, seen)
            elif consumer.filter is None:
                takes_all = True
            else:
                filters[message_filter(consumer.filter)] = None
        return Lookers([] if takes_all else list(filters), until)

    def _pass_over(self, lookers: Lookers, segment: Segment, index: int) -> int:
        """How many messages from here on are nothing for those who look."""
        passed, looks = lookers.passed_over(segment, index)
        self.looks += looks
        return passed

    def _look_for_taker(self, candidate: Candidate, filters: list[MessageFilter]) -> bool:
        for each in filters:
            is_wanted = each.wants(candidate)
            self.looks += each.looks + candidate.long_looks
            if is_wanted:
                return True
        return False

    def _offer(self, candidate: Candidate, rank: int, room: dict[Consumer, int]) -> None:
        """Give one message to the first in turn that may have it; that one goes behind its equals."""
        queue, segment = self._queue, candidate.segment
        self.looks += 1
        group = self._group_of(segment)
        pinned = self._groups.get(group) if group else None
        if pinned is not None and self.undeliverable_here and self.undeliverable_here.has(rank, pinned):
            pinned = None  # this one message goes to somebody else, the rest of the group stays
        for consumer in list(room) if pinned is None else [pinned]:
            if consumer not in room or self._seen[consumer] > rank:
                continue
            if consumer.filter is not None and not self._look_for_taker(candidate, [message_filter(consumer.filter)]):
                self._saw(consumer, rank)
                continue
            if self.undeliverable_here and self.undeliverable_here.has(rank, consumer):
                self._saw(consumer, rank)
                continue
            taken = queue.take_at(rank, 1)
            self.opens_group = bool(group) and group not in self._groups
            if group:
                self._pin(group, consumer, segment)
            left = room.pop(consumer) - 1
            self.pieces += 1
            is_taken = consumer.deliver(queue, taken) > 0
            self.handed_out += is_taken
            if not is_taken:
                queue.put_back(taken)
                if self.opens_group:
                    self._groups.pop(group, None)
            elif consumer in self._seen:
                self._cursor = queue.consumers.index(consumer) + 1
                if left:
                    room[consumer] = left
                    _keep_priorities(room)
            self.opens_group = False
            return

    def _saw(self, consumer: Consumer, rank: int) -> None:
        """The message at this place is nothing for the consumer."""
        if not self._is_rewound:
            self._seen[consumer] = rank + 1

    def _group_of(self, segment: Segment) -> str:
        group = segment.run.traits.group_id
        buckets = self._queue.kind.group_buckets
        return str(crc32(group.encode()) % buckets) if group and buckets > 0 else group

    def _pin(self, group: str, consumer: Consumer, segment: Segment) -> None:
        if segment.run.traits.group_sequence == GROUP_CLOSED:
            self._groups.pop(group, None)
            self._look_again()
            self.is_unfinished = True  # for those whose turn is over, or who are not told of anything else
            return
        if group not in self._groups and len(self._groups) >= GROUPS_MAX:
            self._groups.pop(next(iter(self._groups)))
        self._groups.setdefault(group, consumer)

    @property
    def groups(self) -> dict[str, Consumer]:
        """Which consumer has which group."""
        return self._groups


def _keep_priorities(room: dict[Consumer, int]) -> None:
    """Higher priorities first; equals stay in their order."""
    if len({each.priority for each in room}) > 1:
        ordered = sorted(room.items(), key=lambda item: -item[0].priority)
        room.clear()
        room.update(ordered)
