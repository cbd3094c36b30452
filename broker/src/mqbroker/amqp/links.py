"""Links: credit and the deliveries that are under way on one of them (AMQP 1.0 §2.6).

Unsettled deliveries do not outlive their link: what it had goes back when it is detached, also for a while only. So the
answer to an attach that resumes one (§2.6.13) has no unsettled deliveries, which tells a sender to send again what it
does not know the outcome of, and a receiver to forget what it has not settled.

`SenderLink` and `ReceiverLink` name what *we* do on the link, whoever attached it. `end` is free for whoever uses
the connection, and an object here: who puts something there says in one place what it is. Counters, easily confused:
delivery ids belong to the session, credit to the link, windows count frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp.states import ATTACHED, LINK_STATES, LinkState, LinkStateEvent
from mqbroker.base.errors import PeerFault, Refused, Scope
from mqbroker.base.serial import unwrap, wrap
from mqbroker.wire.frames import encode_frame
from mqbroker.wire.large import HEAD_BYTES_MAX, body_offset
from mqbroker.wire.performatives import (
    Attach,
    Coordinator,
    Detach,
    Error,
    Flow,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode,
)
from mqbroker.wire.run import Heading, Run, heading
from mqbroker.wire.types import Symbol
from mqbroker.wire.wellformed import Forms

if TYPE_CHECKING:
    from mqbroker.amqp.session import Session

FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"
SECTION_START_BYTES_MAX: Final = 64  # descriptor and first byte of a section, however it is spelt
SETTLE_UNSETTLED, SETTLE_SETTLED, SETTLE_MIXED = 0, 1, 2
ROLE_SENDER, ROLE_RECEIVER = False, True
RUN_MAX: Final = 1 << 16
FEW_MAX: Final = 2


class LinkBase:
    """What both roles share: names, handles, state."""

    __slots__ = (
        "credit",
        "delivery_count",
        "end",
        "farewell",
        "fault",
        "follows",
        "handle",
        "holds_farewell",
        "is_closed",
        "is_ours",
        "name",
        "peer_handle",
        "session",
        "state",
        "unsaid",
    )

    role = ROLE_SENDER

    def __init__(self, session: Session, name: str, handle: int, is_ours: bool) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.peer_handle = -1
        self.is_ours = is_ours  # we asked for it
        self.is_closed = False  # the peer ended it for good, not only for now
        self.state = LinkState.DETACHED
        self.credit = 0
        self.delivery_count = 0
        self.end: object = None  # what becomes of its events: of whoever uses the connection, and knows its class
        self.unsaid: bytes | None = None  # the frame with our half, which waits until what it promises holds
        self.holds_farewell = False  # the answer to a detach that closes, or comes before our half, waits for `part`
        self.fault: PeerFault | None = None  # of the peer's, for which we ended it
        self.farewell: Detach | None = None  # that answer, while it waits
        self.follows: LinkBase | None = None  # the last one of its name, whose end may have to be answered before

    def move(self, event: LinkStateEvent) -> None:
        """Advance the state by its table."""
        self.state = LINK_STATES.after(self.state, event)

    @property
    def is_attached(self) -> bool:
        """Whether deliveries may flow."""
        return self.state is ATTACHED

    def ask(self, attach: Attach) -> None:
        """Send our half as the first one."""
        self._begin(encode_frame(self.session.channel, encode(attach)))

    def answer(self, attach: Attach, *, is_held: bool = False) -> None:
        """Send our half of the attach; `is_held`: by `say`, or before the link ends.

        Raises Refused where it does not fit a frame of the peer's.
        """
        frame = encode_frame(self.session.channel, encode(attach))
        size_max = self.session.connection.peer_frame_size
        if len(frame) > size_max:
            why = f"the answer to this attach has {len(frame)} bytes, and max-frame-size is {size_max}: raise that"
            raise Refused(FRAME_SIZE_TOO_SMALL, why)
        self._begin(frame, is_held=is_held)

    def _begin(self, frame: bytes, *, is_held: bool = False) -> None:
        self.move(LinkStateEvent.SENT_ATTACH)
        self.unsaid = frame
        if not is_held:
            self.say()

    def say(self) -> None:
        """Send what `answer` held back, if it did; what is to be said of earlier links of this name goes before it."""
        if self.unsaid is None:
            return
        earlier: list[LinkBase] = []
        link = self.follows
        while link is not None and link.farewell is not None:
            earlier.append(link)
            link = link.follows
        self.follows = None
        while earlier:
            earlier.pop().part()  # the oldest first: a peer decides how many there are, so none parts another
        self.session.connection.out.append(self.unsaid)
        self.unsaid = None

    def part(self) -> None:
        """Answer the peer's detach, if that is still to be done and the session is there."""
        if self.farewell is not None:
            self.session.part(self)

    def refuse(self, attach: Attach, condition: str, description: str, info: dict[Any, Any] | None = None) -> None:
        """Answer an attach with a null terminus and close the link with the reason (§2.6.3)."""
        is_sender = self.role is ROLE_SENDER
        refusal = Attach(
            name=self.name, handle=self.handle, role=self.role,
            source=None if is_sender or condition == FRAME_SIZE_TOO_SMALL else attach.source,
            target=attach.target if is_sender and condition != FRAME_SIZE_TOO_SMALL else None,
            initial_delivery_count=0 if is_sender else None,
        )  # fmt: skip
        try:
            self.answer(refusal)
        except Refused as refused:
            # Not even its name does, so nothing can be said of this link.
            self.session.flush()
            self.session.end(refused.condition, refused.description)
            self.session.release(None)
            return
        self.detach(condition, description, info)

    def detach(
        self,
        condition: str | None = None,
        description: str = "",
        info: dict[Any, Any] | None = None,
        *,
        is_closed: bool = True,
    ) -> None:
        """Close the link, with a reason if there is one. What it had under way is the owner's to take back.

        Without `is_closed` its terminus lives on, as that of a durable subscription does (§2.6.4).
        """
        error = None if condition is None else Error(Symbol(condition), description, info)
        self.move(LinkStateEvent.SENT_DETACH)
        self.say()
        self.session.flush()
        self.session.send(Detach(handle=self.handle, closed=is_closed, error=error))
        self.session.link_closed_here(self)

    def break_off(self, fault: PeerFault) -> None:
        """Close the link for what the peer did."""
        self.fault = fault.without_trace()
        self.detach(fault.condition, fault.description)


class SenderLink(LinkBase):
    """We send: credit is what the peer granted."""

    __slots__ = ("heads", "is_draining", "max_message_size", "owes_echo", "send_settled")

    role = ROLE_SENDER

    def __init__(self, session: Session, name: str, handle: int, is_ours: bool) -> None:
        super().__init__(session, name, handle, is_ours)
        self.is_draining = False
        self.owes_echo = False  # the answer to an echo waits for the end of the drain, or for our half of the attach
        self.send_settled = False
        self.max_message_size = 0  # bytes, 0: the peer sets no limit
        self.heads: tuple[Heading, Heading] = (
            heading(session.channel, handle, False),
            heading(session.channel, handle, True),
        )

    def accept(self, attach: Attach, source: Source, initial_delivery_count: int = 0, *, is_held: bool = False) -> None:
        """Let the peer receive from `source`. Its wish of settle mode is met; mixed lets us send unsettled.

        Raises Refused.
        """
        self.send_settled = attach.snd_settle_mode == SETTLE_SETTLED
        self.max_message_size = attach.max_message_size or 0
        self.delivery_count = initial_delivery_count
        ours = Attach(
            name=self.name, handle=self.handle, role=ROLE_SENDER,
            snd_settle_mode=SETTLE_UNSETTLED if attach.snd_settle_mode is None else attach.snd_settle_mode,
            rcv_settle_mode=attach.rcv_settle_mode or 0,
            source=source, target=attach.target, initial_delivery_count=initial_delivery_count,
        )  # fmt: skip
        self.answer(ours, is_held=is_held)

    def flow(self, flow: Flow) -> None:
        """Take the peer's grant (§2.6.7): its credit counts from its own view of our delivery count."""
        if flow.link_credit is not None:
            # Deliveries may be under way that it had not seen; credit itself may be any number of 32 bits.
            unseen = self.delivery_count - unwrap(flow.delivery_count or 0, self.delivery_count)
            self.credit = min(max(flow.link_credit - unseen, 0), 0xFFFFFFFF)
        self.is_draining = bool(flow.drain)

    @property
    def may_answer(self) -> bool:
        """Whether a flow that is asked for may say how the link stands."""
        return self.unsaid is None and not (self.is_draining and self.credit)

    def say(self) -> None:
        """Send what `answer` held back, and a flow that was asked for meanwhile."""
        super().say()
        if self.owes_echo and self.may_answer:
            self.owes_echo = False
            self.session.send_flow(self)

    def drained(self) -> None:
        """Nothing is left to send: use the credit up and say so (§2.6.7, drain). Where messages have used it up, the
        peer knows, and only one that asks is told.
        """
        if not (self.credit or self.owes_echo):
            return
        self.owes_echo = False
        self.delivery_count = wrap(self.delivery_count + self.credit)
        self.credit = 0
        self.session.send_flow(self)


class ReceiverLink(LinkBase):
    """We receive: credit is what we granted and the peer has not used."""

    __slots__ = (
        "forms", "is_numbered", "is_passed_over", "is_starved", "kept_bytes_max", "large_size_min", "max_message_size",
        "partial", "posts_max", "run_max", "run_work", "window",
    )  # fmt: skip

    role = ROLE_RECEIVER

    def __init__(self, session: Session, name: str, handle: int, is_ours: bool) -> None:
        super().__init__(session, name, handle, is_ours)
        self.partial: Partial | None = None
        self.forms = Forms()
        self.window = 0
        self.is_starved = False
        self.is_passed_over = False  # something that came was not taken in, nor is what comes behind it
        self.is_numbered = False  # flows of the sender say which ids its messages have
        self.max_message_size = 0
        self.run_max = RUN_MAX  # messages that are told at once: few where each costs by itself
        self.posts_max = 1  # the same, of those that are posted in a transaction
        self.run_work = 0  # what a run costs besides, by what the last one did
        self.large_size_min = -1  # bytes of a message above which it is told in pieces, -1: never
        self.kept_bytes_max: Callable[[], int] = _nothing  # up to so many it is told as a whole all the same, now

    def accept(self, attach: Attach, target: Target | Coordinator, max_message_size: int) -> None:
        """Let the peer send to `target`; credit follows by `grant`. Raises Refused."""
        self.delivery_count = attach.initial_delivery_count or 0
        self.max_message_size = max_message_size
        mode = SETTLE_MIXED if attach.snd_settle_mode is None else attach.snd_settle_mode
        ours = Attach(
            name=self.name, handle=self.handle, role=ROLE_RECEIVER, snd_settle_mode=mode, rcv_settle_mode=0,
            source=attach.source, target=target, max_message_size=max_message_size,
        )  # fmt: skip
        self.answer(ours)

    def grant(self, window: int) -> None:
        """Raise the credit to `window` messages and tell the peer, unless the link is over: who waits for room may be
        remembered until its links are handed back.
        """
        if not self.is_attached:
            return
        self.window = window
        self.credit = window
        self.is_starved = False
        self.session.send_flow(self)

    def regrant(self) -> None:
        """Grant again once half is used: one flow for many messages, and the sender never runs dry."""
        if self.credit * 2 <= self.window:
            self.grant(self.window)

    def count_before_large(self, run: Run, count: int) -> int:
        """How many of the first `count` messages of a run come before one that is told in pieces."""
        sizes = (run.size_bytes(index, 1) - run.head_size for index in range(count))
        most = max(self.large_size_min, self.kept_bytes_max())
        return next((index for index, size in enumerate(sizes) if size > most), count)

    def use(self, count: int) -> None:
        """`count` deliveries began."""
        self.credit -= count
        self.delivery_count = wrap(self.delivery_count + count)


def _nothing() -> int:
    return 0


class Partials:
    """Unfinished messages of all connections that share this: bytes of them in memory."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class Partial:
    """A delivery of several transfers, as far as it came (§2.7.5). Bounded by max-message-size and a frame count.

    `is_large`: what came is told in pieces and not kept; `may_be_large`: that is not ruled out.
    """

    __slots__ = (
        "delivery_id", "frames", "is_large", "is_resumed", "is_settled", "may_be_large", "parts", "size_bytes", "tag",
        "txn_id",
    )  # fmt: skip

    FRAMES_MAX = 65_535

    def __init__(self, delivery_id: int, tag: bytes, txn_id: bytes | None = None) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.txn_id = txn_id  # the transaction that it is part of
        self.is_settled = False
        self.is_resumed = False  # of a link that we know no deliveries of: it must be passed over (§2.7.5)
        self.is_large = False
        self.may_be_large = txn_id is None
        self.parts: list[bytes] = []
        self.size_bytes = 0
        self.frames = 0

    def check_same(self, transfer: Transfer) -> None:
        """Whether a transfer says nothing else of the delivery than its first one. Raises PeerFault (link scope)."""
        why = ""
        if isinstance(transfer.state, TransactionalState) and transfer.state.txn_id != self.txn_id:
            why = "the transfers of a delivery name different transactions"
        elif transfer.delivery_id not in (None, self.delivery_id):
            why = "another delivery begins before the last one ended"
        elif transfer.delivery_tag not in (None, self.tag):
            why = "the transfers of a delivery have different delivery-tags"
        elif transfer.message_format:  # that of the first is 0
            why = "the transfers of a delivery have different message-formats"
        if why:
            raise PeerFault("amqp:invalid-field", why, Scope.LINK)

    def check(self, size_bytes: int, size_max: int) -> None:
        """Whether a transfer of that size may follow. Raises PeerFault (link scope) over the limits."""
        if size_max and self.size_bytes + size_bytes > size_max:
            raise PeerFault("amqp:link:message-size-exceeded", f"the message exceeds {size_max} bytes", Scope.LINK)
        if self.frames >= self.FRAMES_MAX and not self.is_large:
            raise PeerFault("amqp:resource-limit-exceeded", f"over {self.FRAMES_MAX} transfers in one delivery",
                            Scope.LINK)  # fmt: skip

    @property
    def held_bytes(self) -> int:
        """What of it is in memory."""
        return 0 if self.is_large else self.size_bytes

    def add(self, payload: bytes) -> None:
        """One more transfer."""
        self.frames += 1
        self.size_bytes += len(payload)
        if not self.is_large:
            self.parts.append(payload)

    def become_large(self) -> tuple[bytes, list[bytes]] | None:
        """Head and the rest so far, once the head is there. From then on nothing is kept here."""
        size = count = 0
        while count < len(self.parts) and size <= HEAD_BYTES_MAX + SECTION_START_BYTES_MAX:
            size += len(self.parts[count])
            count += 1
        lead = b"".join(self.parts[:count])
        body = body_offset(lead)
        if body is None or body > HEAD_BYTES_MAX:
            self.may_be_large = body is None and len(lead) <= HEAD_BYTES_MAX
            return None
        self.is_large = True
        rest = [lead[body:], *self.parts[count:]]
        self.parts.clear()
        return lead[:body], rest
