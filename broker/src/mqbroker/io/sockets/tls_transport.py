"""TLS between a socket and its connection: records below, plain bytes above, for servers.

Owns one connection's TLS machine (ssl.MemoryBIO), from the handshake to the end. asyncio's own TLS has no half-close
(`can_write_eof`), so a peer that floods us would never read why it is closed, and sets aside 256 KiB for each peer
before anybody has said a word; here a peer that has not shaken hands costs what it sent last. Invariants: the
connection above hears nothing before the handshake is done; whatever ends a handshake, or breaks TLS after it, is one
line in the log; a peer that makes us answer and does not read is cut off. Source: RFC 8446 §6.1 (ends), AMQP 1.0 §5.2.1
(header of TLS).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import ssl
from collections.abc import Callable
from typing import Any, cast

from mqbroker.io.loop.judging_timer import JudgingTimer
from mqbroker.io.sockets.connections import DISCARDED_BYTES_MAX, WRITE_HELD_BYTES, TcpConnection
from mqbroker.io.sockets.tls import reason_of

TLS_HEADER = b"AMQP\x02\x01\x00\x00"
READ_BYTES = 64 << 10
WRITE_BYTES = 16 << 10  # the most that one record holds
LINGER_MS = 500


class Stage(enum.Enum):
    """Where a connection is. It only goes forward."""

    HEADER = "header"  # nothing, or less than an AMQP header, has come
    HANDSHAKE = "handshake"
    OPEN = "open"
    ENDED = "ended"  # we have said our last word: what still comes is dropped by the connection above
    FAILED = "failed"  # the handshake failed: the alert may be read, what still comes is dropped here


def _nothing(_why: str) -> None:
    pass


class TlsTransport(asyncio.Protocol, asyncio.Transport):
    """The protocol of the socket's transport, and the transport of `connection`.

    `shaken` is told when the handshake is over: why it failed, or nothing. `broken` is told why TLS ended without a
    proper end after that.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        connection: TcpConnection,
        timeout_ms: int,
        shaken: Callable[[str], None],
        broken: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._connection = connection
        self._shaken = shaken
        self._broken = broken
        self._timeout_ms = timeout_ms
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._stage = Stage.HEADER
        self._start = b""
        self._socket: asyncio.Transport | None = None
        self._is_made = False
        self._timer: asyncio.TimerHandle | JudgingTimer | None = None
        self._fault: Exception | None = None
        self._discarded_bytes = 0

    @property
    def is_made(self) -> bool:
        """Whether the socket has, or had, its transport: from then on `connection_lost` comes."""
        return self._is_made

    # -- the socket's protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._is_made = True
        why = f"not done within {self._timeout_ms} ms"
        self._timer = JudgingTimer(self._timeout_ms / 1000, functools.partial(self._fail, why))

    def data_received(self, data: bytes) -> None:
        if self._stage is Stage.ENDED:
            self._connection.data_received(data)
        elif self._stage is Stage.FAILED:
            self._discard(data)
        elif self._stage is not Stage.HEADER:
            self._incoming.write(data)
            self._go_on()
        else:
            self._start += data
            self._look_at_start()

    def eof_received(self) -> None:
        """The socket is closed by its transport, which tells `connection_lost`."""
        if self._stage in (Stage.HEADER, Stage.HANDSHAKE):
            self._fail("the peer closed the connection")

    def pause_writing(self) -> None:
        if self._stage is Stage.OPEN:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._stage is Stage.OPEN:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stage in (Stage.HEADER, Stage.HANDSHAKE):
            self._fail(f"connection lost: {exc}" if exc is not None else "given up")
        self._cancel_timer()
        self._socket = None  # each would keep the other one for ever
        self._connection.connection_lost(self._fault or exc)

    # -- handshake -----------------------------------------------------------------------------------------------------

    def _look_at_start(self) -> None:
        """AMQP without TLS is answered with the one header that is good here (§2.2), the header of TLS by itself."""
        start = self._start
        if len(start) < len(TLS_HEADER) and b"AMQP".startswith(start[:4]):
            return
        if start.startswith(b"AMQP"):
            assert self._socket is not None
            self._socket.write(TLS_HEADER)
            if not start.startswith(TLS_HEADER):
                self._fail("the peer speaks AMQP without TLS; it must use amqps, or a listener without TLS")
                return
            start = start[len(TLS_HEADER) :]
        self._start = b""
        self._stage = Stage.HANDSHAKE
        self._incoming.write(start)
        self._go_on()

    def _go_on(self) -> None:
        if self._stage is Stage.HANDSHAKE and not self._shake_hands():
            return
        self._read()

    def _shake_hands(self) -> bool:
        """Whether the handshake is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as fault:
            self._fail(reason_of(fault))
            return False
        self._cancel_timer()
        self._stage = Stage.OPEN
        self._end_handshake("")
        self._flush()
        self._connection.connection_made(self)
        return self._stage is Stage.OPEN

    def _fail(self, why: str) -> None:
        """End it: the peer may read its alert, and has little time for that."""
        if self._stage not in (Stage.HEADER, Stage.HANDSHAKE):
            return
        self._stage = Stage.FAILED
        self._start = b""
        self._end_handshake(why)
        self._cancel_timer()
        if self._socket is None or self._socket.is_closing():
            return
        self._flush()
        self._timer = asyncio.get_running_loop().call_later(LINGER_MS / 1000, self._socket.abort)
        self._socket.write_eof()

    def _end_handshake(self, why: str) -> None:
        """Tell so once. Who is told may know us, and each would keep the other one for ever."""
        shaken, self._shaken = self._shaken, _nothing
        shaken(why)

    def _discard(self, data: bytes) -> None:
        self._discarded_bytes += len(data)
        if self._discarded_bytes > DISCARDED_BYTES_MAX:
            self.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # -- open ----------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Everything that has come, as one piece: runs of messages are found within a piece."""
        parts: list[bytes] = []
        is_over = False
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
            is_over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            is_over = True
        except ssl.SSLError as fault:
            self._break(reason_of(fault))
        self._flush()
        if parts:
            self._connection.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        socket = self._socket
        if socket is None or socket.is_closing() or self._stage is not Stage.OPEN:
            return
        if is_over or self._fault is not None:
            socket.close()
        elif socket.get_write_buffer_size() > 2 * WRITE_HELD_BYTES:
            # Beyond what the connection above holds back: the peer asks for new keys again and again.
            self._break("the peer does not read what it asks for")
            socket.abort()

    def _break(self, why: str) -> None:
        if self._fault is None:
            self._fault = ConnectionAbortedError(f"TLS: {why}")
            self._broken(why)

    def _flush(self) -> None:
        if self._socket is not None and self._outgoing.pending and not self._socket.is_closing():
            self._socket.write(self._outgoing.read())

    # -- the connection's transport ------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._stage is not Stage.OPEN:
            return
        view = memoryview(data)
        at = 0
        try:
            while at < len(view):
                at += self._tls.write(view[at : at + WRITE_BYTES])
        except ssl.SSLError as fault:
            self._break(reason_of(fault))
            self.abort()
            return
        self._flush()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """close_notify, then the end of our direction. The peer's direction stays open for as long as it needs."""
        if self._stage is not Stage.OPEN or self._socket is None:
            return
        self._stage = Stage.ENDED
        with contextlib.suppress(ssl.SSLError):  # it would wait for the peer's close_notify, which nobody needs
            self._tls.unwrap()
        self._flush()
        if not self._socket.is_closing():
            self._socket.write_eof()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket is None or self._socket.is_closing()

    def is_reading(self) -> bool:
        return self._socket is not None and self._socket.is_reading()

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size() if self._socket is not None else 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`ssl_object` as asyncio names it, all else from the socket."""
        if name == "ssl_object":
            return self._tls
        return default if self._socket is None else self._socket.get_extra_info(name, default)
