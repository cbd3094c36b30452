"""Links as the application wants them, through any number of connections: what all kinds share.

An end is attached again whenever a connection stands, until the application closes it or a broker refuses it. Its
`link` is that of the present connection, None between connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp.events import Attached, Detached
from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.amqp.redirect import redirect_of
from mqbroker.amqp.states import ATTACHED, LinkState
from mqbroker.amqp.unsettled import Taken
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.base.time import NS_PER_MS
from mqbroker.client.effects import Answer, Failure, Gone, Restored
from mqbroker.client.errors import ClientError, Closed, LinkFailed
from mqbroker.wire.performatives import Attach, Error

if TYPE_CHECKING:
    from mqbroker.client.machine import Machine

REMEDIES: Final = {
    "amqp:not-found": "create the queue, or have the broker create it (auto-create-queues)",
    "amqp:unauthorized-access": "ask for the permission, or connect as another user",
    "amqp:resource-deleted": "it was deleted while it was in use",
    "amqp:link:stolen": "the same container attached a link of this name elsewhere",
    "amqp:resource-locked": "somebody else uses it exclusively",
}


class End(ABC):
    """Base of senders, receivers and the coordinator's link."""

    kind = "link"

    def __init__(self, machine: Machine, handle: int, address: str, token: Any) -> None:
        self.machine = machine
        self.handle = handle
        self.address = address
        self.token = token  # of the request that opens it, until it is answered
        self.link: SenderLink | ReceiverLink | None = None
        self.is_ready = False  # the broker has answered
        self.is_closing = False
        self.due_ns = 0  # by when the answer is due

    def attach(self) -> None:
        """Ask for the link on the present connection."""
        self.is_ready = False
        try:
            self.link = self.make_link()
        except (PeerFault, Refused) as error:  # no handle is free, or AMQP cannot say what is wanted
            self.fail(LinkFailed(f"{self.kind} of {self.shown}: {error.description}", error.condition))
            return
        self.link.end = self
        self.due_ns = self.machine.at.monotonic_ns + self.machine.settings.call_timeout_ms * NS_PER_MS

    @abstractmethod
    def make_link(self) -> SenderLink | ReceiverLink:
        """The link on the present session, attached. Raises PeerFault or Refused where there can be none."""

    def attached(self, event: Attached) -> None:
        """The broker answered. An answer without a terminus is a refusal, whose reason follows (§2.6.3)."""
        terminus = event.attach.target if isinstance(event.link, SenderLink) else event.attach.source
        if event.link is not self.link or terminus is None:
            return
        self.due_ns = 0
        self.is_ready = True
        self.opened(event.attach)
        if self.token is not None:
            self.machine.effects.append(Answer(self.token, self.address))
            self.token = None
        else:
            self.machine.effects.append(Restored(self.handle, self.address))

    def opened(self, attach: Attach) -> None:  # noqa: B027 - an offer to subclasses, not a duty
        """The link stands: the broker's attach has come, and was not a refusal."""

    def detached(self, event: Detached) -> None:
        """The link is gone: with its connection, or by itself."""
        if event.link is not self.link:
            return
        self.link, self.due_ns, self.is_ready = None, 0, False
        if self.machine.is_interrupted:
            self.interrupted(event)
        elif not self.is_closing:
            self.fail(self.why_ended(event.error, event.link.fault or event.link.session.fault), event)

    def interrupted(self, event: Detached | None) -> None:  # noqa: B027 - an offer to subclasses, not a duty
        """The connection is gone, and another one may come."""

    def fail(self, error: ClientError, event: Detached | None = None) -> None:
        """It is of no use any more."""
        self.machine.forget(self)
        if self.token is not None:
            self.machine.effects.append(Failure(self.token, error))
            self.token = None
        self.machine.effects.append(Gone(self.handle, error))

    def under_way(self, event: Detached | None) -> list[Taken]:
        """What it sent that has no outcome and gets none: with its link, or with a connection that is given up."""
        if event is not None:
            return event.returned
        return [] if self.link is None else self.link.session.unsettled.take_link(self.link)

    def close(self, is_closed: bool) -> None:
        """As the application wishes. What it had under way goes back."""
        self._let_go(is_closed)
        self.fail(Closed(f"the {self.kind} of {self.shown} was closed by the application"))

    def late(self) -> None:
        """The broker did not answer in time."""
        why = f"the broker did not answer within call-timeout ({self.machine.settings.call_timeout_ms} ms)"
        self._let_go(not self.outlives_its_link)
        self.fail(LinkFailed(f"{self.kind} of {self.shown}: {why}; it may be overloaded"))

    @property
    def outlives_its_link(self) -> bool:
        """Whether what the broker has for it is there beyond its link, as a durable subscription is."""
        return False

    def _let_go(self, is_closed: bool) -> None:
        """Nobody wants its link any more. One that has no answer yet would be there, with nobody, once that comes."""
        self.is_closing = True
        if self.link is not None and self.link.state in (ATTACHED, LinkState.ATTACH_SENT):
            self.link.detach(is_closed=is_closed)
            self.machine.handle_events()

    @property
    def shown(self) -> str:
        """Its address as messages of errors and the log show it."""
        return repr(self.address) if self.address else "no address"

    def why_ended(self, error: Error | None, fault: PeerFault | None) -> LinkFailed:
        """What the broker said of a link that it refused or ended, or its fault for which we ended it."""
        what = f"{self.kind} of {self.shown}"
        if fault is not None:
            why = f"what the broker sent breaks the protocol, so we ended it: {fault.description}"
            return LinkFailed(f"{what}: {why}", fault.condition)
        if error is None:
            return LinkFailed(f"{what}: the broker ended it without a reason")
        condition = str(error.condition)
        place = redirect_of(error)
        remedy = REMEDIES.get(condition) if place is None else f"connect to {place.host}:{place.port} for it"
        failure = LinkFailed(f"{what}: {error.description or 'ended'}{f'; {remedy}' if remedy else ''}", condition)
        failure.place = place
        return failure
