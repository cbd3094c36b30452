"""Other places to connect to, as peers are told of them: in a redirect's error and in the list of an open.

A redirect is an error whose `info` says where to go (AMQP 1.0 §2.8.16, §2.8.17). The list of brokers for a failover
stands in the properties of an open, under Qpid's and Artemis's name; Qpid JMS follows both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from mqbroker.wire.performatives import Error
from mqbroker.wire.types import Symbol, UShort

CONNECTION_REDIRECT: Final = "amqp:connection:redirect"
LINK_REDIRECT: Final = "amqp:link:redirect"
FAILOVER_SERVER_LIST: Final = Symbol("failover-server-list")
TOPOLOGY: Final = Symbol("mq:topology")  # an address that tells that list anew, and what offers it
HOSTNAME, NETWORK_HOST, PORT = Symbol("hostname"), Symbol("network-host"), Symbol("port")
SCHEME, ADDRESS = Symbol("scheme"), Symbol("address")
PORT_MAX = 65535


class RedirectPlace(NamedTuple):
    """A host and its TCP port; `address`: where a link should attach there, empty for a whole connection."""

    host: str
    port: int
    address: str = ""


def place_of(text: str) -> RedirectPlace:
    """A place written `host:port`, or `[::1]:port`."""
    host, _, port = text.rpartition(":")
    return RedirectPlace(host.removeprefix("[").removesuffix("]"), int(port))


def redirect_info(place: RedirectPlace) -> dict[Symbol, Any]:
    """What the error of a redirect says besides its condition."""
    info: dict[Symbol, Any] = {HOSTNAME: place.host, NETWORK_HOST: place.host, PORT: UShort(place.port)}
    return info | ({ADDRESS: place.address} if place.address else {})


def failover_servers(places: Iterable[RedirectPlace], *, has_tls: bool) -> list[dict[Symbol, Any]]:
    """The list for an open's properties."""
    scheme = "amqps" if has_tls else "amqp"
    return [{**redirect_info(each), SCHEME: scheme} for each in places]


def redirect_of(error: Error | None) -> RedirectPlace | None:
    """Where an error sends us, None where it is no redirect, or one that does not say where."""
    if error is None or error.condition not in (CONNECTION_REDIRECT, LINK_REDIRECT):
        return None
    info: dict[Any, Any] = error.info or {}
    host, port, address = info.get(NETWORK_HOST), info.get(PORT), info.get(ADDRESS)
    if not isinstance(host, str) or not host or not isinstance(port, int) or not 0 < port <= PORT_MAX:
        return None
    return RedirectPlace(host, int(port), address if isinstance(address, str) else "")
