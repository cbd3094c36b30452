"""A local transaction: messages that were posted and messages that were retired, until both happen or neither.

Invariants: a posted message is in no queue and in no journal before the commit; a retired one stays in delivery. A
commit happens within one step, so all of it is in one Append and recovery finds the whole of it or nothing; that is
why it has bounds, and why what is alike is gathered into runs before (gathering.py). What is not committed may be given
up piece by piece. Messages are routed by the commit, since queues may come and go before it. Source: AMQP 1.0 §4.3,
§4.4, docs/adr/0019-commits.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from mqbroker.base.errors import NoRoom, Refused
from mqbroker.base.look import LOOK
from mqbroker.base.state_table import StateTable
from mqbroker.base.states import OURS, StateEvent, StateMember
from mqbroker.core.address.address import UNKNOWN, Address, Origin
from mqbroker.core.address.gathering import COPIES_PER_PART, GatheredPost, Gathering, PostTarget
from mqbroker.core.address.permissions import Actor
from mqbroker.core.cluster.grouping import Grouping
from mqbroker.core.queue.meter import Meter
from mqbroker.core.queue.queue import Consumer, Queue, Segment
from mqbroker.core.store.outcomes import apply_outcome, is_final, makes_dead_letters
from mqbroker.core.store.store import Store
from mqbroker.core.store.transaction_quota import TransactionQuota
from mqbroker.wire.parts import part_of, parts_of
from mqbroker.wire.performatives import Accepted, Rejected
from mqbroker.wire.run import Run

RetiredSegment = tuple[Queue, Segment, Any, Consumer | None]  # messages, their outcome, and whose deliveries they are

ALL: Final = 1 << 62
MOVED_MAX: Final = 8  # messages that are given up at a time where each may be moved to another address


class Tx(StateMember):
    """Where a transaction stands. FAILED: it can only be rolled back, and what it held is given up already."""

    OPEN = "open"
    FAILED = "failed"
    DONE = "done"


class TxEvent(StateEvent):
    """What moves a transaction."""

    WORK = "work", OURS
    FAIL = "fail", OURS
    COMMIT = "commit", OURS
    ROLL_BACK = "roll back", OURS


TX_STATES: Final = StateTable(
    {
        (Tx.OPEN, TxEvent.WORK): Tx.OPEN,
        (Tx.OPEN, TxEvent.FAIL): Tx.FAILED,
        (Tx.OPEN, TxEvent.COMMIT): Tx.DONE,
        (Tx.OPEN, TxEvent.ROLL_BACK): Tx.DONE,
        (Tx.FAILED, TxEvent.ROLL_BACK): Tx.DONE,
    },
    "{event} in a transaction that is {state}",
)


class Transaction:
    """See the module's docstring. `failure` says why it can only be rolled back."""

    __slots__ = (
        "_gathering", "_retired", "_store", "failure", "parts_count", "posted_count", "size_bytes", "state",
    )  # fmt: skip

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gathering = Gathering(store)
        self._retired: deque[RetiredSegment] = deque()
        self.state = Tx.OPEN
        self.failure: Refused | None = None
        self.size_bytes = 0  # memory of what was posted
        self.posted_count = 0  # messages
        self.parts_count = 0  # runs that were posted, ranges that were retired, each of their messages that is to die

    def _move(self, event: TxEvent) -> None:
        after = TX_STATES.after(self.state, event)
        LOOK.has_touched = True
        self.state = after

    @property
    def is_open(self) -> bool:
        """Whether it can still be committed."""
        return self.state is Tx.OPEN

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, or nothing any more."""
        return not (self._gathering.posted or self._retired)

    # -- work ----------------------------------------------------------------------------------------------------------

    def check(
        self, size_bytes: int = 0, more_parts: int = 0, *, posted: GatheredPost | None = None, may_page: bool = False
    ) -> None:
        """Whether so many more bytes fit, and one more part beside `more_parts` others. Raises Refused.

        `posted`: messages for some place, which are no part of their own where they join those before them.
        `may_page`: they go to an address that keeps on disk what is too much, once they are committed; until then they
        are in memory, beyond its bound by a quarter.
        """
        limits, memory = self._store.limits, self._store.memory
        parts_count = self.parts_count + more_parts
        why = ""
        if self.size_bytes + size_bytes > limits.transaction_max_size_bytes:
            why = _beyond(limits.transaction_max_size_bytes, "bytes", "max-size-bytes")
        elif size_bytes and memory.is_full and not (may_page and memory.has_margin()):
            why = memory.why_full
        elif posted is not None and self.posted_count + posted[1].count > limits.transaction_messages_max:
            why = _beyond(limits.transaction_messages_max, "messages", "messages-max")
        elif parts_count >= limits.transaction_parts_max:
            is_part = posted is None or not self._gathering.joins(*posted)
            if parts_count + is_part > limits.transaction_parts_max:
                why = _beyond(limits.transaction_parts_max, "parts", "parts-max")
        if why:
            raise NoRoom(why)

    def post(self, address: str, run: Run, routing: str = "") -> None:
        """Messages for an address, seen by nobody before the commit. `routing`: see `Store.target_for`."""
        self._move(TxEvent.WORK)
        self._store.memory.hold(run)
        LOOK.has_touched = True
        self.size_bytes += run.held_bytes
        self.posted_count += run.count
        self.parts_count += self._gathering.add((address, routing), run)

    def retire(self, queue: Queue, segment: Segment, outcome: Any, consumer: Consumer | None = None) -> None:
        """Messages in delivery with that consumer, and the outcome that they get by the commit."""
        self._move(TxEvent.WORK)
        LOOK.has_touched = True
        is_moved = self.moves_each(queue, segment, outcome)
        self.parts_count += segment.n if is_moved else 0
        if self._retired and _follows(self._retired[-1], (queue, segment, outcome, consumer)):
            before = self._retired[-1][1]
            self._retired[-1] = (queue, before.part(before.start, before.n + segment.n), outcome, consumer)
        else:
            self.parts_count += not is_moved
            self._retired.append((queue, segment, outcome, consumer))

    def moves_each(self, queue: Queue, segment: Segment, outcome: Any) -> bool:
        """Whether each message that gets this outcome is moved by itself, and so a part."""
        return not isinstance(outcome, Accepted) and makes_dead_letters(self._store, queue, segment, outcome)

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        """What it has retired and not committed: queues, and segments of them."""
        for queue, segment, _, _ in self._retired:
            yield queue, segment

    @property
    def rejected_count(self) -> int:
        """Messages that were retired as rejected."""
        return sum(segment.n for _, segment, outcome, _ in self._retired if isinstance(outcome, Rejected))

    # -- ends ----------------------------------------------------------------------------------------------------------

    def close(self) -> int:
        """Nothing more comes: how many parts its commit has, as things are now where its messages go."""
        LOOK.has_touched = True
        self.parts_count += self._gathering.close()
        copied_parts = sum(self._copied_parts_of(*each[:3]) for each in self._retired) if self._retired else 0
        return self.parts_count + self._gathering.parts_beyond() + copied_parts

    def _copied_parts_of(self, queue: Queue, segment: Segment, outcome: Any) -> int:
        """How many parts the copies count for of dead letters."""
        if isinstance(outcome, Accepted) or not self.moves_each(queue, segment, outcome):
            return 0
        return segment.n * (self._store.dead_letters.width_of(queue) // COPIES_PER_PART)

    def prepare(
        self, actor: Actor | None, enlisted: Iterable[tuple[Queue, Segment, Any]] = ()
    ) -> dict[PostTarget, Address]:
        """The addresses of all that was posted, as they are now; what is to be dropped there is gone then.

        `enlisted`: what will be retired as well by the commit, and its outcome. The actor, who commits, may send there
        by then: a permission that was taken away since is gone for these as well. Raises Refused where there is no
        commit.
        """
        targets = dict.fromkeys(wanted for wanted, _ in self._gathering.posted)
        for target in dict.fromkeys(wanted[0] for wanted in targets):
            self._store.may_send(target, actor)
        addresses = {(name, routing): self._store.target_for(name, actor, routing) for name, routing in targets}
        enlisted = list(enlisted)
        parts_count = self.close() + sum(self._copied_parts_of(*each) for each in enlisted)
        if parts_count > self._store.limits.transaction_parts_max:
            why = _beyond(self._store.limits.transaction_parts_max, "parts", "parts-max")
            why = f"{why}; {COPIES_PER_PART} copies of a message (diverts, wildcards, subscriptions) are one as well"
            raise NoRoom(why)
        if self._store.grouping is not None:
            self._check_groups(self._store.grouping, addresses)
        tallies = {each.meter: TransactionQuota(each.meter) for each in addresses.values() if each.meter is not None}
        if tallies:
            self._admit(addresses, tallies, enlisted)
        return addresses

    def _check_groups(self, grouping: Grouping, addresses: dict[PostTarget, Address]) -> None:
        """What was posted was asked for then. Raises Refused where a group has lost its owner since."""
        for wanted, run in self._gathering.posted:
            if grouping.covers(addresses[wanted]) and grouping.wanted(addresses[wanted], run):
                raise Refused("amqp:precondition-failed", "a group of its messages has lost its node since; try again")

    def _admit(
        self,
        addresses: dict[PostTarget, Address],
        tallies: dict[Meter, TransactionQuota],
        enlisted: Iterable[tuple[Queue, Segment, Any]],
    ) -> None:
        """Ask addresses with bounds whether they take what was posted. Raises Refused."""
        for queue, segment, outcome in chain((each[:3] for each in self._retired), enlisted):
            if queue.meter in tallies and is_final(outcome):
                tallies[queue.meter].free(segment)
        kept: list[GatheredPost] = []
        cut: list[tuple[Meter, Run, Run | None]] = []
        for wanted, run in self._gathering.posted:
            meter = addresses[wanted].meter
            is_in = meter is None or self._is_known(addresses[wanted], run)
            fitting = run.count if meter is None or is_in else tallies[meter].fitting(run)
            rest = run if fitting == run.count else part_of(run, 0, fitting) if fitting else None
            if rest is not None:
                kept.append((wanted, rest))
            if meter is not None and rest is not run:
                if not meter.drops:
                    posted = self._gathering.posted  # none of which is taken in
                    count = sum(each.count for place, each in posted if addresses[place].meter is meter)
                    raise Refused("amqp:resource-limit-exceeded", meter.refused(count))
                cut.append((meter, run, rest))
        for meter, run, rest in cut:
            meter.refused(run.count - (rest.count if rest is not None else 0))
            self._store.memory.release(run)
            if rest is not None:
                self._store.memory.hold(rest)
        LOOK.has_touched = True
        self._gathering.posted = kept

    def _is_known(self, address: Address, run: Run) -> bool:
        """Whether all of it was seen before, which the commit drops, so that it needs no room."""
        return all(self._store.duplicates.knows(address.name, part) for part in parts_of(run))

    def commit(self, addresses: dict[PostTarget, Address], origin: Origin = UNKNOWN) -> bool:
        """Settle and publish everything, in the order in which it came. True: the answer waits for this append."""
        self._move(TxEvent.COMMIT)
        store, must_wait = self._store, False
        for retired in self._retired:
            must_wait = apply_outcome(store, *retired) or must_wait
        for _, run in self._gathering.posted:
            store.memory.release(run)  # the store holds what it finds a queue for
        posted = [(addresses[wanted], run) for wanted, run in self._gathering.posted]
        must_wait = store.publish_together(posted, origin, must_wait=must_wait)
        self._forget()
        return must_wait

    def fail(self, failure: Refused, count_max: int = ALL) -> None:
        """Something makes the commit impossible: as rolled back, but its end has still to be asked for."""
        self._move(TxEvent.FAIL)
        LOOK.has_touched = True
        self.failure = failure.without_trace()
        self.give_up(count_max)

    def roll_back(self, count_max: int = ALL) -> None:
        """Nothing happened: posted messages are dropped, retired ones return as delivered in vain; not more than
        `count_max` of them here, the others by `give_up`.
        """
        self._move(TxEvent.ROLL_BACK)
        self.give_up(count_max)

    def give_up(self, count_max: int) -> int:
        """Give up the next parts of one that is not to be committed; says how many, and diverts that these follow."""
        count = 0
        LOOK.has_touched = True
        diverts = self._store.diverts
        while count < count_max and self._retired:
            followed = diverts.followed_total
            self._return_some()
            count += 1 + diverts.followed_total - followed
        posted = self._gathering.posted
        if count < count_max and posted:
            dropped = posted[: count_max - count]
            del posted[: len(dropped)]
            for _, run in dropped:
                self.size_bytes -= run.held_bytes
                self._store.memory.release(run)
            count += len(dropped)
        if self.is_empty:
            self._forget()
        return count

    def _return_some(self) -> None:
        """The range that was retired first, or as much of it as is moved at once."""
        queue, segment, outcome, consumer = self._retired.popleft()
        attempts_max = self._store.settings.of(queue.kind.address).max_delivery_attempts
        most = max(MOVED_MAX // (1 + self._store.dead_letters.width_of(queue)), 1)
        if 0 < attempts_max <= segment.deliveries + 1 and segment.n > most:
            rest = segment.part(segment.start + most, segment.n - most)
            self._retired.appendleft((queue, rest, outcome, consumer))
            segment = segment.part(segment.start, most)
        self._store.give_back(queue, segment, was_delivered=True)

    def _forget(self) -> None:
        LOOK.has_touched = True
        self._gathering.posted.clear()
        self._retired.clear()
        self.size_bytes = self.parts_count = self.posted_count = 0


def _follows(before: RetiredSegment, after: RetiredSegment) -> bool:
    """Whether two retired ranges are one: clients settle message by message what came as one range."""
    (queue, one, outcome, consumer), (other_queue, other, other_outcome, other_consumer) = before, after
    return (
        queue is other_queue and consumer is other_consumer and outcome == other_outcome
        and one.run is other.run and one.start + one.n == other.start and one.deliveries == other.deliveries
    )  # fmt: skip


def _beyond(limit: int, what: str, option: str) -> str:
    return f"over {limit} {what} in one transaction, which is transaction-{option}"
