"""A local transaction: messages that were posted and messages that were retired, until both happen or neither.

Invariants: a posted message is in no queue and in no journal before the commit; a retired one stays in delivery. A
commit happens within one step, so all of it is in one Append and recovery finds the whole of it or nothing. Messages
are routed by the commit, since queues may come and go before it. Source: AMQP 1.0 §4.3, §4.4.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from mqbroker.base.errors import Bug, Refused
from mqbroker.base.look import LOOK
from mqbroker.core.address import UNKNOWN, Address, Origin
from mqbroker.core.grouping import Grouping
from mqbroker.core.meter import Meter
from mqbroker.core.outcomes import apply_outcome, is_final
from mqbroker.core.queue import Consumer, Queue, Segment
from mqbroker.core.store import Store
from mqbroker.core.tally import Tally
from mqbroker.wire.parts import parts_of
from mqbroker.wire.performatives import Rejected
from mqbroker.wire.run import Run

Retired = tuple[Queue, Segment, Any, Consumer | None]  # messages, their outcome, and whose deliveries they are
Wanted = tuple[str, str]  # the target of messages, and the routing that is wanted there

PARTS_MAX = 50_000  # runs and ranges of one transaction: a commit is one step, and everybody waits for it


class Tx(enum.Enum):
    """Where a transaction stands. FAILED: it can only be rolled back, and what it held is given up already."""

    OPEN = "open"
    FAILED = "failed"
    DONE = "done"


class TxEvent(enum.Enum):
    """What moves a transaction."""

    WORK = "work"
    FAIL = "fail"
    COMMIT = "commit"
    ROLL_BACK = "roll back"


TX_NEXT: dict[tuple[Tx, TxEvent], Tx] = {
    (Tx.OPEN, TxEvent.WORK): Tx.OPEN,
    (Tx.OPEN, TxEvent.FAIL): Tx.FAILED,
    (Tx.OPEN, TxEvent.COMMIT): Tx.DONE,
    (Tx.OPEN, TxEvent.ROLL_BACK): Tx.DONE,
    (Tx.FAILED, TxEvent.ROLL_BACK): Tx.DONE,
}


class Transaction:
    """See the module's docstring. `failure` says why it can only be rolled back."""

    __slots__ = ("_posted", "_retired", "_store", "failure", "size_bytes", "state")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._posted: list[tuple[Wanted, Run]] = []
        self._retired: list[Retired] = []
        self.state = Tx.OPEN
        self.failure: Refused | None = None
        self.size_bytes = 0  # memory of what was posted

    def _move(self, event: TxEvent) -> None:
        found = TX_NEXT.get((self.state, event))
        if found is None:
            raise Bug(f"{event.value} in a transaction that is {self.state.value}")
        LOOK.has_touched = True
        self.state = found

    @property
    def is_open(self) -> bool:
        """Whether it can still be committed."""
        return self.state is Tx.OPEN

    @property
    def parts_count(self) -> int:
        """Runs that were posted and ranges that were retired."""
        return len(self._posted) + len(self._retired)

    # -- work ----------------------------------------------------------------------------------------------------------

    def check(self, size_bytes: int = 0, more_parts: int = 0, *, may_page: bool = False) -> None:
        """Whether so many more bytes fit, and one more part beside `more_parts` others. Raises Refused.

        `may_page`: they go to an address that keeps on disk what is too much, once they are committed; until then they
        are in memory, beyond its bound by a quarter.
        """
        limit, memory = self._store.limits.transaction_max_size_bytes, self._store.memory
        why = ""
        if self.size_bytes + size_bytes > limit:
            why = f"over {limit} bytes in one transaction, which is transaction-max-size-bytes"
        elif self.parts_count + more_parts >= PARTS_MAX:
            why = f"over {PARTS_MAX} messages and acknowledgements in one transaction"
        elif size_bytes and memory.is_full and not (may_page and memory.held_bytes < memory.max_bytes * 5 // 4):
            why = memory.why_full
        if why:
            raise Refused("amqp:resource-limit-exceeded", why)

    def post(self, address: str, run: Run, routing: str = "") -> None:
        """Messages for an address, seen by nobody before the commit. `routing`: see `Store.target_for`."""
        self._move(TxEvent.WORK)
        self._store.memory.hold(run)
        LOOK.has_touched = True
        self.size_bytes += run.held_bytes
        self._posted.append(((address, routing), run))

    def retire(self, queue: Queue, segment: Segment, outcome: Any, consumer: Consumer | None = None) -> None:
        """Messages in delivery with that consumer, and the outcome that they get by the commit."""
        self._move(TxEvent.WORK)
        LOOK.has_touched = True
        if self._retired and _follows(self._retired[-1], (queue, segment, outcome, consumer)):
            before = self._retired[-1][1]
            self._retired[-1] = (queue, before.part(before.start, before.n + segment.n), outcome, consumer)
        else:
            self._retired.append((queue, segment, outcome, consumer))

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        """What was retired."""
        for queue, segment, _, _ in self._retired:
            yield queue, segment

    @property
    def rejected_count(self) -> int:
        """Messages that were retired as rejected."""
        return sum(segment.n for _, segment, outcome, _ in self._retired if isinstance(outcome, Rejected))

    # -- ends ----------------------------------------------------------------------------------------------------------

    def prepare(self) -> dict[Wanted, Address]:
        """The addresses of all that was posted, as they are now; what is to be dropped there is gone then.

        Whoever commits may send there by then: a permission that was taken away since is gone for these as well. Raises
        Refused where there is no commit.
        """
        for target in dict.fromkeys(wanted[0] for wanted, _ in self._posted):
            self._store.may_send(target)
        addresses = {wanted: self._store.target_for(*wanted) for wanted, _ in self._posted}
        if self._store.grouping is not None:
            self._check_groups(self._store.grouping, addresses)
        tallies = {each.meter: Tally(each.meter) for each in addresses.values() if each.meter is not None}
        if tallies:
            self._admit(addresses, tallies)
        return addresses

    def _check_groups(self, grouping: Grouping, addresses: dict[Wanted, Address]) -> None:
        """What was posted was asked for then. Raises Refused where a group has lost its owner since."""
        for wanted, run in self._posted:
            if grouping.covers(addresses[wanted]) and grouping.wanted(addresses[wanted], run):
                raise Refused("amqp:precondition-failed", "a group of its messages has lost its node since; try again")

    def _admit(self, addresses: dict[Wanted, Address], tallies: dict[Meter, Tally]) -> None:
        """Ask addresses with bounds whether they take what was posted. Raises Refused."""
        for queue, segment, outcome, _ in self._retired:
            if queue.meter in tallies and is_final(outcome):
                tallies[queue.meter].free(segment)
        kept: list[tuple[Wanted, Run]] = []
        dropped: list[tuple[Meter, Run]] = []
        for wanted, run in self._posted:
            meter = addresses[wanted].meter
            if meter is None or self._is_known(addresses[wanted], run) or tallies[meter].takes(run):
                kept.append((wanted, run))
            elif meter.drops:
                dropped.append((meter, run))
            else:
                raise Refused("amqp:resource-limit-exceeded", meter.refused(run.count))
        for meter, run in dropped:
            meter.refused(run.count)
            self._store.memory.release(run)
        LOOK.has_touched = True
        self._posted = kept

    def _is_known(self, address: Address, run: Run) -> bool:
        """Whether all of it was seen before, which the commit drops, so that it needs no room."""
        return all(self._store.duplicates.knows(address.name, part) for part in parts_of(run))

    def commit(self, addresses: dict[Wanted, Address], origin: Origin = UNKNOWN) -> bool:
        """Settle and publish everything, in the order in which it came. True: the answer waits for this append."""
        self._move(TxEvent.COMMIT)
        store, must_wait = self._store, False
        for retired in self._retired:
            must_wait = apply_outcome(store, *retired) or must_wait
        for _, run in self._posted:
            store.memory.release(run)  # the store holds what it finds a queue for
        posted = [(addresses[wanted], run) for wanted, run in self._posted]
        must_wait = store.publish_together(posted, origin, must_wait=must_wait)
        self._forget()
        return must_wait

    def fail(self, failure: Refused) -> None:
        """Something makes the commit impossible: as rolled back, but its end has still to be asked for."""
        self._move(TxEvent.FAIL)
        LOOK.has_touched = True
        self.failure = failure
        self._give_up()

    def roll_back(self) -> None:
        """Nothing happened: posted messages are dropped, retired ones return as delivered in vain."""
        self._move(TxEvent.ROLL_BACK)
        self._give_up()

    def _give_up(self) -> None:
        for queue, segment, _, _ in self._retired:
            self._store.give_back(queue, segment, was_delivered=True)
        for _, run in self._posted:
            self._store.memory.release(run)
        self._forget()

    def _forget(self) -> None:
        LOOK.has_touched = True
        self._posted.clear()
        self._retired.clear()
        self.size_bytes = 0


def _follows(before: Retired, after: Retired) -> bool:
    """Whether two retired ranges are one: clients settle message by message what came as one range."""
    (queue, one, outcome, consumer), (other_queue, other, other_outcome, other_consumer) = before, after
    return (
        queue is other_queue and consumer is other_consumer and outcome == other_outcome
        and one.run is other.run and one.start + one.n == other.start and one.deliveries == other.deliveries
    )  # fmt: skip
