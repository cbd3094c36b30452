"""A connection whose listener says how many frames it may send in a second (`frames-per-second-max`).

Frames are counted as they come, before anything is made of them. Who sends more than a second's worth at once, or more
than that on average, is not read until what came too much is made up for: it is slowed down and loses nothing, as by a
slow network. What one read has brought is taken in all the same, so the bound holds over seconds and not over moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_S
from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
from mqbroker.wire.frame_count import FrameCount

if TYPE_CHECKING:
    from mqbroker.config.slices import ListenerOptions
    from mqbroker.node.amqp.listeners.accepting_broker import AcceptingBroker
    from mqbroker.node.values.inputs import ConnectionAccepted


class FrameRate:
    """What is left of what may be sent now; below zero nothing is read. Its timer runs meanwhile."""

    __slots__ = ("_broker", "_conn", "_count", "_filled_ns", "_left", "_per_second", "due_ns", "scheduled_ns")

    def __init__(self, peer: RatedPeer, per_second: int) -> None:
        self._broker, self._conn = peer.broker, peer.conn  # each of the two would keep the other one for ever
        self._per_second = per_second
        self._count = FrameCount()
        self._left = float(per_second)
        self._filled_ns = peer.broker.at.monotonic_ns
        self.due_ns = 0
        self.scheduled_ns = 0

    @property
    def is_exceeded(self) -> bool:
        """Whether what comes next has to wait."""
        return self.due_ns > 0

    def heard(self, data: bytes) -> None:
        """The peer has sent these bytes; their frames are counted against its rate."""
        now_ns = self._broker.at.monotonic_ns
        gained = (now_ns - self._filled_ns) * self._per_second / NS_PER_S
        LOOK.has_touched = True
        self._filled_ns = now_ns
        self._left = min(self._left + gained, self._per_second) - self._count.begun_in(data)
        if self._left < 0:
            self.due_ns = now_ns + int(-self._left * NS_PER_S / self._per_second) + 1
            self._broker.timers.add(self)
            self._broker.peers[self._conn].pause_if_needed()

    def on_time(self, now_ns: int) -> None:
        """What came too much is made up for: the peer is read again."""
        LOOK.has_touched = True
        self.due_ns = 0
        peer = self._broker.peers.get(self._conn)
        if peer is not None and not peer.connection.is_dead:
            peer.pause_if_needed()


class RatedPeer(AcceptedPeer):
    """See the module's docstring."""

    __slots__ = ("_rate",)

    def __init__(self, broker: AcceptingBroker, accepted: ConnectionAccepted, listener: ListenerOptions) -> None:
        super().__init__(broker, accepted, listener)
        self._rate = FrameRate(self, listener.frames_per_second_max)

    def received(self, data: bytes) -> int:
        """Bytes of the peer; none: what is kept of them."""
        if data:
            self._rate.heard(data)
        return super().received(data)

    def keep(self, data: bytes) -> None:
        """Bytes of the peer that are taken in later."""
        self._rate.heard(data)
        super().keep(data)

    def pause(self, is_paused: bool) -> None:
        """Stop or resume reading; it stays stopped while the rate is exceeded."""
        super().pause(is_paused or self._rate.is_exceeded)
