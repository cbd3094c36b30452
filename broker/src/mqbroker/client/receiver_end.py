"""Receiving: credit is given as the application takes messages, and outcomes go back in ranges.

Invariant: credit given and not used, and messages that wait for the application, are together never above the credit
of the receiver. A browser is drained instead, which tells when there is nothing more, and so is a receiver that is to
take nothing more (AMQP 1.0 §2.6.7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqbroker.amqp.events import Detached, Incoming
from mqbroker.amqp.links import ReceiverLink
from mqbroker.amqp.session import INCOMING_WINDOW
from mqbroker.base.serial import wrap
from mqbroker.client.effects import Answer, Arrived, AtEnd, Interrupted
from mqbroker.client.ends import End
from mqbroker.client.errors import ClientError
from mqbroker.client.inputs import Drain, Settle
from mqbroker.client.options import ReceiverTerms
from mqbroker.client.termini import receiver_attach, receiver_name
from mqbroker.wire.performatives import Accepted, Attach, Disposition, Flow, TransactionalState

if TYPE_CHECKING:
    from mqbroker.client.machine import Machine


class ReceiverEnd(End):
    """The link of one receiver of the application, and how much of its credit is used."""

    kind = "receiver"
    link: ReceiverLink | None

    def __init__(self, machine: Machine, handle: int, terms: ReceiverTerms, token: Any) -> None:
        super().__init__(machine, handle, terms.address, token)
        self.terms = terms
        self.waiting_count = 0  # messages that the application has not taken
        self.name = receiver_name(handle, terms)
        self.is_leaving = False  # drained, and there only for what is to be settled
        self._is_draining = False
        self._draining: list[Any] = []  # tokens of whoever waits for the end of the drain
        self._confirming: dict[int, Any] = {}  # delivery id -> token
        self._granted = 0  # of a drain: what came of it says whether there is more
        self._arrived = 0

    def make_link(self) -> ReceiverLink:
        attach = receiver_attach(self.name, self.terms, self.machine.settings.max_message_size)
        return self.machine.session.attach_receiver(attach)

    def opened(self, attach: Attach) -> None:
        if attach.source is not None and attach.source.address:
            self.address = attach.source.address
        if not self._is_draining:
            self._grant()

    @property
    def outlives_its_link(self) -> bool:
        return self.terms.outlives_its_link

    # -- credit --------------------------------------------------------------------------------------------------------

    def took(self, count: int) -> None:
        """The application took messages."""
        self.waiting_count -= count
        link = self.link
        if link is None or not self.is_ready or not link.is_attached or self._is_draining:
            return
        if self.terms.browse:
            if link.credit == 0 and not self.waiting_count and self._arrived == self._granted:
                self._grant()
        elif (link.credit + self.waiting_count) * 2 <= self.terms.credit:
            self._grant()

    def _grant(self) -> None:
        link = self.link
        assert link is not None
        credit = self.terms.credit - self.waiting_count
        self._granted, self._arrived = credit, 0
        link.credit = link.window = credit
        self._flow(link, drain=self.terms.browse)

    @staticmethod
    def _flow(link: ReceiverLink, *, drain: bool) -> None:
        session = link.session
        session.send(
            Flow(
                next_incoming_id=wrap(session.next_incoming_id), incoming_window=INCOMING_WINDOW,
                next_outgoing_id=wrap(session.next_outgoing_id), outgoing_window=INCOMING_WINDOW, handle=link.handle,
                delivery_count=link.delivery_count, link_credit=link.credit, drain=drain,
            )
        )  # fmt: skip

    def look_for_end(self) -> None:
        """The broker used up credit without messages: where that ends a drain, there is nothing more."""
        if self.terms.browse and self.link is not None and self.link.credit == 0 and self._arrived < self._granted:
            self.machine.effects.append(AtEnd(self.handle))
        self._look_for_drained()

    def drain(self, request: Drain) -> None:
        """The application wants nothing more than what is on its way."""
        is_first, self._is_draining = not self._is_draining, True
        self.is_leaving = self.is_leaving or request.is_leaving
        self._draining.append(request.token)
        link = self.link
        if is_first and link is not None and self.is_ready and link.credit and not self.terms.browse:
            self._flow(link, drain=True)
        self._look_for_drained()

    def _look_for_drained(self) -> None:
        link = self.link
        if self._draining and (link is None or not self.is_ready or not link.is_attached or not link.credit):
            tokens, self._draining = self._draining, []
            self.machine.effects.append(AtEnd(self.handle))
            for token in tokens:
                self.machine.effects.append(Answer(token, None))

    def void(self) -> None:
        """A delivery came to nothing."""
        self._arrived += 1
        self.took(0)
        self._look_for_drained()

    # -- messages ------------------------------------------------------------------------------------------------------

    def arrived(self, event: Incoming) -> None:
        """Messages came in on the link, and go to the application."""
        self.waiting_count += event.run.count
        self._arrived += event.run.count
        self.machine.effects.append(
            Arrived(self.handle, self.machine.epoch, event.run, event.delivery_id, event.is_settled)
        )
        self._look_for_drained()

    def settle(self, request: Settle) -> None:
        """An outcome. Says whether it went to the broker, by True or False, where a token asks."""
        link = self.link
        if link is None or not link.is_attached or request.epoch != self.machine.epoch:
            self._answer(request.token, False)
            return
        first, state = request.delivery_id, request.state
        if request.txn is not None:
            wrapped = TransactionalState(txn_id=request.txn.id, outcome=state)  # type: ignore[arg-type]  # an outcome
            link.session.flush()
            link.session.send(Disposition(role=True, first=first, last=first, settled=True, state=wrapped))
        elif self.terms.confirm:
            link.session.outcome(first, wrap(first + request.messages - 1), state)
            if request.token is not None:
                self._confirming[first] = request.token
            return
        elif isinstance(state, Accepted):
            link.session.accept(first, request.messages)
        else:
            link.session.dispose(first, first + request.messages - 1, state, as_receiver=True)
        self._answer(request.token, True)

    def confirmed(self, first: int, last: int) -> None:
        """The broker settled its deliveries first…last."""
        count = last - first + 1
        if count <= len(self._confirming):
            numbers = [number for each in range(first, last + 1) if (number := each & 0xFFFFFFFF) in self._confirming]
        else:
            numbers = [each for each in self._confirming if (each - first) & 0xFFFFFFFF < count]
        for number in numbers:
            self._answer(self._confirming.pop(number), True)

    def _answer(self, token: Any, value: bool) -> None:
        if token is not None:
            self.machine.effects.append(Answer(token, value))

    # -- ends ----------------------------------------------------------------------------------------------------------

    def interrupted(self, event: Detached | None) -> None:
        self._drop()
        self.machine.effects.append(Interrupted(self.handle))

    def fail(self, error: ClientError, event: Detached | None = None) -> None:
        self._drop()
        super().fail(error, event)

    def _drop(self) -> None:
        """Nothing that came before counts any more."""
        self.waiting_count = 0
        self.link = None
        self._look_for_drained()
        waiting, self._confirming = self._confirming, {}
        for token in waiting.values():
            self._answer(token, False)
