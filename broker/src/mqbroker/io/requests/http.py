"""A small HTTP/1.1 server: GET and HEAD, whole answers, everything bounded.

Owns its connections and their time. Invariants: a head is complete in HEAD_S_MAX or the connection ends, an answer is
read in ANSWER_S_MAX or it is cut off; one request of a connection is under way at a time and the connection is not
read meanwhile; what waits to be read by slow clients is bounded over all of them, so none holds up another.
Source: RFC 9112 §9; docs/METRICS.md.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import cast

from mqbroker.io.loop.judging_timer import JudgingTimer
from mqbroker.io.requests.http_head import METHODS, Head, Response, head_bytes, refusal, take_head

HEAD_S_MAX = 5.0
ANSWER_S_MAX = 30.0
LINGER_S = 1.0
PIECE_BYTES = 64 << 10
# Answers that slow clients have not read yet, over all connections.
UNREAD_BYTES_MAX = 64 << 20
# Connections over the bound that are told so; further ones are closed without a word.
REFUSED_MAX = 16

Responder = Callable[[Head], Awaitable[Response]]


class HttpConnection(asyncio.Protocol):
    """One connection of a client of metrics or health, a request at a time (RFC 9112)."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._timer: JudgingTimer | None = None
        self._task: asyncio.Task[None] | None = None
        self._unread = memoryview(b"")
        self._is_blocked = False
        self._is_answering = False
        self._keeps_open = True
        self._is_ending = False
        self._is_at_end = False

    @property
    def unread_bytes(self) -> int:
        """What of the answer is not handed to the transport yet."""
        return len(self._unread)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # pause_writing as soon as anything is left to write: then resume_writing says that the kernel has all of it.
        self._transport.set_write_buffer_limits(0)
        why = self._server.admit(self)
        if why is None:
            self._transport.abort()
        elif why:
            self._respond(refusal(503, why), is_head=False, keeps_open=False)
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        if not self._is_ending:
            self._buffer += data
            self._take()

    def eof_received(self) -> bool:
        """The client will ask no more, and may still read its answer."""
        self._is_at_end = True
        return self._is_answering

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()
        self._transport = None
        self._unread = memoryview(b"")
        self._buffer.clear()
        self._server.lost(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- one request after the other -----------------------------------------------------------------------------------

    def _expect_head(self) -> None:
        self._start_timer(HEAD_S_MAX, self._head_is_late)
        self._read(True)
        self._take()

    def _take(self) -> None:
        if self._is_answering:
            return
        head = take_head(self._buffer)
        if head is None:
            return
        self._stop_timer()
        if isinstance(head, Response):
            self._respond(head, is_head=False, keeps_open=False)
            return
        self._is_answering = True
        self._read(False)
        self._task = asyncio.get_running_loop().create_task(self._answer(head))

    async def _answer(self, head: Head) -> None:
        if head.method not in METHODS:
            response = refusal(405, f"{head.method} is not served here, only {' and '.join(METHODS)}")
        else:
            response = await self._server.answer(head)
        self._task = None
        self._respond(response, is_head=head.method == "HEAD", keeps_open=head.keeps_open)

    def _respond(self, response: Response, *, is_head: bool, keeps_open: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._server.unread_bytes + len(response.body) > UNREAD_BYTES_MAX and response.status == 200:
            response = refusal(503, "too many answers wait to be read; try again")
        self._is_answering = True
        self._keeps_open = keeps_open and not self._is_at_end
        date = formatdate(usegmt=True)
        head = head_bytes(response, self._keeps_open, date)
        self._start_timer(ANSWER_S_MAX, self.abort)
        self._unread = memoryview(b"" if is_head else response.body)
        self._transport.write(head)
        self._write()

    def _write(self) -> None:
        transport = self._transport
        if transport is None or not self._is_answering:
            return
        while self._unread and not self._is_blocked:
            piece, self._unread = self._unread[:PIECE_BYTES], self._unread[PIECE_BYTES:]
            transport.write(piece)
        if self._unread or self._is_blocked:
            return
        self._stop_timer()
        self._is_answering = False
        if self._keeps_open:
            self._expect_head()
        else:
            self._end()

    def _end(self) -> None:
        """End our direction and drop what still comes: closing with unread bytes would reset what was just sent."""
        transport = self._transport
        if self._is_ending or transport is None or transport.is_closing():
            return
        self._is_ending = True
        self._buffer.clear()
        if self._is_at_end:
            transport.close()
            return
        self._read(True)
        transport.write_eof()
        self._start_timer(LINGER_S, self.abort)

    def _read(self, is_wanted: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading() == is_wanted:
            return
        if is_wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _head_is_late(self) -> None:
        if self._buffer:
            why = f"the request was not complete within {HEAD_S_MAX:g} s"
            self._respond(refusal(408, why), is_head=False, keeps_open=False)
        else:
            self._end()

    def _start_timer(self, delay_s: float, action: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = JudgingTimer(delay_s, action)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HttpServer:
    """The listening socket and its connections. Nothing is accepted before `start`."""

    def __init__(self, sock: socket.socket, connections_max: int) -> None:
        self._socket = sock
        self._connections_max = connections_max
        self.answer: Responder = _not_started
        self._server: asyncio.Server | None = None
        self._connections: dict[HttpConnection, None] = {}

    @property
    def address(self) -> tuple[str, int]:
        name = self._socket.getsockname()
        return name[0], name[1]

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that wait for their clients."""
        return sum(each.unread_bytes for each in self._connections)

    def change(self, connections_max: int) -> None:
        """Take the option; connections over a lowered bound stay until they end."""
        self._connections_max = connections_max

    async def start(self, answer: Responder) -> None:
        """Serve. `answer` must not raise."""
        self.answer = answer
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self), sock=self._socket)

    def stop(self) -> None:
        """Close everything, answered or not."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for connection in list(self._connections):
            connection.abort()

    def admit(self, connection: HttpConnection) -> str | None:
        """Why this connection is not served, or nothing. None: too many are being told so already."""
        over = len(self._connections) - self._connections_max
        self._connections[connection] = None
        if over >= REFUSED_MAX:
            return None
        if over >= 0:
            return f"there are {self._connections_max} connections already, which is metrics.connections-max; try again"
        return ""

    def lost(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)


async def _not_started(head: Head) -> Response:
    return refusal(503, "the broker starts")
