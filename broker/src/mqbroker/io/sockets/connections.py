"""Every AMQP connection of the node, accepted or made: bytes in, bytes out, and the way it ends.

Owns the transports and their ids. Invariants: a connection is announced once and `Closed` comes exactly once, after
everything else of it; received buffers are given away unchanged; a peer that does not read what it asked for is not
read either, so memory for one connection is bounded. Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from mqbroker.base.errors import Bug
from mqbroker.io.files.writes import IOV_MAX
from mqbroker.io.loop.loop import BURST_READ_BYTES, NodeLoop
from mqbroker.io.sockets.tls import certificate_of, server_name_of
from mqbroker.node.values.effects import CloseConnection, PauseReading, Send
from mqbroker.node.values.inputs import Closed, Connected, ConnectionAccepted, WriteBlocked

ENTROPY_BYTES: Final = 32
# WriteBlocked marks. Above: one full run of 1 KiB messages fits, so a consumer that keeps up is never seen as blocked.
WRITE_HIGH_BYTES: Final = 256 << 10
WRITE_LOW_BYTES: Final = 64 << 10
# A peer that makes us answer and never reads: beyond this we stop reading it, whatever the core wants.
WRITE_HELD_BYTES: Final = 4 << 20
# What a peer may still send while it is given the time to read why it is closed.
DISCARDED_BYTES_MAX: Final = 16 << 20
_write: Final = os.write  # as in loop.py
_writev: Final = os.writev


@dataclass(frozen=True, slots=True)
class ListenerOrigin:
    """Where an accepted connection came in."""

    listener: str
    peer: str
    is_loopback: bool


class TcpConnection(asyncio.Protocol):
    """One TCP connection. `origin` is None for one that we opened."""

    __slots__ = ("_discarded_bytes", "_fd", "_is_behind", "_is_ending", "_is_held", "_is_paused", "_linger", "_node",
                 "_on_lost", "_origin", "_transport", "_why", "id", "is_announced")  # fmt: skip

    def __init__(
        self, conn: int, node: NodeLoop, origin: ListenerOrigin | None, on_lost: Callable[[int], None]
    ) -> None:
        self.id = conn
        self._node = node
        self._origin = origin
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._linger: asyncio.TimerHandle | None = None
        self.is_announced = False
        self._fd = -1  # of the socket, where what is sent goes into it as it is
        self._discarded_bytes = 0
        self._is_behind = False  # the core had it paused, and it may still have more than one read brings
        self._is_ending = False
        self._is_held = False
        self._is_paused = False
        self._why = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        if self._is_ending:
            self._transport.abort()
            return
        self.is_announced = True
        entropy = os.urandom(ENTROPY_BYTES)
        origin = self._origin
        tls = self._transport.get_extra_info("ssl_object")
        if tls is None:
            self._fd = self._transport.get_extra_info("socket").fileno()
        if origin is None:
            self._node.post(Connected(self.id, entropy))
        else:
            certificate = None if tls is None else certificate_of(tls)
            self._node.post(
                ConnectionAccepted(
                    self.id,
                    origin.listener,
                    origin.peer,
                    entropy,
                    origin.is_loopback,
                    tls is not None,
                    certificate,
                    "" if tls is None else server_name_of(tls),
                )
            )

    def data_received(self, data: bytes) -> None:
        # After Close the peer's bytes are read and dropped: closing a socket with unread bytes makes the kernel send
        # a reset, which would destroy the error that the peer is about to read.
        if not self._is_ending:
            self._is_behind = self._is_behind and len(data) >= BURST_READ_BYTES
            self._node.post_received(self.id, data, self._is_behind)
            return
        self._discarded_bytes += len(data)
        if self._discarded_bytes > DISCARDED_BYTES_MAX and self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        if not self._is_ending:
            self._node.post(WriteBlocked(self.id, True))

    def resume_writing(self) -> None:
        if self._is_ending:
            return
        self._is_held = False
        self._apply_reading()
        self._node.post(WriteBlocked(self.id, False))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self._on_lost(self.id)
        if self.is_announced:
            why = self._why or (f"{type(exc).__name__}: {exc}" if exc is not None else "closed by the peer")
            self._node.post(Closed(self.id, why))
        self._transport, self._fd = None, -1

    def send(self, chunks: list[bytes | bytearray | memoryview]) -> None:
        transport = self._transport
        if transport is None or self._is_ending or transport.is_closing():
            return
        size_bytes = 0
        for chunk in chunks:
            size_bytes += len(chunk)
        self._node.sent_bytes_total += size_bytes
        sent = 0
        if self._fd >= 0 and len(chunks) <= IOV_MAX and not transport.get_write_buffer_size():
            # A transport of uvloop writes at the end of the turn, to all connections in no order; here the order is the
            # core's, by which messages go first. Whatever is wrong with the socket, the transport will find it too.
            try:
                sent = _write(self._fd, chunks[0]) if len(chunks) == 1 else _writev(self._fd, chunks)
            except OSError:
                sent = 0
            if sent == size_bytes:
                return
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        transport.write(memoryview(data)[sent:] if sent else data)
        if not self._is_held and transport.get_write_buffer_size() > WRITE_HELD_BYTES:
            self._is_held = True
            self._apply_reading()

    def pause_reading(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        self._is_behind = self._is_behind or is_paused
        self._apply_reading()

    def close(self, linger_ms: int, why: str = "closed by us") -> None:
        """Let what was sent leave, end our direction, wait for the peer's end; hard after `linger_ms`."""
        if self._is_ending:
            return
        self._is_ending = True
        self._why = why
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._apply_reading()
        self._linger = asyncio.get_running_loop().call_later(linger_ms / 1000, transport.abort)
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()  # TLS of asyncio, on connections that we opened

    def abort(self, why: str) -> None:
        self._is_ending = True
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    def _apply_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_stopped = not self._is_ending and (self._is_paused or self._is_held)
        if is_stopped and transport.is_reading():
            transport.pause_reading()
        elif not is_stopped and not transport.is_reading():
            transport.resume_reading()


class Connections:
    """The table of live connections, and the effects on them."""

    def __init__(self, node: NodeLoop) -> None:
        self._node = node
        self._next_id = 1
        self._connections: dict[int, TcpConnection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def last_step_ns(self) -> int:
        """How long the core's last step took, with what it decided."""
        return self._node.last_step_ns

    def accepted(self, origin: ListenerOrigin, on_lost: Callable[[], None]) -> TcpConnection:
        """A connection with the next id. It is in the table from now on, and announced when its transport stands."""
        conn = self._next_id
        self._next_id += 1
        return self._enter(conn, origin, on_lost)

    def outgoing(self, conn: int) -> TcpConnection:
        """The core chose `conn`: below zero, so that it never meets an id of an accepted connection."""
        if conn >= 0 or conn in self._connections:
            raise Bug(f"Connect: {conn} is not a free id below zero")
        return self._enter(conn, None, lambda: None)

    def _enter(self, conn: int, origin: ListenerOrigin | None, on_lost: Callable[[], None]) -> TcpConnection:
        def lost(conn: int) -> None:
            self._connections.pop(conn, None)
            on_lost()

        connection = TcpConnection(conn, self._node, origin, lost)
        self._connections[conn] = connection
        return connection

    def forget(self, connection: TcpConnection) -> None:
        """Its transport never stood, so no `connection_lost` will come."""
        self._connections.pop(connection.id, None)

    # A connection that is not in the table was lost a moment ago: its Closed is on the way to the core.

    def send(self, effect: Send) -> None:
        connection = self._connections.get(effect.conn)
        if connection is not None:
            connection.send(effect.chunks)

    def close(self, effect: CloseConnection) -> None:
        connection = self._connections.get(effect.conn)
        if connection is not None:
            connection.close(effect.linger_ms)

    def pause_reading(self, effect: PauseReading) -> None:
        connection = self._connections.get(effect.conn)
        if connection is not None:
            connection.pause_reading(effect.is_paused)

    def close_all(self, linger_ms: int) -> None:
        for connection in list(self._connections.values()):
            connection.close(linger_ms)

    def abort_all(self, why: str) -> None:
        for connection in list(self._connections.values()):
            connection.abort(why)


def without_delay(sock: socket.socket) -> None:
    """Small frames leave at once: with Nagle, an acknowledgement can wait 40 ms for the delayed ACK of the peer."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
