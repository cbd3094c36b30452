"""Outgoing transfers of a session: delivery ids, the peer's window, and what is unsettled (AMQP 1.0 §2.5.6, §2.7.5).

Runs go out as blocks of frames; what does not fit the peer's frame size goes out in pieces. Invariant: while pieces
of one message are held back, because the window is closed, nothing else is sent in this session.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp.unsettled import Unsettled
from mqbroker.base.serial import wrap
from mqbroker.wire.frames import encode_frame, frame_head
from mqbroker.wire.performatives import DeliveryState, Transfer, encode
from mqbroker.wire.run import Run, encode_payloads, encode_run

if TYPE_CHECKING:
    from mqbroker.amqp.connection import Connection
    from mqbroker.amqp.links import LinkBase, SenderLink

HEAD_GROWTH: Final = 16  # bytes that a transfer's head may grow by when it is sent on


def _transfer(link: SenderLink, identity: int | None, state: DeliveryState | None, *, more: bool) -> Transfer:
    """One of the transfers of a message: its first one names the delivery."""
    transfer = Transfer(handle=link.handle, settled=link.send_settled, more=more, state=state)
    if identity is not None:
        transfer = replace(transfer, delivery_id=identity, delivery_tag=identity.to_bytes(4, "big"), message_format=0)
    return transfer


class OutgoingTransfers:
    """The half of a session that sends messages."""

    __slots__ = (
        "_held", "_held_of", "channel", "connection", "next_delivery_id", "next_outgoing_id", "peer_window",
        "unsettled",
    )  # fmt: skip

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.next_outgoing_id = 0
        self.next_delivery_id = 0
        self.peer_window = 0
        self.unsettled = Unsettled()
        self._held: deque[bytes] = deque()  # the rest of one message that the peer's window did not let through
        self._held_of: LinkBase | None = None

    def send_run(self, link: SenderLink, run: Run, index: int, count: int, token: Any) -> int:
        """Send up to `count` messages of a run as the peer's window allows; says how many went."""
        count = min(count, self.window)
        if count <= 0:
            return 0
        is_settled = link.send_settled
        first = self.next_delivery_id
        if run.frame_size_max + HEAD_GROWTH > self.connection.peer_frame_size:
            count = self._whole_frames(run, index, count)
            if count == 0:
                return self.send_message(link, [run.payload(index)], token)
        block = encode_run(run, index, count, link.heads[is_settled], wrap(first))
        self.connection.out.append(block)
        self._sent(link, count, count, token)
        return count

    def send_payloads(self, link: SenderLink, payloads: list[bytes], token: Any) -> int:
        """Send messages that are in no run, each of which fits a frame of the peer's; says how many went."""
        count = min(len(payloads), self.window)
        if count <= 0:
            return 0
        heading = link.heads[link.send_settled]
        self.connection.out.append(encode_payloads(payloads[:count], heading, wrap(self.next_delivery_id)))
        self._sent(link, count, count, token)
        return count

    def _whole_frames(self, run: Run, index: int, count: int) -> int:
        """How many messages from `index` on fit a frame of the peer's each."""
        limit = self.connection.peer_frame_size
        for each in range(index, index + count):
            if run.size_bytes(each, 1) + HEAD_GROWTH > limit:
                return each - index
        return count

    def send_message(
        self, link: SenderLink, payload: list[bytes | memoryview], token: Any, state: DeliveryState | None = None
    ) -> int:
        """Send one message in as many transfers as the peer's frame size asks for (the general path).

        Frames that the peer's window does not let through are held, and so is everything else until they are gone.
        Says how many went: none while the window is closed.
        """
        if not self.window:
            return 0
        whole = payload[0] if len(payload) == 1 else b"".join(payload)
        view = memoryview(whole)
        identity = wrap(self.next_delivery_id)
        room = self.room
        count = max(-(-len(view) // room), 1)
        fits = min(count, self.peer_window)
        middle = encode(_transfer(link, None, state, more=True)) if count > 2 else b""
        for number in range(count):
            part = view[number * room : (number + 1) * room]
            body = middle
            if number in (0, count - 1):
                body = encode(_transfer(link, identity if number == 0 else None, state, more=number < count - 1))
            if number < fits:
                self.connection.out += frame_head(self.channel, body, len(part)), part
            else:
                self._held.append(encode_frame(self.channel, body, part))
        self._held_of = link
        self._sent(link, 1, fits, token)
        return 1

    def begin_message(self, link: SenderLink, head: memoryview, token: Any) -> tuple[int, int]:
        """The first transfer of a message that follows piece by piece, with as much of `head` as fits a frame.

        Says its delivery id and how much went. The window must be open. It is unsettled until the sender takes it out,
        also on a link that sends settled.
        """
        identity = self.next_delivery_id
        went = min(len(head), self.room)
        body = encode(_transfer(link, wrap(identity), None, more=True))
        self.connection.out += frame_head(self.channel, body, went), head[:went]
        self._sent(link, 1, 1, token)
        if link.send_settled:
            self.unsettled.add(identity, 1, link, token)
        return identity, went

    def continue_message(self, link: SenderLink, data: memoryview, *, has_more: bool) -> int:
        """Further transfers of it as the window allows; says how much went. `has_more`: this is not the rest of it."""
        went, room = 0, self.room
        middle = encode(_transfer(link, None, None, more=True))
        while went < len(data) and self.window:
            part = data[went : went + room]
            went += len(part)
            is_last = not has_more and went == len(data)
            body = encode(_transfer(link, None, None, more=False)) if is_last else middle
            self.connection.out += frame_head(self.channel, body, len(part)), part
            self.next_outgoing_id += 1
            self.peer_window -= 1
        return went

    @property
    def room(self) -> int:
        """Bytes of a message that fit one frame of the peer's, at least."""
        return max(self.connection.peer_frame_size - 64, 448)

    @property
    def window(self) -> int:
        """Frames that may be sent now."""
        return 0 if self._held else self.peer_window

    def _send_held(self) -> None:
        while self._held and self.peer_window:
            self.connection.out.append(self._held.popleft())
            self.peer_window -= 1
            self.next_outgoing_id += 1

    def _sent(self, link: SenderLink, count: int, frames: int, token: Any) -> None:
        if not link.send_settled:
            self.unsettled.add(self.next_delivery_id, count, link, token)
        self.next_delivery_id += count
        self.next_outgoing_id += frames
        self.peer_window = max(self.peer_window - frames, 0)
        link.credit -= count
        link.delivery_count = wrap(link.delivery_count + count)

    def _drop_held(self, link: LinkBase) -> None:
        """The detach ends the delivery; a transfer behind it would be one on a handle that nobody has."""
        if link is self._held_of:
            self._held.clear()
            self._held_of = None
