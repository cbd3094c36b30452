"""A transaction that was declared and not discharged, and the deliveries that are enlisted in it (AMQP 1.0 §4.4.2).

Deliveries that the peer retires settled move into the transaction. Those that it retires unsettled stay with their
session under an `Enlistment` as token, because a rollback leaves them with the peer. Invariant: while a transaction is
open, and only then, unsettled deliveries have it in their tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from mqbroker.amqp.links import ReceiverLink
from mqbroker.amqp.session import Session
from mqbroker.amqp.settling import ENLISTED, NO_FEWER, Portion
from mqbroker.amqp.unsettled import Taken
from mqbroker.base.look import LOOK
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.store.transaction import Transaction
from mqbroker.node.values.link_ends import consumer_of
from mqbroker.wire.performatives import Accepted, TransactionalState

WHOLE: Final = Portion(NO_FEWER, NO_FEWER, 0, 0)


class Settlement(NamedTuple):
    """Deliveries first…last that a commit settles, and the outcome that they got."""

    session: Session
    first: int
    last: int
    outcome: Any


class OpenTransaction:
    """`link` is the coordinator's on which it was declared, `work` what it holds.

    `accepted` is what each message is told that was posted in it: the provisional outcome, which is always the same.
    """

    __slots__ = ("accepted", "deadline_ns", "enlisted", "enlisted_count", "id", "link", "work")

    def __init__(self, txn_id: bytes, link: ReceiverLink, work: Transaction, deadline_ns: int) -> None:
        self.id = txn_id
        self.accepted = TransactionalState(txn_id=txn_id, outcome=Accepted())
        self.link = link
        self.work = work
        self.deadline_ns = deadline_ns
        self.enlisted: list[tuple[Session, int, int]] = []  # ranges of delivery ids, first and last
        self.enlisted_count = 0  # parts that the commit makes of them, at most; none of them twice as many

    def enlist(self, session: Session, numbered: tuple[int, Taken], outcome: Any) -> None:
        """Deliveries that stay unsettled get this outcome by the commit; None: not said yet, so nothing hangs on it."""
        first, taken = numbered
        if outcome is None:
            session.unsettled.put_back(first, taken)
            return
        session.unsettled.put_back(first, taken.with_token(Enlistment(self, outcome, taken.token)))
        last = first + taken.n - 1
        LOOK.has_touched = True
        self.enlisted_count += taken.n if self.work.moves_each(*segment_of(taken), outcome) else 1
        if self.enlisted and self.enlisted[-1][::2] == (session, first - 1):
            last_session, begin, _ = self.enlisted[-1]
            self.enlisted[-1] = (last_session, begin, last)
        else:
            self.enlisted.append((session, first, last))

    def leaving(self) -> Iterator[tuple[Queue, Segment, Any]]:
        """All that is enlisted, each once, and the outcome that it gets by the commit."""
        told: set[tuple[Session, int]] = set()  # who changes its mind has enlisted the same ids again
        for session, low, high in self.enlisted:
            for first, taken in session.unsettled.begun_in(low, high):
                token = taken.token
                if isinstance(token, Enlistment) and token.transaction is self and (session, first) not in told:
                    told.add((session, first))
                    yield *segment_of(taken), token.outcome

    def take_over(self) -> list[Settlement]:
        """Everything enlisted moves into the transaction, for the commit; says what is to be settled after it."""
        settlements: list[Settlement] = []
        for session, first, taken in self._take_enlisted():
            outcome = taken.token.outcome
            self.work.retire(*segment_of(taken), outcome, consumer_of(taken.link))
            _gather(settlements, Settlement(session, first, first + taken.n - 1, outcome))
        return settlements

    def restore_some(self) -> int:
        """The next of what is enlisted is the peer's again, as if nothing had been said of it; how many entries."""
        enlisted = self._take_some(ENLISTED)
        for session, first, taken in enlisted:
            session.unsettled.put_back(first, taken.with_token(taken.token.token))
        return len(enlisted)

    def _take_enlisted(self) -> Iterator[tuple[Session, int, Taken]]:
        while self.enlisted:
            yield from self._take_some(WHOLE)

    def _take_some(self, portion: Portion) -> list[tuple[Session, int, Taken]]:
        """The first range of what is enlisted, or so much of it."""
        session, low, high = self.enlisted[0]
        LOOK.has_touched = True
        last = session.unsettled.piece_of(low, high, portion)
        if session.unsettled.has_any(last + 1, high):
            self.enlisted[0] = (session, last + 1, high)
        else:
            del self.enlisted[0]
            last = high
        enlisted: list[tuple[Session, int, Taken]] = []
        for first, taken in session.unsettled.take_numbered(low, last):
            if isinstance(taken.token, Enlistment) and taken.token.transaction is self:
                enlisted.append((session, first, taken))
            else:
                session.unsettled.put_back(first, taken)
        return enlisted


class Enlistment:
    """The token of an unsettled delivery that is retired in an open transaction, in place of what it stands for."""

    __slots__ = ("outcome", "token", "transaction")

    def __init__(self, transaction: OpenTransaction, outcome: Any, token: tuple[Queue, Segment]) -> None:
        self.transaction = transaction
        self.outcome = outcome
        self.token = token


def segment_of(taken: Taken) -> tuple[Queue, Segment]:
    """Queue and messages of a settled range."""
    token: tuple[Queue, Segment] = taken.token.token if isinstance(taken.token, Enlistment) else taken.token
    queue, segment = token
    return queue, Segment(segment.run, segment.start + taken.skip, taken.n, segment.deliveries)


def _gather(settlements: list[Settlement], new: Settlement) -> None:
    """Neighbours with one outcome become one disposition."""
    LOOK.has_touched = True
    if settlements:
        session, first, last, outcome = settlements[-1]
        if session is new.session and last + 1 == new.first and outcome == new.outcome:
            settlements[-1] = Settlement(session, first, new.last, outcome)
            return
    settlements.append(new)
