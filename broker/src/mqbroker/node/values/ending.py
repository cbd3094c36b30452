"""The end of a transaction, which may hold very much: a rollback goes piece by piece, a commit has a turn of its own.

What comes behind it on its connection waits, so the order of a session holds. A commit is not divided, because all of
it is in one append. Invariants: what a transaction holds counts as in delivery until it is done; a commit that has not
had its turn when the connection is lost was never there. Source: docs/adr/0019-commits.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mqbroker.amqp import frame_costs
from mqbroker.amqp.events import WorkDone
from mqbroker.base.look import LOOK

if TYPE_CHECKING:
    from mqbroker.amqp.connection import Connection
    from mqbroker.node.values.open_transaction import OpenTransaction

GIVEN_UP_MAX: Final = 8  # parts of a piece


class Ending:
    """A part of what a connection does in pieces. `done` is told of its end: then it is committed, or the rollback is
    answered."""

    __slots__ = ("_connection", "_had_turn", "_tell", "is_commit", "is_over", "is_told", "transaction")

    def __init__(
        self,
        connection: Connection,
        transaction: OpenTransaction,
        done: Callable[[Ending], None],
        *,
        is_commit: bool = False,
    ) -> None:
        self._connection: Final = connection
        self.transaction: Final = transaction
        self._tell: Final = done
        self._had_turn = False
        self.is_commit = is_commit
        self.is_over = False
        self.is_told = False  # who waits for it

    def go_on(self) -> bool:
        """One piece; whether it was the last."""
        if self.is_over:
            return True
        LOOK.has_touched = True
        connection = self._connection
        if self.is_commit and connection.is_dead:
            self.call_off()
        if self._piece():
            return False
        if self.is_commit:
            cost = self._cost()
            if cost > connection.allowance and not self._had_turn:
                self._had_turn, connection.allowance = True, 0
                return False
            connection.allowance -= cost
        connection.events.append(WorkDone(self._finish))
        return True

    def _cost(self) -> int:
        """Of the commit, in units of amqp/frame_costs.py: by its parts, and by bytes, since a part may be many
        messages."""
        transaction = self.transaction
        parts_count = transaction.work.close() + transaction.enlisted_count
        return parts_count * frame_costs.COMMITTED + (transaction.work.size_bytes >> frame_costs.BYTES_SHIFT)

    def _piece(self) -> bool:
        """A piece of a rollback; False: there was none left."""
        transaction, connection = self.transaction, self._connection
        if self.is_commit:
            return False
        LOOK.has_touched = True
        if transaction.enlisted:
            connection.allowance -= max(transaction.restore_some(), 1) * frame_costs.ENLISTED
        elif not transaction.work.is_empty:
            connection.allowance -= transaction.work.give_up(GIVEN_UP_MAX) * frame_costs.MOVED
        else:
            return False
        return True

    def call_off(self) -> None:
        """It is not committed any more, and `done` tells nobody of its end."""
        LOOK.has_touched = True
        self.is_told = True
        if self.is_commit:
            self.is_commit = False
            self.transaction.work.roll_back(0)

    def _finish(self) -> None:
        if not self.is_over:
            LOOK.has_touched = True
            self.is_over = True
            self._tell(self)

    def hurry(self) -> None:
        """What it holds is wanted now."""
        if self.is_commit:
            self.call_off()
        while self._piece():
            pass

    def part_with(self, _name: str, _role: bool) -> None:
        """Somebody wants a link that is over: what it came to has to be known before."""
        if self._connection.is_dead:
            self.hurry()
