"""Places of nodes from DNS: names with a port are resolved as the host resolves names, SRV names by asking its servers.

Owns one thread. A name that does not exist is an answer, which leads nowhere, once it was had `EMPTY_LOOKS` times in
a row: a host whose name server is away for a moment says that as well (nss-resolve). A name of which no server says
anything keeps what it led to before, and is told of; the others count as ever. Source: getaddrinfo(3), resolv.conf(5),
RFC 2782.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from mqbroker.cluster.discovery import srv
from mqbroker.config.slices import DiscoveryGroupOptions
from mqbroker.io.discovery.broadcast_endpoints import EndpointUnreachable, Listener, PollingEar
from mqbroker.io.loop.worker import Worker

RESOLV_CONF: Final = Path("/etc/resolv.conf")
SERVERS_MAX: Final = 3
ANSWER_S: Final = 2.0  # for each server
PORT: Final = 53
DATAGRAM_BYTES: Final = 4096
EMPTY_LOOKS: Final = 3  # in a row at which a name leads nowhere, before that is believed of one that led somewhere
Servers = Callable[[], list[tuple[str, int]]]
ResolvedPlaces = list[tuple[str, str, int]]
NOBODY: Final = (
    socket.EAI_NONAME,
    socket.EAI_NODATA,
)  # no such name, or none with an address; all others are no answer


class NameEar(PollingEar):
    """The endpoint of a discovery group. `servers`: the name servers to ask for SRV records."""

    def __init__(self, options: DiscoveryGroupOptions, servers: Servers | None = None) -> None:
        super().__init__(options.poll_period)
        self._names = options.names
        self._servers = servers or servers_of_host
        self._worker: Worker | None = None
        self._known: dict[str, ResolvedPlaces] = {}
        self._empty = dict.fromkeys(options.names, 0)  # looks in a row, of names that led somewhere

    async def look(self, listener: Listener) -> None:
        """Resolve all names; the others are told although one fails
        (io/discovery/broadcast_endpoints.py:PollingEar)."""
        if self._worker is None:
            self._worker = Worker()
        whys = []
        for name in self._names:
            try:
                self._take(name, await self._worker.run(partial(self._resolved, name)))
            except (OSError, srv.NoAnswer, UnicodeError) as error:
                self._empty[name] = 0
                whys.append(f"{name} cannot be resolved: {getattr(error, 'strerror', None) or error}")
        if len(whys) < len(self._names) or self._known:
            listener.resolved(tuple(place for name in self._names for place in self._known.get(name, ())))
        if whys:
            raise EndpointUnreachable(f"{'; '.join(whys[:3])}; see names and /etc/resolv.conf; it is tried again")

    def _take(self, name: str, places: ResolvedPlaces) -> None:
        self._empty[name] = 0 if places or not self._known.get(name) else self._empty[name] + 1
        if places or name not in self._known or self._empty[name] >= EMPTY_LOOKS:
            self._known[name] = places

    def close(self) -> None:
        """Look no more, and end the thread (io/discovery/broadcast_endpoints.py:Ear)."""
        super().close()
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _resolved(self, name: str) -> ResolvedPlaces:
        if not name.startswith("_"):
            host, _, port = name.rpartition(":")
            return _addresses(name, host.strip("[]"), int(port))
        return [(name, one.host, one.port) for one in ask(name, self._servers())]


def servers_of_host() -> list[tuple[str, int]]:
    """The name servers that the host asks. Raises OSError."""
    lines = [line.split() for line in RESOLV_CONF.read_text(encoding="utf-8", errors="replace").splitlines()]
    servers = [(words[1], PORT) for words in lines if len(words) >= 2 and words[0] == "nameserver"]
    return servers[:SERVERS_MAX] or [("127.0.0.1", PORT)]


def ask(name: str, servers: list[tuple[str, int]]) -> list[srv.ServicePlace]:
    """Where a service is, from the first server that answers. Raises OSError or NoAnswer of the last one."""
    last: OSError | srv.NoAnswer = srv.NoAnswer("there is no name server")
    for server in servers:
        asked = srv.question(secrets.randbits(16), name)
        try:
            places = _by_datagram(asked, server)
            return _by_stream(asked, server) if isinstance(places, srv.Truncated) else places
        except (OSError, srv.NoAnswer) as error:
            what = "no answer" if isinstance(error, TimeoutError) else error
            last = srv.NoAnswer(f"name server {server[0]}: {what}")
    raise last


def _addresses(name: str, host: str, port: int) -> ResolvedPlaces:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in NOBODY:
            return []
        raise
    return [(name, address, port) for address in dict.fromkeys(str(row[4][0]) for row in rows)]


def _by_datagram(asked: bytes, server: tuple[str, int]) -> list[srv.ServicePlace] | srv.Truncated:
    with socket.socket(_family(server), socket.SOCK_DGRAM) as sock:
        sock.connect(server)  # so that the kernel takes answers of this server alone
        sock.settimeout(ANSWER_S)
        sock.send(asked)
        return srv.targets(asked, sock.recv(DATAGRAM_BYTES))


def _by_stream(asked: bytes, server: tuple[str, int]) -> list[srv.ServicePlace]:
    deadline_s = time.monotonic() + ANSWER_S
    with socket.create_connection(server, ANSWER_S) as sock:
        sock.sendall(struct.pack(">H", len(asked)) + asked)
        (size,) = struct.unpack(">H", _exactly(sock, 2, deadline_s))
        places = srv.targets(asked, _exactly(sock, size, deadline_s))
    if isinstance(places, srv.Truncated):
        raise srv.NoAnswer("its answer is cut")
    return places


def _exactly(sock: socket.socket, size: int, deadline_s: float) -> bytes:
    data = b""
    while len(data) < size:
        sock.settimeout(max(0.001, deadline_s - time.monotonic()))
        piece = sock.recv(size - len(data))
        if not piece:
            raise srv.NoAnswer("its answer is cut")
        data += piece
    return data


def _family(server: tuple[str, int]) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server[0] else socket.AF_INET
