"""What a broker says is taken in by turns: no step works longer for it than `TURN_WORK`, whatever it sends.

Base of the machine. Owns the one AMQP connection and how its transport stands. What is left of a turn waits as bytes;
nothing more is read while much waits, or while the broker does not read what it is answered. Invariants: bytes are
taken in in the order of their coming, and the end of a transport behind all that came on it.
Source: docs/adr/0011-client.md; what work is, docs/adr/0016-turns.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mqbroker.amqp import frame_costs
from mqbroker.amqp.connection import Connection
from mqbroker.base.time import At
from mqbroker.client import inputs as given
from mqbroker.client.effects import Effect, PauseReading, Write

TURN_WORK: Final = 1500  # in units of amqp/frame_costs.py, which are about a microsecond each
UNREAD_BYTES_MAX: Final = 256 << 10  # about one read; then the socket is not read until half of it is taken in
UNHEARD_BYTES_MAX: Final = 1 << 20  # of answers to who does not read, before no more is taken in


class Intake(ABC):
    """See the module's docstring."""

    def __init__(self) -> None:
        self.at = At(0, 0)
        self.effects: list[Effect] = []
        self._attempt = 0
        self._connection: Connection | None = None
        self._heard_ns = self._spoke_ns = 0
        self._is_blocked = False  # the transport takes no more
        self._unheard_bytes = 0  # that were written all the same
        self._is_behind = False  # there is more to be taken in
        self._has_kept = False  # bytes that the connection was only given
        self._is_paused = False
        self._end: given.Lost | None = None  # of the transport, while there is more to be taken in

    @abstractmethod
    def handle_events(self) -> None:
        """Act on everything that the connection told."""

    @abstractmethod
    def _disconnected(self, event: given.Lost) -> None:
        """The transport is gone, and all is taken in that came on it."""

    def _plug(self, connection: Connection) -> None:
        """A transport is there."""
        self._connection = connection
        self._heard_ns = self._spoke_ns = self.at.monotonic_ns
        self._unheard_bytes = 0
        self._is_blocked = self._is_behind = self._has_kept = self._is_paused = False

    def _unplug(self) -> None:
        """It is given up, and what came on it and was not taken in."""
        self._connection = self._end = None
        self._is_behind = self._has_kept = False

    # -- turns ---------------------------------------------------------------------------------------------------------

    @property
    def _is_unheard(self) -> bool:
        """Whether the broker is answered no more before it reads."""
        return self._unheard_bytes > UNHEARD_BYTES_MAX and self._end is None

    @property
    def _wants_turn(self) -> bool:
        """Whether another step is needed at once."""
        return self._is_behind and not self._is_unheard

    def _begin_turn(self) -> None:
        """What was left goes first."""
        if self._connection is not None:
            self._connection.allowance = TURN_WORK
            if self._wants_turn:
                self._heard_ns = self.at.monotonic_ns
                self._take_in(b"")

    def _take_in(self, data: bytes) -> None:
        connection = self._connection
        assert connection is not None
        if connection.allowance <= 0 or self._is_unheard:
            connection.keep(data)
            self._is_behind = self._has_kept = True
            return
        self._has_kept = False
        connection.receive(data, self.handle_events)
        self._handle()

    def _handle(self) -> None:
        """Act on what happened. Links of what is over are the application's own: they are handed back at once."""
        self.handle_events()
        while (connection := self._connection) is not None and connection.is_parting:
            left, connection.allowance = connection.allowance, frame_costs.PARTED_LINK
            connection.receive(b"", self.handle_events)
            connection.allowance = left
            self.handle_events()
        self._is_behind = connection is not None and (connection.is_behind or self._has_kept)
        if self._end is not None and not self._is_behind:
            event, self._end = self._end, None
            self._disconnected(event)

    def _watch(self) -> None:
        """Have the transport read, or not, by what waits."""
        connection = self._connection
        if connection is None or self._end is not None:
            return
        unread_bytes_max = UNREAD_BYTES_MAX // 2 if self._is_paused else UNREAD_BYTES_MAX
        is_full = self._is_unheard or (self._is_behind and connection.unread_bytes > unread_bytes_max)
        if is_full != self._is_paused:
            self._is_paused = is_full
            self.effects.append(PauseReading(self._attempt, is_full))

    # -- the transport -------------------------------------------------------------------------------------------------

    def _received(self, event: given.Received) -> None:
        if event.attempt == self._attempt and self._connection is not None:
            self._heard_ns = self.at.monotonic_ns
            self._take_in(event.data)

    def _lost(self, event: given.Lost) -> None:
        if event.attempt != self._attempt or self._connection is None:
            return
        if self._is_behind:
            self._end, self._is_blocked = event, True
        else:
            self._disconnected(event)

    def _blocked(self, event: given.Blocked) -> None:
        if event.attempt == self._attempt and self._end is None:
            self._is_blocked = event.is_blocked
            self._unheard_bytes = 0

    def _write(self) -> None:
        connection = self._connection
        if connection is None:
            return
        connection.flush()
        if connection.out:
            chunks, connection.out = connection.out, []
            if self._is_blocked:
                self._unheard_bytes += sum(map(len, chunks))
            if self._end is None:
                self._spoke_ns = self.at.monotonic_ns
                self.effects.append(Write(self._attempt, chunks))
