"""Brokers that announce themselves by UDP multicast, for one connection that has no addresses.

Owns the socket and the table of those that are heard, which is the broker's own (cluster/discovery). Nothing is
believed without the MAC of the cluster's secret. Over one network card, and of what other sockets of the host have
joined nothing is heard (IP_MULTICAST_ALL). Source: ADR 0010, ip(7).
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mqbroker.client.errors import ConnectionFailed, UriFault
from mqbroker.client.options import Settings
from mqbroker.client.uri import Endpoint, Group
from mqbroker.cluster.discovery.announcement import Announcement
from mqbroker.cluster.discovery.datagram import DATAGRAM_BYTES_MAX, derive_key, unseal
from mqbroker.cluster.discovery.entries import EntryChange, EntryTable

READS_MAX: Final = 64  # datagrams in one turn of the loop
IP_MULTICAST_ALL: Final = 49  # of linux/in.h; the socket module has no name for it
SECRET_BYTES_MAX: Final = 4096


class Announced:
    """`found` is told of all brokers that are heard, whenever that changes."""

    def __init__(self, group: Group, settings: Settings, on_brokers: Callable[[tuple[Endpoint, ...]], None]) -> None:
        self._group = group
        self._settings = settings
        self._found = on_brokers
        self._loop = asyncio.get_running_loop()
        self._table = EntryTable("", "", settings.refresh_timeout_ms)
        self._table.listeners.append(self._changed)
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._key = b""

    async def start(self) -> None:
        """Listen until the first broker is heard, and further on. Raises ConnectionFailed or UriFault."""
        # Both take time: a file may be far away, and the key is stretched on purpose.
        self._key = await asyncio.to_thread(lambda: derive_key(_secret(self._settings)))
        place = f"{self._group.address}:{self._group.port}"
        try:
            self._socket = _listening(self._group, self._settings.local_bind_address)
        except OSError as error:
            why = f"{place} cannot be listened at: {error.strerror or error}; see local-bind-address"
            raise ConnectionFailed(why) from None
        self._loop.add_reader(self._socket.fileno(), self._read, self._socket)
        wait_ms = self._settings.initial_wait_timeout_ms
        try:
            await asyncio.wait_for(self._first, wait_ms / 1000)
        except TimeoutError:
            why = f"no broker announced itself at {place} within initial-wait-timeout ({wait_ms} ms)"
            raise ConnectionFailed(f"{why}; see local-bind-address and the cluster's secret") from None

    def close(self) -> None:
        """Listen to the group no more; the socket is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _read(self, sock: socket.socket) -> None:
        for _ in range(READS_MAX):
            try:
                data, (host, port) = sock.recvfrom(DATAGRAM_BYTES_MAX + 1)
            except OSError:
                break
            said = unseal(data, self._key)
            if isinstance(said, Announcement):
                self._table.hear(said, f"{host}:{port}", time.monotonic_ns())
        self._plan()

    def _expire(self) -> None:
        self._timer = None
        self._table.expire(time.monotonic_ns())
        self._plan()

    def _plan(self) -> None:
        if self._timer is None and self._table.due_ns and self._socket is not None:
            self._timer = self._loop.call_later(max(0, self._table.due_ns - time.monotonic_ns()) / 1e9, self._expire)

    def _changed(self, change: EntryChange) -> None:
        said = [one for entry in self._table.entries for one in entry.announcement.connectors]
        endpoints = tuple(dict.fromkeys(Endpoint(one.host, one.port, one.scheme == "amqps") for one in said))
        self._found(endpoints)
        if endpoints and not self._first.done():
            self._first.set_result(None)


def _secret(settings: Settings) -> str:
    if settings.cluster_secret:
        return settings.cluster_secret
    file = Path(settings.cluster_secret_file)
    try:
        with file.open("rb") as stream:
            secret = stream.read(SECRET_BYTES_MAX).decode().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UriFault(f"cluster-secret-file {file} cannot be read: {error}") from None
    if not secret:
        raise UriFault(f"cluster-secret-file {file} is empty")
    return secret


def _listening(group: Group, local: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        made.bind((group.address, group.port))
        membership = socket.inet_aton(group.address) + socket.inet_aton(local or "0.0.0.0")
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError:
        made.close()
        raise
    return made
