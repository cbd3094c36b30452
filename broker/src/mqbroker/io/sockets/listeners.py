"""Listening sockets and accepting from them.

Owns one socket per listener. Invariants: a listener that can't start stops the node with a sentence that says what to
do; a burst of connections never starves the loop; running out of descriptors slows accepting down, is logged once,
and heals by itself. Source: accept(2) "Error handling".
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import time
from typing import NamedTuple

from mqbroker.base.errors import ConfigFault
from mqbroker.config.slices import ListenerOptions
from mqbroker.io.files.files_in_force import digests_of
from mqbroker.io.loop.log import Log
from mqbroker.io.sockets.connections import Connections, ListenerOrigin, TcpConnection, without_delay
from mqbroker.io.sockets.tls import context_of, endings_of, files_of
from mqbroker.io.sockets.tls_transport import TlsTransport

AT_ONCE_MAX = 16
# Of the time of the last step. What newcomers cost the rest of a turn, to be adopted, read and closed, is some three
# times as much.
ACCEPTING_SHARE = 0.25
STARVED_RETRY_S = 0.25
_STARVED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ListeningPlace(NamedTuple):
    """Where to listen, for what is no listener of the options. `name` is for messages."""

    name: str
    local_bind_address: str
    port: int
    backlog: int


def open_listener(settings: ListenerOptions | ListeningPlace, path: str) -> socket.socket:
    """Bound and listening. Raises ConfigFault; `path` is where the listener stands in the file (`listeners.0`)."""
    address, port = settings.local_bind_address, settings.port
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(settings.backlog)
    except OSError as fault:
        sock.close()
        raise _fault_of(settings, path, fault) from None
    return sock


def _fault_of(settings: ListenerOptions | ListeningPlace, path: str, fault: OSError) -> ConfigFault:
    where = f"listener {settings.name} can't listen on {settings.local_bind_address} port {settings.port}"
    if fault.errno == errno.EADDRINUSE:
        remedy = f"the port is in use; see who has it with `ss -ltnp sport = :{settings.port}`, or choose another port"
        return ConfigFault(f"{path}.port", f"{where}: {remedy}")
    if fault.errno == errno.EADDRNOTAVAIL:
        remedy = "this host does not have the address; see `ip -brief address` for those it has"
        return ConfigFault(f"{path}.local-bind-address", f"{where}: {remedy}")
    if fault.errno in (errno.EACCES, errno.EPERM):
        remedy = "not permitted; choose a port of 1024 or above, or grant CAP_NET_BIND_SERVICE"
        return ConfigFault(f"{path}.port", f"{where}: {remedy}")
    return ConfigFault(path, f"{where}: {fault.strerror}; check the address and the port")


class Acceptor:
    """Accepts from one listening socket until `stop`. Raises ConfigFault where the files for TLS cannot be used."""

    def __init__(self, sock: socket.socket, settings: ListenerOptions, connections: Connections, log: Log) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self.name = settings.name
        self._settings = settings
        self._load_certificates(settings)
        self._connections = connections
        self._log = log
        self._open = 0
        self._has_just_accepted = False
        self._is_full = False
        self._is_starved = False
        self._retry: asyncio.TimerHandle | None = None
        self._adoptions: set[asyncio.Task[None]] = set()
        self._handshakes: set[TlsTransport] = set()

    @property
    def address(self) -> tuple[str, int]:
        name = self._socket.getsockname()
        return name[0], name[1]

    @property
    def trouble(self) -> str:
        """Why it accepts nobody at the moment, or nothing."""
        if self._socket.fileno() < 0:
            return "closed"
        return "no file descriptor is left for new connections" if self._is_starved else ""

    def change(self, settings: ListenerOptions) -> None:
        """Take the options that may change while it runs, and read the files for TLS again. Connections that stand go
        on as they are, also over a lowered bound. Raises ConfigFault; then the certificates are those of before.
        """
        self._settings = settings
        # Turning TLS on or off needs a restart, as `mqbroker config diff` says.
        if self._context is not None and settings.has_tls:
            self._load_certificates(settings)

    def _load_certificates(self, settings: ListenerOptions) -> None:
        """All or nothing: `endings` and `files` are of what new connections are shown and verified with."""
        path, files = f"listeners.{settings.name}", digests_of(files_of(settings))
        self._context, self.endings = context_of(settings, path), endings_of(settings, path)
        self.files = files

    def start(self) -> None:
        self._retry = None
        self._loop.add_reader(self._socket, self._accept)

    def stop(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket)
        if self._retry is not None:
            self._retry.cancel()
        self._socket.close()
        for handshake in list(self._handshakes):
            handshake.abort()

    def _accept(self) -> None:
        """In every other turn, since a newcomer is accepted in one and adopted and read in the next, and messages of
        others wait for all that is in theirs. One, and more only where steps are long: beside others the core makes
        little of newcomers in a step, and where nobody waits it makes as much as it can, so that a crowd gets in soon.
        """
        if self._has_just_accepted:
            self._has_just_accepted = False
            return
        until_ns = time.monotonic_ns() + self._connections.last_step_ns * ACCEPTING_SHARE
        for _ in range(AT_ONCE_MAX):
            try:
                sock, address = self._socket.accept()
            except OSError as fault:
                if fault.errno in _STARVED:
                    self._back_off(fault)
                    return
                if fault.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
                    return
                # accept(2): errors that were already pending on the new socket come out here and concern only that one.
                continue
            self._has_just_accepted = True
            if self._is_starved:
                self._is_starved = False
                self._log.info("accept-resumed", listener=self.name)
            self._admit(sock, address)
            if time.monotonic_ns() > until_ns:
                return

    def _back_off(self, fault: OSError) -> None:
        if not self._is_starved:
            remedy = "raise LimitNOFILE of the unit or lower connections-max"
            self._log.warning("accept-failed", listener=self.name, why=str(fault.strerror), remedy=remedy)
        self._is_starved = True
        self._loop.remove_reader(self._socket)
        self._retry = self._loop.call_later(STARVED_RETRY_S, self.start)

    def _admit(self, sock: socket.socket, address: tuple[str, int]) -> None:
        limit = self._settings.connections_max
        if self._open >= limit:
            sock.close()
            if not self._is_full:
                self._is_full = True
                self._log.warning("connections-full", listener=self.name, connections_max=limit)
            return
        self._is_full = False
        self._open += 1
        try:
            sock.setblocking(False)
            without_delay(sock)
        except OSError:
            self._release(sock)
            return
        host, port = address[0], address[1]
        is_loopback = host == "::1" or host.startswith("127.")  # as the kernel writes addresses
        peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection = self._connections.accepted(ListenerOrigin(self.name, peer, is_loopback), self._closed)
        task = self._loop.create_task(self._adopt(sock, connection, self._secured(connection, peer)))
        self._adoptions.add(task)
        task.add_done_callback(self._adoptions.discard)

    def _secured(self, connection: TcpConnection, peer: str) -> TlsTransport | None:
        """What stands between the socket and the connection, where the listener has TLS."""
        if self._context is None:
            return None

        def ended(why: str) -> None:
            self._handshakes.discard(secured)
            if why:
                self._log.warning("tls-handshake-failed", listener=self.name, peer=peer, why=why)

        def broken(why: str) -> None:
            remedy = "look at the peer, and at what stands between it and this listener"
            self._log.warning("tls-failed", listener=self.name, peer=peer, why=why, remedy=remedy)

        secured = TlsTransport(self._context, connection, self._settings.tls_handshake_timeout_ms, ended, broken)
        self._handshakes.add(secured)
        return secured

    async def _adopt(self, sock: socket.socket, connection: TcpConnection, secured: TlsTransport | None) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: secured or connection, sock)
        except OSError:
            if secured is not None and not secured.is_made:
                self._handshakes.discard(secured)
            if not connection.is_announced and not (secured is not None and secured.is_made):
                self._connections.forget(connection)
                self._release(sock)

    def _release(self, sock: socket.socket) -> None:
        sock.close()
        self._closed()

    def _closed(self) -> None:
        self._open -= 1
