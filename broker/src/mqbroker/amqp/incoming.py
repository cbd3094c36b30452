"""Incoming transfers of a session: runs where messages are alike, else one after the other (AMQP 1.0 §2.6.12, §2.7.5).

What is looked at and not taken in is bounded by what is: cost follows bytes, whatever order a peer puts them in.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from mqbroker.amqp import frame_costs
from mqbroker.amqp.events import Aborted, Empty, Incoming, MessagePiece, Posted, Unposted, Whole
from mqbroker.amqp.links import RUN_MAX, LinkBase, Partial, ReceiverLink
from mqbroker.amqp.outgoing import OutgoingTransfers
from mqbroker.amqp.states import ATTACHED, MAPPED, SESSION_STATES, LinkStateEvent, SessionState, SessionStateEvent
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.wire.frames import Frame
from mqbroker.wire.performatives import TransactionalState, Transfer, decode_performative
from mqbroker.wire.run import Parsed, Run, canonical, parse_run, single

if TYPE_CHECKING:
    from mqbroker.amqp.connection import Connection

RUN_GROWTH: Final = 4


class IncomingTransfers(OutgoingTransfers):
    """The half of a session that takes messages in."""

    __slots__ = ("_run_max", "by_peer_handle", "next_incoming_id", "state")

    def __init__(self, connection: Connection, channel: int) -> None:
        super().__init__(connection, channel)
        self.state = SessionState.UNMAPPED
        self.by_peer_handle: dict[int, LinkBase] = {}
        self.next_incoming_id = 0
        self._run_max = RUN_MAX  # messages that are looked for at once

    @abstractmethod
    def _peer_link(self, handle: int) -> LinkBase:
        """The link of a handle of the peer's, which is to blame from here on."""

    def transfers(self, buffer: bytes, frame: Frame, offset: int, limit: int) -> int:
        """One or many transfers from `offset` on; says where the next frame starts."""
        connection, link = self.connection, None
        size_max = connection.frame_size_max
        parsed = parse_run(buffer, offset, limit, self._run_max, size_max) if self.state is MAPPED else None
        # A run has empty messages only where its first is one.
        if parsed is not None and parsed.run.size_bytes(0, 1) > parsed.run.head_size:
            known = self.by_peer_handle.get(parsed.handle)
            if isinstance(known, ReceiverLink) and known.partial is None and known.state is ATTACHED:
                link = known
            elif known is not None and known.state is not ATTACHED:
                return self._pass_over(known, parsed)
        if parsed is None or link is None:
            return self._one(buffer, frame)
        run, txn_id = parsed.run, parsed.tail.txn_id
        count = self._acceptable(link, run)
        if count <= 0:
            if txn_id is not None:
                return self._one(buffer, frame)  # for the transaction: a fault of the link is its own as well
            raise self._refusal(link)
        run_max = link.run_max if txn_id is None else min(link.run_max, link.posts_max)
        if count > run_max:
            count = self._run_max = run_max
        if 0 <= link.large_size_min < run.frame_size_max:
            count = link.count_before_large(run, count)
            if not count:
                return self._one(buffer, frame)
        if count < run.count:
            parsed = parse_run(buffer, offset, limit, count, size_max)
            assert parsed is not None
            run = parsed.run
        count = run.count
        if count == self._run_max:
            self._run_max = min(count * RUN_GROWTH, run_max)
        connection.allowance -= (
            frame_costs.RUN
            + link.run_work
            + (count >> frame_costs.MESSAGES_SHIFT)
            + ((parsed.next_offset - offset) >> frame_costs.BYTES_SHIFT)
        )
        self.next_incoming_id += count
        link.use(count)
        told = parsed.delivery_id, parsed.tail.is_settled
        if txn_id is None:
            connection.events.append(Incoming(link, run, *told))
        else:
            connection.allowance -= frame_costs.POSTED
            connection.events.append(Posted(link, canonical(run), *told, txn_id))  # the frames say what is over by then
        return parsed.next_offset

    def _one(self, buffer: bytes, frame: Frame) -> int:
        """A transfer by itself. What follows is looked at in runs that begin short, since it may be more of this kind:
        to look at all that there is for each of many would cost its square.
        """
        self._run_max = 1
        self.connection.allowance -= frame_costs.TRANSFER + ((frame.end - frame.body_offset) >> frame_costs.BYTES_SHIFT)
        self._transfer_slowly(buffer, frame)
        return frame.end

    def _pass_over(self, link: LinkBase, parsed: Parsed) -> int:
        """Messages of a link that has ended here, which the peer may not know yet."""
        link.move(LinkStateEvent.GOT_FRAME)
        if parsed.tail.txn_id is not None:
            self.connection.events.append(Unposted(parsed.tail.txn_id))
        self.next_incoming_id += parsed.run.count
        self.connection.allowance -= frame_costs.TRANSFER + (parsed.run.count >> frame_costs.MESSAGES_SHIFT)
        return parsed.next_offset

    @staticmethod
    def _acceptable(link: ReceiverLink, run: Run) -> int:
        """How many messages of the run credit and size allow."""
        count = min(run.count, link.credit)
        size_max = link.max_message_size
        if size_max and run.frame_size_max - run.head_size > size_max:
            sizes = (run.size_bytes(index, 1) - run.head_size for index in range(count))
            count = next((index for index, size in enumerate(sizes) if size > size_max), count)
        return count

    def _refusal(self, link: ReceiverLink) -> PeerFault:
        """The fault of a message that neither credit nor size allows."""
        self.connection.blame(link)
        self.next_incoming_id += 1
        if link.credit <= 0:
            return PeerFault("amqp:link:transfer-limit-exceeded", "transfer without credit", Scope.LINK)
        why = f"the message exceeds {link.max_message_size} bytes"
        return PeerFault("amqp:link:message-size-exceeded", why, Scope.LINK)

    def _transfer_slowly(self, buffer: bytes, frame: Frame) -> None:
        transfer, payload_offset = decode_performative(buffer, frame.body_offset, frame.end)
        assert isinstance(transfer, Transfer)
        self.next_incoming_id += 1
        link = self._peer_link(transfer.handle) if self.state is MAPPED else None
        if link is None:
            self.state = SESSION_STATES.after(self.state, SessionStateEvent.GOT_FRAME)
        else:
            link.move(LinkStateEvent.GOT_FRAME)
        if link is None or link.state is not ATTACHED:
            if isinstance(transfer.state, TransactionalState):
                self.connection.events.append(Unposted(transfer.state.txn_id))
            return
        if not isinstance(link, ReceiverLink):
            raise PeerFault("amqp:not-allowed", "transfer on a link whose sender we are", Scope.LINK)
        partial = link.partial or self._first_transfer(link, transfer)
        partial.is_settled = partial.is_settled or bool(transfer.settled)
        partial.check_same(transfer)
        if transfer.aborted:
            link.partial = None
            self.connection.end_partial(partial)
            self.connection.events.append(Aborted(link))
            return
        partial.check(frame.end - payload_offset, link.max_message_size)
        self._grow(link, partial, buffer[payload_offset : frame.end])
        if not transfer.more:
            self._whole(link, partial)
            link.partial = None
            self.connection.end_partial(partial)

    def _grow(self, link: ReceiverLink, partial: Partial, payload: bytes) -> None:
        """One transfer more of a delivery. Above a size it is told in pieces, as soon as its head is complete, unless
        all that the connection has not finished is little enough.
        """
        events = self.connection.events
        if partial.is_large:
            partial.add(payload)
            if payload:
                events.append(MessagePiece(link, b"", payload))
            return
        self.connection.grow_partial(len(payload))
        partial.add(payload)
        is_above = partial.may_be_large and 0 <= link.large_size_min < partial.size_bytes
        if is_above and self.connection.partial_bytes > link.kept_bytes_max():
            head_and_rest = partial.become_large()
            if head_and_rest is not None:
                self.connection.shrink_partial(partial.size_bytes)
                head, rest = head_and_rest
                events.append(MessagePiece(link, head, rest[0]))
                events.extend(MessagePiece(link, b"", part) for part in rest[1:])

    def _whole(self, link: ReceiverLink, partial: Partial) -> None:
        events, place = self.connection.events, (link, partial.delivery_id, partial.is_settled)
        if partial.is_resumed:
            events.append(Aborted(link))
        elif not partial.size_bytes:
            events.append(Empty(*place, partial.txn_id))
        elif partial.is_large:
            # What follows on this connection must not overtake it on its way to the disk.
            self.connection.is_held = True
            events.append(Whole(*place))
        else:
            run = single(b"".join(partial.parts))
            told = link, run, partial.delivery_id, partial.is_settled
            events.append(Incoming(*told) if partial.txn_id is None else Posted(*told, partial.txn_id))

    def _first_transfer(self, link: ReceiverLink, transfer: Transfer) -> Partial:
        # Any other state counts as told by a disposition before (§2.7.5): what a sender thinks of its own delivery.
        txn_id = transfer.state.txn_id if isinstance(transfer.state, TransactionalState) else None
        # Already here, for the transaction: a fault of the link is its own as well.
        link.partial = Partial(transfer.delivery_id or 0, transfer.delivery_tag or b"", txn_id)
        if txn_id is not None:
            self.connection.begin_post(txn_id)
        if link.credit <= 0:
            raise PeerFault("amqp:link:transfer-limit-exceeded", "transfer without credit", Scope.LINK)
        if transfer.delivery_id is None or transfer.delivery_tag is None:
            raise PeerFault("amqp:invalid-field", "the first transfer of a delivery lacks delivery-id or delivery-tag",
                            Scope.LINK)  # fmt: skip
        if transfer.message_format:
            raise PeerFault("amqp:not-implemented", f"message-format {transfer.message_format}", Scope.LINK)
        link.use(1)
        link.partial.is_resumed = bool(transfer.resume)
        return link.partial
