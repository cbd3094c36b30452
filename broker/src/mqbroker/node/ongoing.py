"""A transaction that was declared and not discharged, and the deliveries that are enlisted in it (AMQP 1.0 §4.4.2).

Deliveries that the peer retires settled move into the transaction. Those that it retires unsettled stay with their
session under an `Enlistment` as token, because a rollback leaves them with the peer. Invariant: while a transaction is
open, and only then, unsettled deliveries have it in their tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mqbroker.amqp.links import ReceiverLink
from mqbroker.amqp.session import Session
from mqbroker.amqp.unsettled import Taken
from mqbroker.base.look import LOOK
from mqbroker.core.queue import Queue, Segment
from mqbroker.core.transaction import Transaction


class Settlement(NamedTuple):
    """Deliveries first…last that a commit settles, and the outcome that they got."""

    session: Session
    first: int
    last: int
    outcome: Any


class Ongoing:
    """`link` is the coordinator's on which it was declared, `work` what it holds."""

    __slots__ = ("deadline_ns", "enlisted", "id", "link", "work")

    def __init__(self, txn_id: bytes, link: ReceiverLink, work: Transaction, deadline_ns: int) -> None:
        self.id = txn_id
        self.link = link
        self.work = work
        self.deadline_ns = deadline_ns
        self.enlisted: list[tuple[Session, int, int]] = []  # ranges of delivery ids, first and last

    def enlist(self, session: Session, numbered: tuple[int, Taken], outcome: Any) -> None:
        """Deliveries that stay unsettled get this outcome by the commit; None: not said yet, so nothing hangs on it."""
        first, taken = numbered
        if outcome is None:
            session.unsettled.put_back(first, taken)
            return
        session.unsettled.put_back(first, taken.with_token(Enlistment(self, outcome, taken.token)))
        last = first + taken.n - 1
        LOOK.has_touched = True
        if self.enlisted and self.enlisted[-1][::2] == (session, first - 1):
            last_session, begin, _ = self.enlisted[-1]
            self.enlisted[-1] = (last_session, begin, last)
        else:
            self.enlisted.append((session, first, last))

    def take_over(self) -> list[Settlement]:
        """Everything enlisted moves into the transaction, for the commit; says what is to be settled after it."""
        settlements: list[Settlement] = []
        for session, first, taken in self._take_enlisted():
            outcome = taken.token.outcome
            self.work.retire(*segment_of(taken), outcome, taken.link.owner)
            _gather(settlements, Settlement(session, first, first + taken.n - 1, outcome))
        return settlements

    def restore(self) -> None:
        """Everything enlisted is the peer's again, as if nothing had been said of it."""
        for session, first, taken in list(self._take_enlisted()):
            session.unsettled.put_back(first, taken.with_token(taken.token.token))

    def _take_enlisted(self) -> Iterator[tuple[Session, int, Taken]]:
        LOOK.has_touched = True
        enlisted, self.enlisted = self.enlisted, []
        for session, low, high in enlisted:
            for first, taken in session.unsettled.take_numbered(low, high):
                if isinstance(taken.token, Enlistment) and taken.token.ongoing is self:
                    yield session, first, taken
                else:
                    session.unsettled.put_back(first, taken)


class Enlistment:
    """The token of an unsettled delivery that is retired in an open transaction, in place of what it stands for."""

    __slots__ = ("ongoing", "outcome", "token")

    def __init__(self, ongoing: Ongoing, outcome: Any, token: tuple[Queue, Segment]) -> None:
        self.ongoing = ongoing
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
