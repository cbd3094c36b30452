"""Sessions: windows, handles, delivery ids, and what is unsettled (AMQP 1.0 §2.5, §2.7).

Incoming transfers become Runs as early as here. Accepted ranges are gathered and flushed once a step, so that one
disposition answers what one step took in. Frames go to `connection.out` in the order in which they must be seen.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp import frame_costs
from mqbroker.amqp.ended_sessions import Parting
from mqbroker.amqp.error_frames import frame_within
from mqbroker.amqp.events import (
    Attached,
    Attaching,
    CreditGiven,
    CreditUsed,
    Detached,
    Numbered,
    Returned,
    SenderSettled,
    Settled,
    Unposted,
)
from mqbroker.amqp.free_numbers import Numbers
from mqbroker.amqp.incoming import IncomingTransfers
from mqbroker.amqp.links import ROLE_RECEIVER, ROLE_SENDER, LinkBase, ReceiverLink, SenderLink
from mqbroker.amqp.settling import MOVED, RETURNED, Settling
from mqbroker.amqp.states import (
    ATTACHED,
    MAPPED,
    SESSION_STATES,
    LinkState,
    LinkStateEvent,
    SessionState,
    SessionStateEvent,
)
from mqbroker.amqp.woken_links import Waking
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.base.serial import unwrap, wrap
from mqbroker.wire.flat import decode_disposition_flat, encode_disposition_accepted
from mqbroker.wire.frames import Frame
from mqbroker.wire.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Received,
    TransactionalState,
    decode_performative,
)  # fmt: skip
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.amqp.connection import Connection

HANDLE_OF_NO_LINK: Final = 0xFFFFFFFE  # Proton's, in flows that it still sends for a link that it has detached
NAME_SIZE_MAX: Final = 2048  # characters of a link's name; some clients put the address into it, which may have 1,024
FIRST_ID: Final = Symbol("mq:first-id")  # property of a flow: the id that the next message has where it comes from
MARK: Final = Symbol("mq:mark")  # beside it, where it is another one than before: the mark of such ids
_MARK: Final = re.compile(r"[0-9A-Za-z-]{0,64}")
NUMBER_MAX: Final = (1 << 56) - 1  # of a message
INCOMING_WINDOW: Final = 0x7FFFFFFF  # memory is bounded by credit and size limits, not by counting frames


class Session(IncomingTransfers):
    """One session of a connection, at either end of it (AMQP 1.0 §2.5)."""

    __slots__ = (
        "_accepts", "_handles", "by_handle", "by_name", "fault", "links_max", "peer_channel", "peer_handle_max",
    )  # fmt: skip

    def __init__(self, connection: Connection, channel: int, links_max: int) -> None:
        super().__init__(connection, channel)
        self.peer_channel = -1
        self.links_max = links_max
        self.peer_handle_max = 0xFFFFFFFF
        self.by_handle: dict[int, LinkBase] = {}
        self.by_name: dict[tuple[str, bool], LinkBase] = {}
        self.fault: PeerFault | None = None  # of the peer's, for which we ended it
        self._accepts: list[tuple[int, int]] = []
        self._handles = Numbers()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, performative: Any) -> None:
        """Queue one frame of this session."""
        self.connection.out.append(frame_within(self.channel, performative, self.connection.peer_frame_size))

    def begin(self) -> None:
        """Send our begin, as its first half or as the answer."""
        self.state = SESSION_STATES.after(self.state, SessionStateEvent.SENT_BEGIN)
        self.send(Begin(
            remote_channel=self.peer_channel if self.peer_channel >= 0 else None,
            next_outgoing_id=self.next_outgoing_id, incoming_window=INCOMING_WINDOW,
            outgoing_window=INCOMING_WINDOW, handle_max=self.links_max - 1,
        ))  # fmt: skip

    def end(self, condition: str | None = None, description: str = "") -> None:
        """Send our end; with a condition everything but the peer's end is discarded from here on."""
        event = SessionStateEvent.SENT_END if condition is None else SessionStateEvent.SENT_END_ERROR
        self.state = SESSION_STATES.after(self.state, event)
        self.send(End(error=None if condition is None else Error(condition=Symbol(condition), description=description)))

    def break_off(self, fault: PeerFault) -> None:
        """End the session for what the peer did."""
        self.fault = fault.without_trace()
        self.flush()
        self.end(fault.condition, fault.description)
        self.release(None)

    def attach_sender(self, attach: Attach) -> SenderLink:
        """Ask for a link on which we send. The handle in `attach` is replaced by ours."""
        link = SenderLink(self, attach.name, self._free_handle(), True)
        self._register(link, attach)
        return link

    def attach_receiver(self, attach: Attach) -> ReceiverLink:
        """Ask for a link on which we receive."""
        link = ReceiverLink(self, attach.name, self._free_handle(), True)
        link.max_message_size = attach.max_message_size or 0
        self._register(link, attach)
        return link

    def _register(self, link: LinkBase, attach: Attach) -> None:
        before = self.by_name.get((link.name, link.role))
        self.by_handle[link.handle] = link
        self.by_name[(link.name, link.role)] = link
        link.ask(replace(attach, handle=link.handle, role=link.role))
        if before is not None and _is_unanswered(before):
            link.follows = before  # detached since, and its answer comes first

    def send_flow(self, link: LinkBase | None = None, properties: dict[Symbol, Any] | None = None) -> None:
        """Session state, and the link's where one is given; `properties` are the link's."""
        if link is None:
            flow = Flow(next_incoming_id=wrap(self.next_incoming_id), incoming_window=INCOMING_WINDOW,
                        next_outgoing_id=wrap(self.next_outgoing_id), outgoing_window=INCOMING_WINDOW)  # fmt: skip
        else:
            link.say()
            flow = Flow(
                next_incoming_id=wrap(self.next_incoming_id), incoming_window=INCOMING_WINDOW,
                next_outgoing_id=wrap(self.next_outgoing_id), outgoing_window=INCOMING_WINDOW, handle=link.handle,
                delivery_count=link.delivery_count, link_credit=link.credit,
                available=0 if link.role is ROLE_SENDER else None,
                drain=bool(link.is_draining) if isinstance(link, SenderLink) else False, properties=properties,
            )  # fmt: skip
        self.send(flow)

    def accept(self, first: int, count: int) -> None:
        """Owe the peer `accepted` for these deliveries of its own; sent by `flush`, merged with its neighbours."""
        first, last = wrap(first), first + count - 1
        if self._accepts and wrap(self._accepts[-1][1] + 1) == first:
            self._accepts[-1] = (self._accepts[-1][0], wrap(last))
        else:
            self._accepts.append((first, wrap(last)))

    def flush(self) -> None:
        """Send the gathered acceptances."""
        if not self._accepts:
            return
        for first, last in self._accepts:
            self.connection.out.append(encode_disposition_accepted(self.channel, True, first, last, True))
        self._accepts.clear()

    def dispose(self, first: int, last: int, state: Any, *, as_receiver: bool) -> None:
        """Settle deliveries first…last with an outcome: ours of what we received, or the echo to a receiver."""
        self.flush()
        self.send(Disposition(role=as_receiver, first=wrap(first), last=wrap(last), settled=True, state=state))

    def outcome(self, first: int, last: int, state: Any) -> None:
        """Tell an outcome of what we received and leave the settlement to the sender (§2.6.12, `second`)."""
        self.send(Disposition(role=ROLE_RECEIVER, first=wrap(first), last=wrap(last), settled=False, state=state))

    # -- receiving -----------------------------------------------------------------------------------------------------

    def disposition(self, buffer: bytes, frame: Frame) -> None:
        """The peer settles deliveries, or tells an outcome."""
        flat = decode_disposition_flat(buffer, frame.body_offset, frame.end)
        if flat is not None:
            role, first, maybe_last, settled, state, _ = flat
        else:
            told = decode_performative(buffer, frame.body_offset, frame.end)[0]
            assert isinstance(told, Disposition)
            role, first, maybe_last, settled, state = told.role, told.first, told.last, bool(told.settled), told.state
        last = first if maybe_last is None else maybe_last
        if self.state is not MAPPED:
            self.state = SESSION_STATES.after(self.state, SessionStateEvent.GOT_FRAME)
            return
        if role is not ROLE_RECEIVER:
            self._sender_disposition(first, last, settled)
            return
        low = unwrap(first, self.next_delivery_id)
        high = unwrap(last, self.next_delivery_id)
        if low > high or high >= self.next_delivery_id:
            what = f"disposition of deliveries {first} to {last}, which were not sent"
            raise PeerFault("amqp:invalid-field", what, Scope.SESSION)
        if self.connection.is_transactional:
            # What was said before decides where these deliveries are now.
            self.connection.tell()
        is_transactional = isinstance(state, TransactionalState)
        if not (settled or is_transactional) and (state is None or isinstance(state, Received)):
            return
        if low < high or is_transactional:
            self.connection.leave(Settling(self, (low, high), state, is_settled=settled))
            return
        taken = self.unsettled.take(low, high)
        if taken:
            self.connection.allowance -= frame_costs.SETTLED if flat is not None else frame_costs.RETURNED
            self.connection.events.append(Settled(self, taken, state, not settled, low, high))

    def _sender_disposition(self, first: int, last: int, settled: bool) -> None:
        """Our outcome has arrived at the sender; what it is owed goes out by itself."""
        if settled:
            low = unwrap(first, self.next_incoming_id)
            self.connection.events.append(SenderSettled(self, low, low + ((last - first) & 0xFFFFFFFF)))

    def flow(self, flow: Flow) -> None:
        """A flow has come: windows of the session, and credit of a link where it names one (AMQP 1.0 §2.7.4)."""
        if self.state is not MAPPED:
            self.state = SESSION_STATES.after(self.state, SessionStateEvent.GOT_FRAME)
            return
        self.connection.allowance -= frame_costs.FLOW
        was_closed = not self.window
        # Who has not seen our begin counts from its first id (§2.5.6).
        seen = 0 if flow.next_incoming_id is None else unwrap(flow.next_incoming_id, self.next_outgoing_id)
        self.peer_window = max(seen + flow.incoming_window - self.next_outgoing_id, 0)
        self._send_held()
        if was_closed and self.window:
            # That is news for every link that has credit, also when the flow names another link.
            self.connection.leave(Waking([self], flow.handle))
        if flow.handle is None or flow.handle == HANDLE_OF_NO_LINK:
            if flow.echo:
                self.connection.allowance -= frame_costs.ECHO
                self.send_flow()
            return
        link = self._peer_link(flow.handle)
        link.move(LinkStateEvent.GOT_FRAME)
        if link.state is not ATTACHED:
            return
        if isinstance(link, SenderLink):
            if flow.properties and "txn-id" in flow.properties:
                raise PeerFault("amqp:not-implemented", "acquisition within a transaction (§4.4.3)", Scope.LINK)
            link.flow(flow)
            self.connection.allowance -= frame_costs.LINK_FLOW
            self.connection.events.append(CreditGiven(link))
            # A drain is answered when it is done; where no credit is left it is done already.
            asked = flow.echo or link.owes_echo or (link.is_draining and not link.credit)
            link.owes_echo = asked and not link.may_answer
            if asked and not link.owes_echo:
                self.connection.allowance -= frame_costs.ECHO
                self.send_flow(link)
        elif isinstance(link, ReceiverLink):
            self._sender_flow(link, flow)

    def _sender_flow(self, link: ReceiverLink, flow: Flow) -> None:
        if flow.delivery_count is not None:
            used = (flow.delivery_count - link.delivery_count) & 0xFFFFFFFF
            if 0 < used <= link.credit:
                link.use(used)
                self.connection.events.append(CreditUsed(link))
        if link.is_numbered and flow.properties and FIRST_ID in flow.properties:
            self.connection.events.append(_numbered(link, flow.properties))
        if flow.echo:
            self.connection.allowance -= frame_costs.ECHO
            self.send_flow(link)

    def attach(self, attach: Attach) -> None:
        """The peer attaches, or answers our attach."""
        if self.state is not MAPPED:
            self.state = SESSION_STATES.after(self.state, SessionStateEvent.GOT_FRAME)
            return
        if len(attach.name) > NAME_SIZE_MAX:
            # Not the link alone: to refuse it takes its name, which would be kept until the peer detaches.
            why = f"a link's name has {len(attach.name)} characters, at most {NAME_SIZE_MAX} are possible"
            raise PeerFault("amqp:invalid-field", why, Scope.SESSION)
        ours = self.by_name.get((attach.name, not attach.role))
        while ours is not None and ours.follows is not None and _is_unanswered(ours.follows):
            ours = ours.follows
        if attach.handle in self.by_peer_handle:
            raise PeerFault("amqp:session:handle-in-use", f"handle {attach.handle} is attached", Scope.SESSION)
        if attach.handle >= self.links_max:
            raise PeerFault("amqp:connection:framing-error", f"handle {attach.handle} is above handle-max")
        if ours is not None and ours.is_ours and ours.peer_handle < 0:
            self._attached(ours, attach)
            return
        if ours is not None and ours.farewell is None:
            raise PeerFault("amqp:session:errant-link", f"link {attach.name} is attached already", Scope.SESSION)
        kind = SenderLink if attach.role is ROLE_RECEIVER else ReceiverLink
        link = kind(self, attach.name, self._free_handle(), False)
        link.peer_handle = attach.handle
        link.follows = ours
        self.by_handle[link.handle] = link
        self.by_peer_handle[attach.handle] = link
        self.by_name[(link.name, link.role)] = link
        link.move(LinkStateEvent.GOT_ATTACH)
        self.connection.events.append(Attaching(link, attach))

    def _attached(self, link: LinkBase, attach: Attach) -> None:
        link.peer_handle = attach.handle
        self.by_peer_handle[attach.handle] = link
        link.follows = None  # the peer answers in order
        link.move(LinkStateEvent.GOT_ATTACH)
        if isinstance(link, ReceiverLink):
            link.delivery_count = attach.initial_delivery_count or 0
        elif isinstance(link, SenderLink):
            link.max_message_size = attach.max_message_size or 0
        self.connection.events.append(Attached(link, attach))  # type: ignore[arg-type]  # a link is one of the two

    def detach(self, detach: Detach) -> None:
        """The peer detaches, or answers our detach."""
        if self.state is not MAPPED:
            self.state = SESSION_STATES.after(self.state, SessionStateEvent.GOT_FRAME)
            return
        link = self._peer_link(detach.handle)
        was_ours, link.is_closed = link.state is LinkState.DETACH_SENT, bool(detach.closed)
        link.move(LinkStateEvent.GOT_DETACH)
        if was_ours:
            self._forget(link)
            return
        link.farewell = Detach(handle=link.handle, closed=detach.closed)
        if link.holds_farewell and (link.is_closed or link.unsaid is not None):
            # The peer may use its handle again at once.
            del self.by_peer_handle[link.peer_handle]
            link.peer_handle = -1
        else:
            self.part(link)
        self._give_up(link, detach.error, is_orderly=True)

    def part(self, link: LinkBase) -> None:
        """Answer the peer's detach."""
        assert link.farewell is not None
        link.move(LinkStateEvent.SENT_DETACH)
        link.say()
        self.flush()
        self.send(link.farewell)
        link.farewell = None
        self._forget(link)

    def link_closed_here(self, link: LinkBase) -> None:
        """We detached a link: its work goes back now, its handle stays until the peer's detach."""
        self._give_up(link, None, is_orderly=False)

    def hand_back_some(self, link: LinkBase, *, is_orderly: bool) -> bool:
        """Where a link that is over has much, hand back a piece of it. The application of a client has it all at once,
        as it is its own."""
        if not (isinstance(link, SenderLink) and self.connection.is_gradual):
            return False
        portion = RETURNED if is_orderly else MOVED
        if not self.unsettled.has_more_than(portion, link):
            return False
        returned = self.unsettled.take_some(link, portion)
        self.connection.allowance -= portion.work_of(returned)
        self.connection.events.append(Returned(link, returned, is_orderly))
        return True

    def _give_up(self, link: LinkBase, error: Error | None, *, is_orderly: bool) -> None:
        """A link is over: hand back what it had, by and by where that is much."""
        if self.connection.is_gradual and self.unsettled.has_more_than(RETURNED if is_orderly else MOVED, link):
            self._drop_held(link)
            self.connection.leave(Parting(self, [link], error, is_orderly=is_orderly, ends=False))
        else:
            self.forget_work(link, error, is_orderly=is_orderly)

    def forget_work(self, link: LinkBase, error: Error | None, *, is_orderly: bool) -> None:
        """Hand back what a link had under way."""
        if isinstance(link, ReceiverLink) and link.partial is not None:
            self.connection.end_partial(link.partial)
            if link.partial.txn_id is not None and not (is_orderly or self.connection.is_dead):
                self.connection.events.append(Unposted(link.partial.txn_id))
            link.partial = None
        self._drop_held(link)
        returned = self.unsettled.take_link(link)
        self.connection.allowance -= len(returned) * frame_costs.PARTED_ENTRY
        self.connection.events.append(Detached(link, error, returned, is_orderly))  # type: ignore[arg-type]  # a link is one of the two

    def _forget(self, link: LinkBase) -> None:
        if self.by_handle.get(link.handle) is link:
            del self.by_handle[link.handle]
            self._handles.give_back(link.handle)
        self.by_peer_handle.pop(link.peer_handle, None)
        # We may have attached another one of its name meanwhile, before the answer to our detach came.
        if self.by_name.get((link.name, link.role)) is link:
            del self.by_name[link.name, link.role]

    def got_end(self, end: End) -> None:
        """The peer ends the session, or answers our end."""
        was_ended_here = self.state is SessionState.END_SENT
        self.state = SESSION_STATES.after(self.state, SessionStateEvent.GOT_END)
        if self.state is SessionState.END_RCVD:
            self.release(end.error, is_orderly=True)  # and then it is answered
        elif was_ended_here:
            self.release(end.error)

    @property
    def owes(self) -> bool:
        """Whether acceptances are gathered."""
        return bool(self._accepts)

    def release(self, error: Error | None, *, is_orderly: bool = False) -> None:
        """Session or connection is over: nothing goes on any of its links, and they are handed back. `is_orderly`: the
        peer said so.
        """
        self._accepts.clear()
        links: list[LinkBase] = []
        for link in self.by_handle.values():
            if link.state is LinkState.DETACH_RCVD:
                link.state, link.farewell = LinkState.DETACHED, None
            elif link.state is not LinkState.DETACH_SENT:
                link.state = LinkState.DETACHED
                links.append(link)
        self.connection.allowance -= len(links)
        self.by_handle.clear()
        self.by_peer_handle.clear()
        self.by_name.clear()
        self._handles = Numbers()
        self.connection.leave(Parting(self, links, error, is_orderly=is_orderly))

    def _peer_link(self, handle: int) -> LinkBase:
        link = self.by_peer_handle.get(handle)
        if link is None:
            raise PeerFault("amqp:session:unattached-handle", f"handle {handle} is not attached", Scope.SESSION)
        self.connection.blame(link)
        return link

    def _free_handle(self) -> int:
        count_max = min(self.links_max, self.peer_handle_max + 1)
        handle = self._handles.take(count_max)
        if handle >= 0:
            return handle
        whose = "links-per-session-max" if count_max == self.links_max else "its handle-max"
        why = f"over {count_max} links in a session, by {whose}"
        raise PeerFault("amqp:resource-limit-exceeded", why, Scope.SESSION)


def _is_unanswered(link: LinkBase) -> bool:
    """Whether the peer's half of a link that we asked for is still to come."""
    return link.is_ours and link.peer_handle < 0 and link.state in (LinkState.ATTACH_SENT, LinkState.DETACH_SENT)


def _numbered(link: ReceiverLink, said: dict[Symbol, Any]) -> Numbered:
    first_id, mark = said[FIRST_ID], said.get(MARK)
    is_mark = mark is None or (isinstance(mark, str) and _MARK.fullmatch(mark))
    if not isinstance(first_id, int) or not 0 <= first_id <= NUMBER_MAX or not is_mark:
        why = f"{FIRST_ID} is a number up to {NUMBER_MAX}, and {MARK} a string like the id of a process"
        raise PeerFault("amqp:invalid-field", why, Scope.LINK)
    return Numbered(link, first_id, mark)
