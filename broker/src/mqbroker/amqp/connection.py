"""Connections: protocol headers, SASL, open and close, channels, and who gets which frame (AMQP 1.0 §2.2-2.4).

Bytes in by `receive`, frames out in `out`, what happened in `events`. Server and client share everything but who
speaks first. Every violation ends what its scope names and is answered with its condition; nothing else escapes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from mqbroker.amqp import frame_costs, sasl
from mqbroker.amqp.ended_sessions import Piecemeal
from mqbroker.amqp.error_frames import frame_within
from mqbroker.amqp.events import Began, Dead, Incoming, LinksLeft, LoggedIn, Opened, Posted
from mqbroker.amqp.free_numbers import Numbers
from mqbroker.amqp.limits import ConnectionLimits
from mqbroker.amqp.links import LinkBase, Partial, Partials
from mqbroker.amqp.login import WAITING_BYTES_MAX, Login
from mqbroker.amqp.receive_buffer import Unread
from mqbroker.amqp.session import Session
from mqbroker.amqp.states import (
    CONNECTION_STATES,
    OPENED,
    SESSION_STATES,
    ConnectionState,
    ConnectionStateEvent,
    LinkState,
    SessionState,
    SessionStateEvent,
)  # fmt: skip
from mqbroker.amqp.woken_links import Waking
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.base.look import LOOK
from mqbroker.wire import frames
from mqbroker.wire.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Open,
    SaslMechanisms,
    decode_performative,
    encode,
)  # fmt: skip
from mqbroker.wire.types import Symbol

CODE_TRANSFER: Final = 0x14
CODE_DISPOSITION: Final = 0x15
TLS_RECORD: Final = b"\x16\x03"
CONTAINER_ID_SIZE_MAX: Final = 1024


class Connection(Login):
    """One end of one connection."""

    def __init__(self, limits: ConnectionLimits, *, server: sasl.SaslServer | None = None,
                 client: sasl.SaslClient | None = None) -> None:  # fmt: skip
        super().__init__(server, client)
        self.limits = limits
        self.frame_size_max = limits.frame_size_before_open_max
        self.peer_frame_size = frames.FRAME_SIZE_MAX_LOWEST
        self.peer_idle_timeout_ms = 0
        self.peer_channel_max = 0
        self.peer_open: Open | None = None
        self.partial_bytes = 0
        self.partials = Partials()
        self.posts_begun: dict[bytes, int] = {}  # by transaction: messages of it that are not whole
        self.is_held = False  # nothing more is taken in before `go_on`
        self.is_shut = False  # its owner is about to close it: it stays held
        self.allowance = frame_costs.NO_BOUND  # work that it may make before others have a turn; its owner's to renew
        self.is_transactional = False  # its owner: dispositions may name what earlier ones put into a transaction
        self._by_peer_channel: dict[int, Session] = {}
        self._by_channel: dict[int, Session] = {}
        self._channels = Numbers()
        self._partings: deque[Piecemeal] = deque()
        self._waking = Waking([])
        self._last_event: Dead | None = None  # which comes when all are done
        self._blamed: LinkBase | None = None
        self._session: Session | None = None
        self._handle: Callable[[], None] | None = None
        self._is_taking = False  # within `receive`

    # -- bytes in ------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, handle: Callable[[], None] | None = None) -> None:
        """Take bytes of the peer. Never raises PeerFault: violations are answered and told as events.

        `handle` is called around every frame that changes states. Before it: messages must not find their link closed
        by a detach that followed them in the same read. After it: a flow that was sent ahead must find its link there.
        """
        self._handle = None if self.is_dead else handle
        if data:
            self.keep(data)
        if self._is_taking:
            return  # whoever asks is called by us, and we go on when it is done
        self._is_taking, self.is_behind = True, False
        unread = self._unread
        if self._partings:
            self._part()
        try:
            while not self._partings and (needed := self._take_in(unread)) and unread.join(needed):
                pass
        finally:
            self._is_taking = False
        if self._partings:
            self.is_behind = True
        elif self.is_behind:
            self.is_behind = unread.size_bytes > 0 and not self.is_held
        else:
            unread.trim()
        if self._is_deriving and unread.size_bytes > WAITING_BYTES_MAX:
            self._die("amqp:resource-limit-exceeded", "too much was sent ahead of the login's outcome")

    def keep(self, data: bytes) -> None:
        """Bytes of the peer that are taken in later, by the next `receive`."""
        if not self.is_dead:
            self._unread.add(data)

    def _take_in(self, unread: Unread) -> int:
        """What the buffer has, until it is enough. Bytes that the next frame needs; 0: nothing more is taken in now."""
        buffer, offset = unread.buffer, unread.offset
        limit = following = len(buffer)
        needed = 1
        while offset < limit and not (self.is_dead or self._is_deriving or self.is_held or self.is_behind):
            self._blamed = self._session = None
            try:
                if self._wants_header():
                    if limit - offset < 8 and frames.AMQP_HEADER.startswith(buffer[offset : offset + 4]):
                        needed = 8
                        break
                    self._header(bytes(buffer[offset : offset + 8]))
                    offset = min(offset + 8, limit)
                    continue
                frame = frames.frame_at(buffer, offset, limit, self.frame_size_max)
                if frame is None:
                    needed = frames.needed_at(buffer, offset, limit)
                    break
                following = frame.end
                offset = self._frame(buffer, frame, offset, limit)
            except PeerFault as fault:
                self.tell()
                if not self._answer(fault):
                    return 0
                self.allowance -= frame_costs.OTHER
                offset = following
            if self.allowance <= 0:
                self.is_behind = True
        if self.is_dead:
            return 0
        unread.offset = offset
        return 0 if self._is_deriving or self.is_held or self.is_behind else needed

    def go_on(self, handle: Callable[[], None]) -> None:
        """What the connection was held for is done: take in what came meanwhile, as by `receive`."""
        if not self.is_shut:
            self.is_held = False
            self.receive(b"", handle)

    @property
    def is_opening(self) -> bool:
        """Whether it is not open yet, and what opens it is taken in one thing at a time."""
        return self.is_gradual and self.peer_open is None and not self.is_dead

    @property
    def unread_bytes(self) -> int:
        """What came and was not taken in."""
        return self._unread.size_bytes

    @property
    def is_close_waiting(self) -> bool:
        """Whether what came and was not taken in ends the connection in order."""
        return self._unread.ends_in_order

    @property
    def owes(self) -> bool:
        """Whether there is something to be sent."""
        return bool(self.out) or any(session.owes for session in self._by_channel.values())

    def tell(self) -> None:
        """Have everything handled that happened so far."""
        if self.events and self._handle is not None:
            self._handle()

    def _wants_header(self) -> bool:
        if self.state is OPENED:
            return False
        if self._is_sasl and not self._is_logged_in:
            return self.state is ConnectionState.START
        return self.state in (ConnectionState.START, ConnectionState.HDR_SENT, ConnectionState.OPEN_PIPE)

    def _frame(self, buffer: bytes, frame: frames.Frame, offset: int, limit: int) -> int:
        if self._is_sasl and not self._is_logged_in:
            if frame.type != frames.SASL_FRAME:
                raise PeerFault("amqp:connection:framing-error", "an AMQP frame before the SASL outcome")
            self.allowance -= frame_costs.OTHER
            self._sasl_frame(decode_performative(buffer, frame.body_offset, frame.end)[0])
            return frame.end
        if frame.type != frames.AMQP_FRAME:
            raise PeerFault("amqp:connection:framing-error", f"frame type {frame.type}")
        if frame.body_offset == frame.end:
            self.allowance -= frame_costs.EMPTY
            return frame.end
        at = frame.body_offset
        code = buffer[at + 2] if at + 2 < frame.end and buffer[at : at + 2] == b"\x00\x53" else -1
        if code == CODE_TRANSFER:
            following = self._on(frame).transfers(buffer, frame, offset, limit)
            if self.is_transactional and self.events and type(self.events[-1]) in (Incoming, Posted):
                # It may be for the coordinator, and what comes behind a commit waits for it; and of what is posted it
                # shows how much may come at once.
                self.tell()
            return following
        if code == CODE_DISPOSITION:
            self.allowance -= frame_costs.DISPOSITION
            self._on(frame).disposition(buffer, frame)
            return frame.end
        if LOOK.has_touched and self._handle is not None:
            self._handle()  # what was settled is done in whole, so that a bug in what follows ends no more than this
            if self.is_dead or self.is_held:
                return offset
        performative = decode_performative(buffer, frame.body_offset, frame.end)[0]
        if isinstance(performative, Flow):
            self._on(frame).flow(performative)
            return frame.end
        self.allowance -= frame_costs.GENERAL.get(type(performative), frame_costs.OTHER)
        self.tell()
        if self.is_dead or self.is_held:
            return offset  # what came before it may have to wait, and then it comes behind that
        self._general(frame, performative)
        self.tell()
        return frame.end

    def _on(self, frame: frames.Frame) -> Session:
        """The session of a frame."""
        if self.state is not OPENED:
            self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.GOT_FRAME)
        session = self._by_peer_channel.get(frame.channel)
        if session is None:
            raise PeerFault("amqp:not-allowed", f"a frame on channel {frame.channel}, on which no session began")
        self._session = session
        return session

    def _general(self, frame: frames.Frame, performative: Any) -> None:
        self.is_behind = self.is_gradual and isinstance(performative, Open | Begin)
        if isinstance(performative, Open):
            self._opened(performative)
        elif isinstance(performative, Close):
            self._closed(performative)
        elif isinstance(performative, Begin):
            self._begin(frame.channel, performative)
        elif isinstance(performative, Attach):
            self._on(frame).attach(performative)
        elif isinstance(performative, Detach):
            self._on(frame).detach(performative)
        elif isinstance(performative, End):
            session = self._on(frame)
            session.got_end(performative)
            if not self._partings:
                self.unmap(session)
        else:
            raise PeerFault("amqp:not-allowed", f"{type(performative).__name__} is not a frame body")

    # -- headers -------------------------------------------------------------------------------------------------------

    def _header(self, header: bytes) -> None:
        wants_sasl = self._is_sasl and not self._is_logged_in
        if header == frames.SASL_HEADER and wants_sasl:
            self.state = ConnectionState.HDR_EXCH
            self.is_behind = self.is_gradual
            if self._server is not None:
                self.out.append(frames.SASL_HEADER)
                self._sasl_send(SaslMechanisms(sasl_server_mechanisms=tuple(map(Symbol, self._server.mechanisms))))
            return
        if header == frames.AMQP_HEADER and not wants_sasl:
            self._amqp_header()
            return
        if header == frames.AMQP_HEADER and self._server is not None and "ANONYMOUS" in self._server.mechanisms:
            self._is_logged_in = True
            self.events.append(LoggedIn(None, "ANONYMOUS"))
            self._amqp_header()
            return
        # §2.2: answer with a header that we support, then close.
        if self._server is not None or self._client is None:
            self.out.append(frames.SASL_HEADER if wants_sasl else frames.AMQP_HEADER)
        what = "a TLS handshake, and there is no TLS here" if header.startswith(TLS_RECORD) else f"header {header!r}"
        self._die("amqp:not-implemented", f"{what}: not the protocol header of AMQP 1.0 that is expected here")

    def _amqp_header(self) -> None:
        self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.GOT_HEADER)
        if self.state is ConnectionState.HDR_RCVD:
            self.out.append(frames.AMQP_HEADER)
            self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.SENT_HEADER)

    # -- open and close ------------------------------------------------------------------------------------------------

    def open(self, open_: Open) -> None:
        """Send our open: a server's answer to Opened, a client's first word (it sends the header itself)."""
        if self.state is ConnectionState.START:
            self.out.append(frames.AMQP_HEADER)
            self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.SENT_HEADER)
        self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.SENT_OPEN)
        self.frame_size_max = open_.max_frame_size or self.limits.frame_size_max
        self.out.append(frames.encode_frame(0, encode(open_)))

    def _opened(self, open_: Open) -> None:
        self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.GOT_OPEN)
        size = 0xFFFFFFFF if open_.max_frame_size is None else open_.max_frame_size
        if size < frames.FRAME_SIZE_MAX_LOWEST:
            raise PeerFault("amqp:invalid-field", f"max-frame-size {size} is below {frames.FRAME_SIZE_MAX_LOWEST}")
        if len(open_.container_id) > CONTAINER_ID_SIZE_MAX:
            size = len(open_.container_id)
            why = f"the container id has {size} characters, at most {CONTAINER_ID_SIZE_MAX} are possible"
            raise PeerFault("amqp:invalid-field", why)
        self.peer_frame_size = size
        self.peer_idle_timeout_ms = open_.idle_time_out or 0
        self.peer_channel_max = 0xFFFF if open_.channel_max is None else open_.channel_max
        self.peer_open = open_
        self.events.append(Opened(open_))

    def forget_open(self) -> None:
        """Keep of what the peer said of itself its name alone: the rest may be of any size, and has been read."""
        if self.peer_open is not None:
            self.peer_open = Open(container_id=self.peer_open.container_id)

    def close(self, condition: str | None = None, description: str = "", info: dict[Symbol, Any] | None = None) -> None:
        """Send our close; the transport is closed when the peer's has come, or at once after an error."""
        if self.is_dead or self.state in (ConnectionState.CLOSE_SENT, ConnectionState.DISCARDING, ConnectionState.END):
            return
        if self.state not in (ConnectionState.OPEN_SENT, ConnectionState.OPENED, ConnectionState.CLOSE_RCVD):
            self._die(condition, description)
            return
        for session in self._by_channel.values():
            session.flush()
        error = None if condition is None else Error(Symbol(condition), description, info)
        event = ConnectionStateEvent.SENT_CLOSE if condition is None else ConnectionStateEvent.SENT_CLOSE_ERROR
        self.state = CONNECTION_STATES.after(self.state, event)
        self.out.append(frame_within(0, Close(error=error), self.peer_frame_size))
        if condition is not None:
            self._die(condition, description)

    def _closed(self, close: Close) -> None:
        self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.GOT_CLOSE)
        is_orderly = self.state is ConnectionState.CLOSE_RCVD  # else it answers our close
        if is_orderly:
            for session in self._by_channel.values():
                session.flush()
            self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.SENT_CLOSE)
            self.out.append(frames.encode_frame(0, encode(Close())))
        error = close.error
        condition, description = (None, "") if error is None else (str(error.condition), error.description or "")
        self._die(condition, description, is_orderly=is_orderly, error=error)

    def lost(self) -> None:
        """The transport is gone: hand everything back."""
        if not self.is_dead:
            self._die(None, "connection lost")

    def _die(
        self, condition: str | None, description: str, *, is_orderly: bool = False, error: Error | None = None
    ) -> None:
        if self.is_dead:
            return
        if condition is not None:
            self._refuse_login(condition)
        self.is_dead = True
        self._unread.clear()
        self._last_event = Dead(condition, description, error)
        for session in list(self._by_channel.values()):
            session.release(None, is_orderly=is_orderly)
        self._part()
        self.is_behind = bool(self._partings)

    # -- sessions that are over ----------------------------------------------------------------------------------------

    @property
    def is_parting(self) -> bool:
        """Whether there are links to be handed back, by the next `receive`."""
        return bool(self._partings)

    def leave(self, parting: Piecemeal) -> None:
        """Hand its links back, take its outcomes in, end its transaction: as much as there is work left for, and the
        rest by and by. What comes behind it waits.
        """
        self._partings.append(parting)
        if self._last_event is None:
            self._part()

    def wake(self) -> None:
        """The transport was full, and takes something again: links that have credit are told, by and by."""
        is_under_way = not self._waking.is_over
        self._waking.begin(self.sessions)
        if not (is_under_way or self._waking.is_over):
            self.leave(self._waking)

    def part_with(self, name: str, role: bool) -> None:
        """Somebody wants a link of this name: hand the old one back now."""
        for parting in self._partings:
            parting.part_with(name, role)

    def _part(self) -> None:
        partings = self._partings
        while partings and self.allowance > 0:
            if partings[0].go_on():
                partings.popleft()
        if partings:
            self.is_behind = True
            self.events.append(LinksLeft())
        elif self._last_event is not None:
            self._by_channel.clear()
            self._by_peer_channel.clear()
            self._handle = self._session = self._blamed = None  # who know us: each would keep the other one for ever
            self.events.append(self._last_event)
            self._last_event = None

    def unmap(self, session: Session) -> None:
        """Its channels are free, if both ends said so."""
        if session.state is SessionState.UNMAPPED and self._by_channel.get(session.channel) is session:
            del self._by_channel[session.channel]
            self._by_peer_channel.pop(session.peer_channel, None)
            self._channels.give_back(session.channel)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def begin(self) -> Session:
        """Ask for a session (client)."""
        channel = self._channels.take(self.peer_channel_max + 1)
        session = Session(self, channel, self.limits.links_max)
        self._by_channel[channel] = session
        session.begin()
        return session

    def _begin(self, channel: int, begin: Begin) -> None:
        if self.state is not OPENED:
            self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.GOT_FRAME)
        if channel in self._by_peer_channel:
            raise PeerFault("amqp:not-allowed", f"begin on channel {channel}, on which a session is")
        if begin.remote_channel is not None:
            answered = self._by_channel.get(begin.remote_channel)
            if answered is None:
                raise PeerFault("amqp:not-allowed", f"begin answers channel {begin.remote_channel}, which is not ours")
            session = answered
        else:
            if channel >= self.limits.sessions_max:
                raise PeerFault("amqp:connection:framing-error", f"channel {channel} is above channel-max")
            session = Session(self, self._free_channel(), self.limits.links_max)
            self._by_channel[session.channel] = session
        session.state = SESSION_STATES.after(session.state, SessionStateEvent.GOT_BEGIN)
        self._by_peer_channel[channel] = session
        session.peer_channel = channel
        session.next_incoming_id = begin.next_outgoing_id
        session.peer_window = begin.incoming_window
        session.peer_handle_max = begin.handle_max if begin.handle_max is not None else 0xFFFFFFFF
        if session.state is SessionState.BEGIN_RCVD:
            session.begin()
        self.events.append(Began(session))

    def _free_channel(self) -> int:
        count_max = min(self.limits.sessions_max, self.peer_channel_max + 1)
        channel = self._channels.take(count_max)
        if channel >= 0:
            return channel
        raise PeerFault("amqp:resource-limit-exceeded", f"over {count_max} sessions: the lower channel-max counts")

    # -- faults and keep-alive -----------------------------------------------------------------------------------------

    def blame(self, link: LinkBase) -> None:
        """A fault of link scope that is raised from here on is this link's."""
        self._blamed = link

    def _answer(self, fault: PeerFault) -> bool:
        """Tell the peer; whether the connection goes on."""
        scope, link, session = fault.scope, self._blamed, self._session
        if self.is_dead:
            return False
        if scope is Scope.LINK and link is not None and link.state is not LinkState.ATTACHED:
            return True  # its end was told already
        if scope is Scope.LINK and link is not None and link.state is LinkState.ATTACHED:
            link.break_off(fault)
            return True
        if scope is not Scope.CONNECTION and session is not None and session.state is SessionState.MAPPED:
            session.break_off(fault)
            return True
        may_open = self._is_logged_in or not self._is_sasl
        if may_open and self.state in (ConnectionState.HDR_EXCH, ConnectionState.OPEN_RCVD):
            # §2.7.1: an error can only be told in a close, and a close only after an open.
            self.open(Open(container_id="", max_frame_size=self.limits.frame_size_max))
        self.close(fault.condition, fault.description)
        if not self.is_dead:
            self._die(fault.condition, fault.description)
        return False

    def grow_partial(self, size_bytes: int) -> None:
        """Account for a piece of an unfinished message. Raises PeerFault above the bound."""
        if self.partial_bytes + size_bytes > self.limits.partial_bytes_max:
            raise PeerFault("amqp:resource-limit-exceeded", "too many bytes in unfinished messages", Scope.LINK)
        self.partial_bytes += size_bytes
        self.partials.size_bytes += size_bytes

    def begin_post(self, txn_id: bytes) -> None:
        """A message of a transaction has begun to come."""
        self.posts_begun[txn_id] = self.posts_begun.get(txn_id, 0) + 1

    def end_partial(self, partial: Partial) -> None:
        """It is whole, or will not be."""
        self.shrink_partial(partial.held_bytes)
        txn_id = partial.txn_id
        if txn_id is not None:
            count = self.posts_begun.pop(txn_id) - 1
            if count:
                self.posts_begun[txn_id] = count

    def shrink_partial(self, size_bytes: int) -> None:
        """So much of an unfinished message is no more, or unfinished no more."""
        self.partial_bytes -= size_bytes
        self.partials.size_bytes -= size_bytes

    def heartbeat(self) -> None:
        """An empty frame keeps the connection alive at the peer (§2.4.5)."""
        if self.state is OPENED:
            self.out.append(frames.EMPTY_FRAME)

    def flush(self) -> None:
        """Put out what sessions have gathered."""
        for session in self._by_channel.values():
            session.flush()

    @property
    def sessions(self) -> list[Session]:
        """The sessions that are mapped or about to be."""
        return list(self._by_channel.values())
