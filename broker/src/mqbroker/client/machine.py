"""The client as one function: `step` takes what happened and what is wanted, and says what is to be done.

Owns the links that the application wants (`Ends`), through all connections that `Reaching` makes. Pure: time, entropy
and bytes come in, effects go out. Invariant: each request with a token is answered once.
Source: docs/adr/0011-client.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mqbroker.amqp.events import (
    Aborted,
    Attached,
    Attaching,
    Began,
    ConnectionEvent,
    CreditGiven,
    CreditUsed,
    Dead,
    Detached,
    Empty,
    Ended,
    Incoming,
    LoggedIn,
    Opened,
    Retired,
    SaslDerive,
    SenderSettled,
    Settled,
)
from mqbroker.base.time import At
from mqbroker.client import inputs as given
from mqbroker.client.coordinator_end import CoordinatorEnd
from mqbroker.client.effects import Answer, Batch, Failure, Outcomes
from mqbroker.client.ends import End
from mqbroker.client.errors import Closed, LinkFailed, TransactionFailed
from mqbroker.client.options import Settings
from mqbroker.client.places import Places
from mqbroker.client.reaching import Reaching, again
from mqbroker.client.receiver_end import ReceiverEnd
from mqbroker.client.sender_end import SenderEnd
from mqbroker.client.stages import Stage
from mqbroker.client.termini import receiver_name
from mqbroker.client.topology_feed import TopologyFeed

OUT_BYTES_MAX: Final = 1 << 20  # what one step writes, about
IN_USE: Final = "amqp:resource-locked"
COORDINATOR: Final = 0  # the handle of the link to the coordinator


class Machine(Reaching):
    """See the module's docstring."""

    def __init__(self, settings: Settings, places: Places) -> None:
        super().__init__(settings, places)
        self.dirty: dict[SenderEnd | CoordinatorEnd, None] = {}
        self.written_bytes = 0
        self._has_more = False
        self._topology = TopologyFeed(self)

    def step(self, inputs: list[given.Input], at: At) -> Batch:
        """All that happened in one turn; what is to be done."""
        self.at = at
        self.effects = []
        self.written_bytes = 0
        self._has_more = False
        self._begin_turn()
        for each in inputs:
            HANDLERS[type(each)](self, each)
        self._on_time()
        for end in list(self.dirty):
            del self.dirty[end]
            end.pump()
        self._write()
        self._watch()
        return Batch(self.effects, self._wake_at_ns(), self._has_more or self._wants_turn)

    def outstanding(self) -> list[given.Sending]:
        """Messages without an outcome, for who has to give up on this machine."""
        sendings = [each for end in self.ends.values() if isinstance(end, SenderEnd) for each in end.pending]
        for taken in self._session.unsettled if self._session is not None else ():
            if isinstance(taken.link.end, SenderEnd):
                sendings += taken.token[taken.skip : taken.skip + taken.n]
        return sendings

    def ask_to_write(self, end: SenderEnd) -> bool:
        """Whether the transport takes more now; if not, the end is asked again."""
        if self._is_blocked:
            return False
        if self.written_bytes >= OUT_BYTES_MAX:
            self._has_more = True
            self.dirty[end] = None
            return False
        return True

    def forget(self, end: End) -> None:
        """It is of no use any more."""
        self.ends.pop(end.handle, None)
        if isinstance(end, SenderEnd | CoordinatorEnd):
            self.dirty.pop(end, None)

    def _blocked(self, event: given.Blocked) -> None:
        super()._blocked(event)
        if not self._is_blocked:
            self.dirty.update(dict.fromkeys(each for each in self.ends.values() if isinstance(each, SenderEnd)))

    # -- events of the connection --------------------------------------------------------------------------------------

    def handle_events(self) -> None:
        """Act on everything that the connection told."""
        while self._connection is not None and self._connection.events:
            events, self._connection.events = self._connection.events, []
            self.is_interrupted = self._connection.is_dead
            for event in events:
                handler = EVENTS.get(type(event))
                if handler is not None:
                    handler(self, event)
            self.is_interrupted = False

    def _opened(self, event: Opened) -> None:
        self._topology.opened(event.open)
        super()._opened(event)

    def _began(self, event: Began) -> None:
        is_new = self.stage is Stage.OPENING
        super()._began(event)
        if is_new:
            self._topology.attach()

    def _incoming(self, event: Incoming) -> None:
        end = event.link.end
        if end is self._topology:
            self._topology.incoming(event)
        if isinstance(end, ReceiverEnd) and end.link is event.link:
            end.arrived(event)

    def _void(self, event: Aborted | Empty) -> None:
        """A delivery that came to nothing has used up credit."""
        end = event.link.end
        if isinstance(event, Empty) and not event.is_settled and event.link.is_attached:
            event.link.session.accept(event.delivery_id, 1)
        if isinstance(end, ReceiverEnd) and end.link is event.link:
            end.void()
        elif end is self._topology and event.link.is_attached:
            event.link.regrant()

    def _settled(self, event: Settled) -> None:
        for taken in event.taken:
            end: SenderEnd | CoordinatorEnd = taken.link.end
            end.settled(taken, event.outcome)
        if event.owes_settlement:
            event.session.dispose(event.first, event.last, event.outcome, as_receiver=False)

    def _retired(self, event: Retired) -> None:
        for first, taken in event.taken:
            end: SenderEnd | CoordinatorEnd = taken.link.end
            end.settled(taken, event.state)
            if not event.is_settled:
                event.session.dispose(first, first + taken.n - 1, event.state, as_receiver=False)

    def _sender_settled(self, event: SenderSettled) -> None:
        for end in self.ends.values():
            if isinstance(end, ReceiverEnd):
                end.confirmed(event.first & 0xFFFFFFFF, (event.first & 0xFFFFFFFF) + event.last - event.first)

    def _credit_given(self, event: CreditGiven) -> None:
        end = event.link.end
        if isinstance(end, SenderEnd | CoordinatorEnd):
            self.dirty[end] = None

    def _credit_used(self, event: CreditUsed) -> None:
        end = event.link.end
        if isinstance(end, ReceiverEnd) and end.link is event.link:
            end.look_for_end()

    def _attached(self, event: Attached) -> None:
        if isinstance(event.link.end, End | TopologyFeed):
            event.link.end.attached(event)

    def _detached(self, event: Detached) -> None:
        if isinstance(event.link.end, End):
            event.link.end.detached(event)

    def _attaching(self, event: Attaching) -> None:
        event.link.refuse(event.attach, "amqp:not-implemented", "this client takes no links of the broker's making")

    def _ended(self, event: Ended) -> None:
        """A session that the broker ended takes its links with it; what comes later finds a new one."""
        connection = self._connection
        if connection is not None and not connection.is_dead and event.session is self._session:
            self._session = connection.begin()
            self._topology.ended()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _open_sender(self, request: given.OpenSender) -> None:
        self._want(SenderEnd(self, request.handle, request.terms, request.token))

    def _open_receiver(self, request: given.OpenReceiver) -> None:
        name = receiver_name(request.handle, request.terms)
        for end in [each for each in self.ends.values() if isinstance(each, ReceiverEnd) and each.name == name]:
            if not end.is_leaving:
                # Two links of one name end their session, and all others with it.
                why = f"receiver of {request.terms.address!r}: this connection has one of subscription {name!r} already"
                self.effects.append(Failure(request.token, LinkFailed(f"{why}; close that first", IN_USE)))
                return
            end.close(is_closed=False)
        self._want(ReceiverEnd(self, request.handle, request.terms, request.token))

    def _want(self, end: End) -> None:
        self.ends[end.handle] = end
        if self.stage in (Stage.CLOSING, Stage.ENDED):
            end.fail(again(self._reason))
        elif self.stage is Stage.UP:
            end.attach()
            self._topology.attach()  # where the broker ended the session before; by itself it would do so in circles

    def _post(self, request: given.Post) -> None:
        end = self.ends.get(request.handle)
        if isinstance(end, SenderEnd):
            end.post(request.sending)
        else:
            self.effects.append(Outcomes([request.sending], lambda: Closed("the sender has ended; make a new one")))

    def _took(self, request: given.Took) -> None:
        end = self.ends.get(request.handle)
        if isinstance(end, ReceiverEnd) and request.epoch == self.epoch:
            end.took(request.messages)

    def _settle(self, request: given.Settle) -> None:
        end = self.ends.get(request.handle)
        if isinstance(end, ReceiverEnd):
            end.settle(request)
        elif request.token is not None:
            self.effects.append(Answer(request.token, False))

    def _drain(self, request: given.Drain) -> None:
        end = self.ends.get(request.handle)
        if isinstance(end, ReceiverEnd):
            end.drain(request)
        else:
            self.effects.append(Answer(request.token, None))

    def _close_end(self, request: given.CloseEnd) -> None:
        end = self.ends.get(request.handle)
        if end is not None:
            end.close(request.is_closed)
        self.effects.append(Answer(request.token, None))

    def _begin(self, request: given.Begin) -> None:
        if self.stage in (Stage.CLOSING, Stage.ENDED):
            self.effects.append(Failure(request.token, again(self._reason)))
        else:
            self._coordinator().begin(request.token)

    def _finish(self, request: given.Finish) -> None:
        if self.stage in (Stage.CLOSING, Stage.ENDED):
            why = f"{self._reason.why}; the transaction is rolled back"
            self.effects.append(Failure(request.token, TransactionFailed(why, self._reason.condition)))
        else:
            self._coordinator().finish(request)

    def _coordinator(self) -> CoordinatorEnd:
        end = self.ends.get(COORDINATOR)
        if not isinstance(end, CoordinatorEnd):
            end = CoordinatorEnd(self, COORDINATOR)
            self._want(end)
        return end


HANDLERS: Final[dict[type, Callable[[Machine, Any], None]]] = {
    given.Start: Machine._start,
    given.Discovered: Machine._discovered,
    given.Dialled: Machine._dialled,
    given.DialFailed: Machine._dial_failed,
    given.Received: Machine._received,
    given.Derived: Machine._derived,
    given.Lost: Machine._lost,
    given.Blocked: Machine._blocked,
    given.OpenSender: Machine._open_sender,
    given.OpenReceiver: Machine._open_receiver,
    given.Post: Machine._post,
    given.Took: Machine._took,
    given.Settle: Machine._settle,
    given.Drain: Machine._drain,
    given.CloseEnd: Machine._close_end,
    given.Begin: Machine._begin,
    given.Finish: Machine._finish,
    given.Shut: Machine._shut,
}

EVENTS: Final[dict[type[ConnectionEvent], Callable[[Machine, Any], None]]] = {
    SaslDerive: Machine._derive,
    LoggedIn: Machine._logged_in,
    Opened: Machine._opened,
    Began: Machine._began,
    Incoming: Machine._incoming,
    Aborted: Machine._void,
    Empty: Machine._void,
    Settled: Machine._settled,
    Retired: Machine._retired,
    SenderSettled: Machine._sender_settled,
    CreditGiven: Machine._credit_given,
    CreditUsed: Machine._credit_used,
    Attached: Machine._attached,
    Detached: Machine._detached,
    Attaching: Machine._attaching,
    Ended: Machine._ended,
    Dead: Machine._dead,
}
