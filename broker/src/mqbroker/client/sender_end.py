"""Sending: messages wait for credit, go out many to a write, and have an outcome each.

Invariants: order is kept, also by what is sent again; a message is in `pending` or unsettled on the link, never both;
each gets one outcome. Bounds are the shell's, which counts what has no outcome.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp.events import Detached
from mqbroker.amqp.links import SenderLink
from mqbroker.amqp.outgoing import HEAD_GROWTH
from mqbroker.amqp.unsettled import Taken
from mqbroker.client import errors
from mqbroker.client.effects import Outcomes
from mqbroker.client.ends import End
from mqbroker.client.inputs import Sending
from mqbroker.client.options import SenderTerms
from mqbroker.client.termini import sender_attach
from mqbroker.wire.performatives import Accepted, Modified, Rejected, Released, TransactionalState

if TYPE_CHECKING:
    from mqbroker.client.machine import Machine

BATCH_MAX: Final = 512
FRAME_ROOM: Final = 64  # bytes of a transfer that are not the message


class SenderEnd(End):
    """The link of one sender of the application."""

    kind = "sender"
    link: SenderLink | None

    def __init__(self, machine: Machine, handle: int, terms: SenderTerms, token: Any) -> None:
        super().__init__(machine, handle, terms.address, token)
        self.terms = terms
        self.pending: deque[Sending] = deque()

    def make_link(self) -> SenderLink:
        link = self.machine.session.attach_sender(sender_attach(f"sender-{self.handle}", self.terms))
        link.send_settled = self.terms.settled
        return link

    # -- out -----------------------------------------------------------------------------------------------------------

    def post(self, sending: Sending) -> None:
        """A message of the application."""
        self.pending.append(sending)
        self.machine.dirty[self] = None

    def pump(self) -> None:
        """Send what credit, window and transport let through."""
        link, pending = self.link, self.pending
        while pending and link is not None and self.is_ready and link.is_attached:
            room = min(link.credit, link.session.window)
            if room <= 0 or not self.machine.ask_to_write(self):
                return
            if not self._send_some(link, min(room, BATCH_MAX)):
                return
        if link is not None and self.is_ready and link.is_attached and link.is_draining and link.credit:
            link.drained()

    def _send_some(self, link: SenderLink, room: int) -> bool:
        first = self.pending[0]
        size_max = link.max_message_size
        if size_max and len(first.payload) > size_max:
            why = f"a message of {len(first.payload)} bytes: {self.shown} takes at most {size_max}"
            self._refuse(errors.MessageFault(why, "amqp:link:message-size-exceeded"))
            return True
        if first.txn is not None and first.txn.epoch != self.machine.epoch:
            self._refuse(errors.TransactionFailed("the connection of the transaction was lost: it is rolled back"))
            return True
        frame_room = min(link.session.connection.peer_frame_size - FRAME_ROOM - HEAD_GROWTH, size_max or (1 << 62))
        if first.txn is not None or len(first.payload) > frame_room:
            return self._send_one(link, first)
        batch: list[Sending] = []
        for sending in self.pending:
            if len(batch) >= room or sending.txn is not None or len(sending.payload) > frame_room:
                break
            batch.append(sending)
        payloads = [sending.payload for sending in batch]
        count = link.session.send_payloads(link, payloads, batch)
        self._sent(batch[:count], sum(map(len, payloads[:count])))
        return count > 0

    def _send_one(self, link: SenderLink, sending: Sending) -> bool:
        """In as many frames as it takes, or as part of a transaction."""
        state = None if sending.txn is None else TransactionalState(txn_id=sending.txn.id)
        if not link.session.send_message(link, [sending.payload], [sending], state):
            return False
        self._sent([sending], len(sending.payload))
        return True

    def _sent(self, batch: list[Sending], size_bytes: int) -> None:
        for _ in batch:
            self.pending.popleft()
        self.machine.written_bytes += size_bytes
        if self.terms.settled and batch:
            self.machine.effects.append(Outcomes(batch, None))

    def _refuse(self, error: errors.ClientError) -> None:
        self.machine.effects.append(Outcomes([self.pending.popleft()], lambda: error))

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def settled(self, taken: Taken, outcome: Any) -> None:
        """The broker gave deliveries an outcome."""
        if isinstance(outcome, TransactionalState):
            outcome = outcome.outcome
        self.machine.effects.append(Outcomes(_of(taken), self._failure(outcome)))

    def _failure(self, outcome: Any) -> Any:
        """What makes the error of an outcome, None for the good one."""
        if isinstance(outcome, Accepted):
            return None
        if isinstance(outcome, Rejected):
            said, condition = "the broker rejected the message", ""
            if outcome.error is not None:
                condition = str(outcome.error.condition)
                said = f"{said}: {outcome.error.description}" if outcome.error.description else said
            return lambda: errors.Rejected(f"{said}; address {self.shown}", condition)
        if isinstance(outcome, Released):
            return lambda: errors.Released(f"{self.shown} did not take the message; it may be sent again")
        if isinstance(outcome, Modified):
            flags = {"delivery_failed": outcome.delivery_failed, "undeliverable_here": outcome.undeliverable_here}
            return lambda: errors.Modified(f"{self.shown} did not take the message; it may be sent again", **flags)
        return lambda: errors.OutcomeUnknown(f"{self.shown}: the broker settled the message without an outcome")

    # -- ends ----------------------------------------------------------------------------------------------------------

    def interrupted(self, event: Detached | None) -> None:
        """What had no outcome goes back in front, or is told."""
        returned = [] if event is None else [each for taken in event.returned for each in _of(taken)]
        again = [each for each in returned if self.terms.resend and each.txn is None]
        self._fail_all(
            [each for each in returned if each.txn is None and not self.terms.resend],
            lambda: errors.OutcomeUnknown(
                f"the connection was lost before {self.shown} gave the message an outcome: it may have been taken"
            ),
        )
        self._fail_all(
            [each for each in returned if each.txn is not None],
            lambda: errors.TransactionFailed("the connection of the transaction was lost: it is rolled back"),
        )
        self.pending.extendleft(reversed(again))

    def fail(self, error: errors.ClientError, event: Detached | None = None) -> None:
        """It has ended with an error: whoever waits for an outcome is told."""
        returned = [each for taken in self.under_way(event) for each in _of(taken)]
        why = f"{error.why}; the message was sent, and may have been taken"
        self._fail_all(returned, lambda: errors.OutcomeUnknown(why, error.condition))
        waiting, self.pending = list(self.pending), deque()
        self._fail_all(waiting, lambda: type(error)(error.why, error.condition))
        super().fail(error, event)

    def close(self, is_closed: bool) -> None:
        """What is under way has lost its outcome."""
        under_way = [each for taken in self.under_way(None) for each in _of(taken)]
        why = f"the sender of {self.shown} was closed before the outcome came: the message may have been taken"
        self._fail_all(under_way, lambda: errors.OutcomeUnknown(why))
        super().close(is_closed)

    def _fail_all(self, sendings: list[Sending], failure: Any) -> None:
        if sendings:
            self.machine.effects.append(Outcomes(sendings, failure))


def _of(taken: Taken) -> list[Sending]:
    sendings: list[Sending] = taken.token[taken.skip : taken.skip + taken.n]
    return sendings
