"""Announcements by UDP multicast, over the network card that a group is pinned to and over no other.

Owns the sockets. A sender is bound to the card's address and sends from that card (IP_MULTICAST_IF): either alone can
leave the choice to the routes. A receiver is bound to the group's address, joins on the card, and turns
IP_MULTICAST_ALL off: with Linux's default a socket also gets what other sockets of the host have joined on other
cards. What a host sends is heard on it too (IP_MULTICAST_LOOP), by its other instances. Sources: ip(7), ADR 0010.
"""

from __future__ import annotations

import asyncio
import errno
import socket

from mqbroker.cluster.discovery.datagram import DATAGRAM_BYTES_MAX
from mqbroker.config.slices import BroadcastGroupOptions, DiscoveryGroupOptions
from mqbroker.io.discovery.broadcast_endpoints import EndpointUnreachable, Listener

READS_MAX = 64  # datagrams of one group in one loop turn
IP_MULTICAST_ALL = 49  # of linux/in.h; the socket module has no name for it


class MulticastSender:
    """The endpoint of a broadcast group. Its socket is made when it is needed, and anew after a failure."""

    def __init__(self, options: BroadcastGroupOptions) -> None:
        self._options = options
        self._socket: socket.socket | None = None

    async def send(self, data: bytes) -> None:
        options = self._options
        try:
            if self._socket is None:
                self._socket = _sending(options)
            self._socket.sendto(data, (options.group_address, options.group_port))
        except OSError as error:
            self.close()
            place = f"{options.group_address}:{options.group_port}"
            raise EndpointUnreachable(_why(error, place, options.local_bind_address, "sent to")) from None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class MulticastReceiver:
    """The endpoint of a discovery group."""

    def __init__(self, options: DiscoveryGroupOptions, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._loop = loop
        self._socket: socket.socket | None = None

    async def join(self, listener: Listener) -> None:
        options = self._options
        try:
            made = _listening(options)
        except OSError as error:
            self.close()
            place = f"{options.group_address}:{options.group_port}"
            raise EndpointUnreachable(_why(error, place, options.local_bind_address, "listened at")) from None
        # The old one last, so that nothing is missed in between.
        self.close()
        self._socket = made
        self._loop.add_reader(made.fileno(), _read, made, listener)

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None


def _sending(options: BroadcastGroupOptions) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, options.time_to_live)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        local = options.local_bind_address
        if local:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((local, max(0, options.local_bind_port)))
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(local))
    except OSError:
        made.close()
        raise
    return made


def _listening(options: DiscoveryGroupOptions) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        # Instances of one host listen to one group; each gets every datagram.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        made.bind((options.group_address, options.group_port))
        membership = socket.inet_aton(options.group_address) + socket.inet_aton(options.local_bind_address or "0.0.0.0")
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError:
        made.close()
        raise
    return made


def _read(sock: socket.socket, listener: Listener) -> None:
    """A bounded number of datagrams: who floods the group must not keep clients waiting."""
    for _ in range(READS_MAX):
        try:
            # One byte more than there may be, so that what is too long does not look cut to size.
            data, (host, port) = sock.recvfrom(DATAGRAM_BYTES_MAX + 1)
        except OSError:
            return  # there is none, or something is wrong; if that lasts, silence leads to joining anew
        listener.heard(f"{host}:{port}", data)


def _why(error: OSError, place: str, local: str, verb: str) -> str:
    """One sentence on what is wrong and what to do."""
    what = f"{place} cannot be {verb}"
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV) and local:
        return f"{what} over {local}: no network card of this host has this address; it is tried again"
    if error.errno in (errno.ENETUNREACH, errno.ENODEV, errno.EHOSTUNREACH):
        if local:
            return f"{what} over {local}: its network card is down or has no route; it is tried again"
        remedy = "set local-bind-address to the address of the cluster's network card, or add a route for 224.0.0.0/4"
        return f"{what}: the host has no route for it; {remedy}"
    if error.errno == errno.ENOBUFS and verb == "listened at":
        return f"{what}: the host is in too many groups; raise the sysctl net.ipv4.igmp_max_memberships"
    return f"{what}: {error.strerror or error}"
