"""Transactions: the link to the coordinator, and requests on it (AMQP 1.0 part 4).

A transaction ends with its connection. Requests to begin one are asked again on the next connection; a commit whose
answer did not come is in doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mqbroker.amqp.events import Detached
from mqbroker.amqp.links import SenderLink
from mqbroker.amqp.unsettled import Taken
from mqbroker.client.effects import Answer, Failure
from mqbroker.client.ends import End
from mqbroker.client.errors import ClientError, TransactionFailed, TransactionInDoubt
from mqbroker.client.inputs import Finish, Txn
from mqbroker.client.termini import coordinator_attach
from mqbroker.wire.performatives import Accepted, Declare, Declared, Discharge, Rejected, encode
from mqbroker.wire.run import single

if TYPE_CHECKING:
    from mqbroker.client.machine import Machine

VALUE = b"\x00\x53\x77"
LOST = "the connection of the transaction was lost: it is rolled back; begin it again"


class _Asked(NamedTuple):
    """A request; without `finish` it is one to begin."""

    token: Any
    finish: Finish | None


class CoordinatorEnd(End):
    """The link to the coordinator; made when the first transaction begins."""

    kind = "transactions"
    link: SenderLink | None

    def __init__(self, machine: Machine, handle: int) -> None:
        super().__init__(machine, handle, "", None)
        self._waiting: list[_Asked] = []

    def make_link(self) -> SenderLink:
        return self.machine.session.attach_sender(coordinator_attach(f"coordinator-{self.handle}"))

    def begin(self, token: Any) -> None:
        """A transaction is wanted by the request `token`, which is answered with its id (AMQP 1.0 §4.2)."""
        self._waiting.append(_Asked(token, None))
        self.machine.dirty[self] = None

    def finish(self, request: Finish) -> None:
        """A transaction is to be committed or rolled back (AMQP 1.0 §4.3)."""
        self._waiting.append(_Asked(request.token, request))
        self.machine.dirty[self] = None

    def pump(self) -> None:
        """Send what there is credit for. What belongs to another connection is answered without it."""
        self._waiting = [asked for asked in self._waiting if not self._lost_if_stale(asked)]
        link = self.link
        while self._waiting and link is not None and self.is_ready and link.credit > 0 and link.session.window > 0:
            asked = self._waiting.pop(0)
            request = asked.finish
            performative: Declare | Discharge = (
                Declare() if request is None else Discharge(txn_id=request.txn.id, fail=not request.is_commit)
            )
            link.session.send_run(link, single(VALUE + encode(performative)), 0, 1, asked)

    def _lost_if_stale(self, asked: _Asked) -> bool:
        """Tell whoever waits for one of an earlier connection that it is lost; whether it is."""
        request = asked.finish
        if request is None or request.txn.epoch == self.machine.epoch:
            return False
        self._lost(asked, ClientError(LOST))
        return True

    def _lost(self, asked: _Asked, error: ClientError) -> None:
        """Its transaction ended with its connection or link, as a rollback wants it."""
        if asked.finish is not None and not asked.finish.is_commit:
            self.machine.effects.append(Answer(asked.token, None))
        else:
            self.machine.effects.append(Failure(asked.token, TransactionFailed(error.why, error.condition)))

    def settled(self, taken: Taken, outcome: Any) -> None:
        """The coordinator answered."""
        token = taken.token.token
        if isinstance(outcome, Declared):
            self.machine.effects.append(Answer(token, Txn(self.machine.epoch, outcome.txn_id)))
        elif isinstance(outcome, Accepted):
            self.machine.effects.append(Answer(token, None))
        else:
            error = outcome.error if isinstance(outcome, Rejected) else None
            said = "the broker refused it" if error is None else error.description or "the broker refused it"
            condition = "" if error is None else str(error.condition)
            self.machine.effects.append(Failure(token, TransactionFailed(f"transaction: {said}", condition)))

    def interrupted(self, event: Detached | None) -> None:
        asked_under_way = [] if event is None else [taken.token for taken in event.returned]
        again = [asked for asked in asked_under_way if asked.finish is None]
        ending = [asked for asked in asked_under_way if asked.finish is not None]
        self._doubt(ending, ClientError("the connection was lost during the commit"))
        self._waiting = again + self._waiting

    def fail(self, error: ClientError, event: Detached | None = None) -> None:
        self._doubt([taken.token for taken in self.under_way(event)], error)
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            self.machine.effects.append(Failure(asked.token, TransactionFailed(error.why, error.condition)))
        super().fail(error, event)

    def _doubt(self, asked_under_way: list[_Asked], error: ClientError) -> None:
        for asked in asked_under_way:
            if asked.finish is None or not asked.finish.is_commit:
                self._lost(asked, error)
                continue
            why = f"{error.why}: all of the transaction happened, or nothing of it"
            self.machine.effects.append(Failure(asked.token, TransactionInDoubt(why, error.condition)))
