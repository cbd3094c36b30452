"""The admin socket: JSON lines over a Unix socket, one reply for each request.

    {"id": 1, "op": "queue-show", "args": {"name": "orders"}}
        ->  {"id": 1, "result": …}  or  {"id": 1, "error": {"condition": …, "description": …}}

Owns the socket file, the sessions and the ids of requests. Invariants: only root and the broker's own user are
served; a session has at most REQUESTS_MAX requests unanswered and is not read meanwhile; a bad line is answered, only
an endless one closes. Source: docs/ARCHITECTURE.md; unix(7) SO_PEERCRED.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import socket
import stat
import struct
from typing import Any, Protocol, cast

from mqbroker.base.errors import ConfigFault
from mqbroker.io.loop.log import Log
from mqbroker.io.loop.loop import NodeLoop
from mqbroker.io.requests.admin_lines import LineWriter
from mqbroker.node.values.effects import AdminReply
from mqbroker.node.values.inputs import AdminClosed, AdminRequest

LINE_BYTES_MAX = 16 << 20
REQUESTS_MAX = 64
SESSIONS_MAX = 64
HANGUP_LOOK_S = 0.25
REFUSED_LINGER_S = 1.0
SOCKET_MODE = 0o660
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Asker(Protocol):
    """Whoever makes requests: a session, or the endpoints of HTTP."""

    id: int
    uid: int | None

    def reply(self, client_id: Any, row: dict[str, Any]) -> None: ...


class AdminSession(asyncio.Protocol):
    """One client of the socket."""

    def __init__(self, server: AdminServer) -> None:
        self.id = 0
        self.uid: int | None = None
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._lines: LineWriter
        self._buffer = bytearray()
        self._scanned = 0
        self._unanswered = 0
        self._is_at_end = False
        self._is_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._lines = LineWriter(self._transport)
        why = self._server.admit(self, self._transport.get_extra_info("socket"))
        if why:
            self._refuse("amqp:unauthorized-access", why)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._buffer += data
        self._take_lines()

    def eof_received(self) -> bool:
        """The client will ask no more: answer what is open, then close."""
        self._is_at_end = True
        if self._buffer:
            self._buffer += b"\n"
            self._take_lines()
        is_kept = not self._is_refused and self._unanswered > 0
        if is_kept:
            self._watch_for_hangup()
        return is_kept

    def _watch_for_hangup(self) -> None:
        """Nothing tells a half-closed session when its client is gone for good, so look until it is answered."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if _has_hung_up(transport.get_extra_info("socket")):
            transport.abort()
        else:
            asyncio.get_running_loop().call_later(HANGUP_LOOK_S, self._watch_for_hangup)

    def pause_writing(self) -> None:
        self._lines.pause()

    def resume_writing(self) -> None:
        self._lines.resume()
        self._take_lines()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lines.drop()
        self._buffer.clear()
        self._server.lost(self)

    def reply(self, client_id: Any, row: dict[str, Any]) -> None:
        if self._is_refused:
            return  # its last line is written already
        self._write({"id": client_id} | row)
        self._lines.then(self._answered)

    def _answered(self) -> None:
        self._unanswered -= 1
        self._take_lines()
        if self._is_at_end and self._unanswered == 0 and self._transport is not None:
            self._transport.close()

    def close(self) -> None:
        if self._transport is not None:
            self._lines.finish()
            self._transport.close()

    def _take_lines(self) -> None:
        start = 0
        while self._unanswered < REQUESTS_MAX and not self._lines.is_blocked and not self._is_refused:
            end = self._buffer.find(b"\n", max(start, self._scanned))
            if end < 0:
                self._scanned = len(self._buffer)
                break
            self._scanned = end + 1
            line = bytes(self._buffer[start:end])
            start = end + 1
            if line.strip():
                self._take_line(line)
        if start:
            del self._buffer[:start]
            self._scanned -= start
        if self._scanned > LINE_BYTES_MAX:
            self._refuse("amqp:resource-limit-exceeded", f"a line has more than {LINE_BYTES_MAX} bytes")
        self._apply_reading()

    def _take_line(self, line: bytes) -> None:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as fault:
            self._write_error(None, "amqp:decode-error", f"the line is not JSON: {fault}")
            return
        client_id = row.get("id") if isinstance(row, dict) else None
        why = _fault_of(row)
        if why:
            self._write_error(client_id, "amqp:invalid-field", why)
            return
        self._unanswered += 1
        self._server.request(self, client_id, row["op"], row.get("args") or {})

    def _refuse(self, condition: str, why: str) -> None:
        """Say why, and close once the client has read it: closing at once would break the pipe that it writes to."""
        self._is_refused = True
        self._buffer.clear()
        self._write_error(None, condition, why)
        if self._transport is not None and not self._transport.is_closing():
            self._lines.then(self._end_refused)

    def _end_refused(self) -> None:
        assert self._transport is not None
        self._transport.write_eof()
        asyncio.get_running_loop().call_later(REFUSED_LINGER_S, self._transport.abort)

    def _apply_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_stopped = self._unanswered >= REQUESTS_MAX or self._lines.is_blocked
        if is_stopped and transport.is_reading():
            transport.pause_reading()
        elif not is_stopped and not transport.is_reading():
            transport.resume_reading()

    def _write_error(self, client_id: Any, condition: str, description: str) -> None:
        self._write({"id": client_id, "error": {"condition": condition, "description": description}})

    def _write(self, row: dict[str, Any]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._lines.write(row)


class AdminServer:
    """The socket and its sessions."""

    def __init__(self, path: str, node: NodeLoop, log: Log) -> None:
        self._path = path
        self._node = node
        self._log = log
        self._server: asyncio.Server | None = None
        self._inode: int | None = None
        self._next_session = 1
        self._next_request = 1
        self._sessions: dict[int, AdminSession] = {}
        self._requests: dict[int, tuple[Asker, Any]] = {}

    async def start(self) -> None:
        """Raises ConfigFault when the socket can't be made."""
        loop = asyncio.get_running_loop()
        sock = open_socket(self._path)
        self._inode = os.stat(self._path).st_ino
        self._server = await loop.create_unix_server(lambda: AdminSession(self), sock=sock)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions.values()):
            session.close()
        with contextlib.suppress(OSError):
            # Only our own file: somebody may have replaced it.
            if os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)

    def admit(self, session: AdminSession, sock: socket.socket) -> str:
        """Why this peer is not served, or nothing."""
        _, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid not in (0, os.geteuid()):
            self._log.warning("admin-refused", uid=uid)
            return f"user id {uid} is neither root nor the user of the broker; use sudo"
        if len(self._sessions) >= SESSIONS_MAX:
            return f"there are {SESSIONS_MAX} admin sessions already; close one and try again"
        session.id, session.uid = self._next_session, uid
        self._next_session += 1
        self._sessions[session.id] = session
        return ""

    def request(self, session: Asker, client_id: Any, operation: str, arguments: dict[str, Any]) -> None:
        """Ask the node; `session.reply(client_id, row)` follows unless the node ends before."""
        request = self._next_request
        self._next_request += 1
        self._requests[request] = (session, client_id)
        self._node.post(AdminRequest(request, session.id, operation, arguments, session.uid))

    def reply(self, effect: AdminReply) -> None:
        """Replies to a session that is gone are dropped."""
        session, client_id = self._requests.pop(effect.id, (None, None))
        if session is not None:
            session.reply(client_id, {"error": effect.error} if effect.error else {"result": effect.result})

    def lost(self, session: AdminSession) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        self._requests = {key: value for key, value in self._requests.items() if value[0] is not session}
        self._node.post(AdminClosed(session.id))


def open_socket(path: str) -> socket.socket:
    """A listening socket at `path`, readable by user and group only. Takes the place of a stale one."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        _remove_stale(path)
        # The mode is set before anybody can connect: between bind and listen a connect is refused.
        sock.bind(path)
        os.chmod(path, SOCKET_MODE)
        sock.listen(SESSIONS_MAX)
    except OSError as fault:
        sock.close()
        remedy = "check that the directory exists and belongs to the user of the broker"
        raise ConfigFault("node.admin-socket", f"can't listen on {path}: {fault.strerror}; {remedy}") from None
    except ConfigFault:
        sock.close()
        raise
    return sock


def _has_hung_up(sock: socket.socket) -> bool:
    """Whether both directions of a Unix connection are closed by the client (POLLHUP), not only its own."""
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def _remove_stale(path: str) -> None:
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise ConfigFault(
            "node.admin-socket", f"{path} is there and is not a socket; move it away or choose another path"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise ConfigFault("node.admin-socket", f"another process listens on {path}; stop it or choose another path")


def _fault_of(row: Any) -> str:
    if not isinstance(row, dict):
        return 'a request is an object such as {"id": 1, "op": "status", "args": {}}'
    if not isinstance(row.get("op"), str):
        return "op must be a string: the name of an operation"
    if not isinstance(row.get("args") or {}, dict):
        return "args must be an object"
    unknown = sorted(set(row) - {"id", "op", "args"})
    return f"unknown key {unknown[0]!r}: a request has id, op and args" if unknown else ""
