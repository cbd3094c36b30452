"""URIs: where brokers are and how to behave towards them. Nothing is tried before all of it is understood.

    amqp://user:password@host:5672,other:5672?reconnect-attempts=-1     one scheme for all
    (amqp://host:5672,amqps://other:5671)?reconnect-attempts=-1         a scheme each; the query is for all of them
    failover:(amqp://host:5672,amqp://other:5672)?maxReconnectAttempts=5   ActiveMQ's form, with its names and defaults

    udp://group-address:port?local-bind-address=…&cluster-secret-file=…    brokers that announce themselves there

Option names may be written with hyphens or as Artemis writes them in URIs (`reconnectAttempts`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

from mqbroker.base.errors import ConfigFault
from mqbroker.client.errors import UriFault
from mqbroker.client.options import FOREVER, Settings
from mqbroker.config.file.suggestions import unknown
from mqbroker.config.users import password_bytes

UDP: Final = "udp://"
SCHEMES: Final = {"amqp": False, "tcp": False, "amqps": True, "ssl": True}
PORTS: Final = {False: 5672, True: 5671}
PORT_MAX: Final = 65535
ENDPOINTS_MAX: Final = 64
POLICIES: Final = ("round-robin", "random", "random-sticky", "first-element")
DURATIONS_MS_MAX: Final = 1 << 40
SIZES_MAX: Final = 1 << 31


class Endpoint(NamedTuple):
    """One broker, as it is reached."""

    host: str
    port: int
    has_tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.has_tls else 'amqp'}://{host}:{self.port}"


class Group(NamedTuple):
    """Where brokers announce themselves, by UDP multicast."""

    address: str
    port: int


class Target(NamedTuple):
    """What a URI says. With a group there are no endpoints: those who announce themselves there are found later."""

    endpoints: tuple[Endpoint, ...]
    settings: Settings
    group: Group | None = None


def parse_uri(text: str) -> Target:
    """What the URI says. Raises UriFault with what is wrong and where; it never repeats a password."""
    if text.strip().lower().startswith(UDP):
        return _group_target(text.strip()[len(UDP) :])
    head, mark, query = text.strip().partition("?")
    settings, endpoints = Settings(), []
    is_failover = head.startswith("failover:")
    head = head.removeprefix("failover:")
    if is_failover:
        settings = replace(settings, **_FAILOVER_DEFAULTS)
    if head.startswith("(") or is_failover:
        inside = head.removeprefix("(").removesuffix(")")
        if head.startswith("(") != head.endswith(")"):
            raise UriFault(
                "the URI has a bracket that nothing closes: write (amqp://a:5672,amqp://b:5672)?option=value"
            )
        parts = [part for part in inside.split(",") if part]
    else:
        scheme, separator, rest = head.partition("://")
        if not separator:
            raise UriFault("the URI has no scheme: write amqp://host:5672")
        login, at, hosts = rest.rpartition("@")
        parts = [f"{scheme}://{login + at if not index else ''}{host}" for index, host in enumerate(hosts.split(","))]
    for part in parts:
        endpoint, user, password = _endpoint(part)
        endpoints.append(endpoint)
        if user is not None:
            settings = replace(settings, user=user, password=password)
    if not endpoints or len(endpoints) > ENDPOINTS_MAX:
        raise UriFault(f"the URI names {len(endpoints)} brokers: 1 to {ENDPOINTS_MAX} are possible")
    known = OPTIONS | _FAILOVER if is_failover else OPTIONS
    return Target(tuple(dict.fromkeys(endpoints)), _with_query(settings, query, known) if mark else settings)


def _group_target(text: str) -> Target:
    head, _, query = text.partition("?")
    login, at, place = head.rpartition("@")
    host, _, port = place.rstrip("/").rpartition(":")
    try:
        is_group = ipaddress.IPv4Address(host).is_multicast
    except ValueError:
        is_group = False
    if not is_group or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) <= PORT_MAX:
        raise UriFault("the URI is no udp://group:port with a multicast address of IPv4, as in udp://231.7.7.7:9876")
    settings = Settings()
    if at:
        user, _, password = login.partition(":")
        settings = replace(settings, user=_decoded(user, "user"), password=_decoded(password, "password"))
    return Target((), _with_query(settings, query, OPTIONS | _UDP), Group(host, int(port)))


def _endpoint(text: str) -> tuple[Endpoint, str | None, str]:
    scheme, mark, rest = text.partition("://")
    if not mark or scheme.lower() not in SCHEMES:
        what = f"scheme {scheme!r}" if mark else "a broker of the URI without a scheme"
        raise UriFault(f"{what}: the scheme is one of {', '.join(SCHEMES)}, as in amqp://host:5672")
    has_tls = SCHEMES[scheme.lower()]
    login, at, place = rest.rpartition("@")
    user, _, password = login.partition(":")
    place = place.rstrip("/")
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%a-z]+\]|[^:/\[\]@\s]+)(?::([0-9]{1,5}))?", place)
    port = PORTS[has_tls] if match is None or match[2] is None else int(match[2])
    if match is None or not 0 < port <= PORT_MAX:
        why = f"a broker of the URI is no host:port with a port from 1 to {PORT_MAX}; IPv6 stands in brackets"
        raise UriFault(f"{why}, and in a password ? @ , stand as %3F %40 %2C")
    endpoint = Endpoint(match[1].strip("[]"), port, has_tls)
    return endpoint, _decoded(user, "user") if at else None, _decoded(password, "password")


def _decoded(text: str, what: str) -> str:
    """Percent-decoding (RFC 3986 §2.1)."""
    decoded = bytearray()
    raw = text.encode()
    at = 0
    while at < len(raw):
        if raw[at] == 0x25:
            digits = raw[at + 1 : at + 3]
            if not re.fullmatch(rb"[0-9A-Fa-f]{2}", digits):
                raise UriFault(f"the {what} in the URI has a % without two hexadecimal digits: write % itself as %25")
            decoded.append(int(digits, 16))
            at += 3
        else:
            decoded.append(raw[at])
            at += 1
    try:
        return decoded.decode()
    except UnicodeDecodeError:
        raise UriFault(f"the {what} in the URI is not UTF-8 after percent-decoding") from None


# -- options ----------------------------------------------------------------------------------------------------------


def _number(low: float, high: float) -> Callable[[str, str], Any]:
    def read(name: str, text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,15}", text) or not low <= int(text) <= high:
            raise UriFault(f"option {name}={text!r}: a whole number from {low:.0f} to {high:.0f} is needed")
        return int(text)

    return read


def _factor(name: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) or float(text) < 1.0:
        raise UriFault(f"option {name}={text!r}: a number from 1.0 on is needed")
    return float(text)


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise UriFault(f"option {name}={text!r}: true or false is needed")
    return text == "true"


def _policy(name: str, text: str) -> str:
    if text not in POLICIES:
        raise UriFault(f"option {name}={text!r}: one of {', '.join(POLICIES)} is needed")
    return text


def _text(name: str, text: str) -> str:
    return _decoded(text, f"option {name}")


_ATTEMPTS = _number(FOREVER, 1 << 31)
_MS = _number(0, DURATIONS_MS_MAX)

# Name -> field and reader. Times are in ms, as Artemis has them, without a unit in their names.
OPTIONS: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "initial-connect-attempts": ("initial_connect_attempts", _ATTEMPTS),
    "reconnect-attempts": ("reconnect_attempts", _ATTEMPTS),
    "retry-interval": ("retry_interval_ms", _MS),
    "retry-interval-multiplier": ("retry_interval_multiplier", _factor),
    "max-retry-interval": ("max_retry_interval_ms", _MS),
    "call-timeout": ("call_timeout_ms", _number(1, DURATIONS_MS_MAX)),
    "idle-timeout": ("idle_timeout_ms", _MS),
    "connection-load-balancing-policy": ("connection_load_balancing_policy", _policy),
    "use-topology-for-load-balancing": ("use_topology_for_load_balancing", _flag),
    "call-failover-timeout": ("call_failover_timeout_ms", _number(FOREVER, DURATIONS_MS_MAX)),
    "allow-plain": ("allow_plain", _flag),
    "max-frame-size": ("max_frame_size", _number(512, SIZES_MAX)),
    "max-message-size": ("max_message_size", _number(1, SIZES_MAX)),
    "pending-max": ("pending_max", _number(1, 1 << 20)),
    "pending-bytes-max": ("pending_bytes_max", _number(1, SIZES_MAX)),
    "container-id": ("container_id", _text),
    "client-id": ("container_id", _text),
    "tls-ca-file": ("tls_ca_file", _text),
    "tls-certificate-file": ("tls_certificate_file", _text),
    "tls-key-file": ("tls_key_file", _text),
}
# ActiveMQ's names and defaults, which hold behind `failover:`.
_FAILOVER: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "initial-reconnect-delay": ("retry_interval_ms", _MS),
    "max-reconnect-delay": ("max_retry_interval_ms", _MS),
    "back-off-multiplier": ("retry_interval_multiplier", _factor),
    "max-reconnect-attempts": ("reconnect_attempts", _ATTEMPTS),
    "startup-max-reconnect-attempts": ("initial_connect_attempts", _ATTEMPTS),
    "randomize": ("connection_load_balancing_policy", lambda n, t: "random" if _flag(n, t) else "first-element"),
}
_FAILOVER_DEFAULTS: Final[dict[str, Any]] = {
    "retry_interval_ms": 10, "max_retry_interval_ms": 30_000, "retry_interval_multiplier": 2.0,
    "reconnect_attempts": FOREVER, "initial_connect_attempts": FOREVER, "connection_load_balancing_policy": "random",
}  # fmt: skip


# What only brokers that announce themselves need.
_UDP: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "local-bind-address": ("local_bind_address", _text),
    "refresh-timeout": ("refresh_timeout_ms", _number(100, DURATIONS_MS_MAX)),
    "initial-wait-timeout": ("initial_wait_timeout_ms", _number(1, DURATIONS_MS_MAX)),
    "cluster-secret-file": ("cluster_secret_file", _text),
}


def _with_query(settings: Settings, query: str, known: dict[str, tuple[str, Callable[[str, str], Any]]]) -> Settings:
    values: dict[str, Any] = {}
    for pair in query.split("&"):
        if not pair:
            continue
        written, mark, text = pair.partition("=")
        name = re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"-{match[1].lower()}", written)
        if name not in known or not mark:
            why = unknown("option", name, known) if name not in known else "it has no value"
            raise UriFault(f"option {written[:80]!r} of the URI: {why}")
        field, read = known[name]
        values[field] = read(name, text)
    return replace(settings, **values)


def checked(settings: Settings) -> Settings:
    """The same settings. Raises UriFault where a value that was given in a call is out of its bounds."""
    readers = {field: (name, read) for name, (field, read) in (OPTIONS | _UDP).items()}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if each.name in readers and not isinstance(value, str | bool):
            name, read = readers[each.name]
            read(name, f"{value:.6f}" if isinstance(value, float) else str(value))
    _policy("connection-load-balancing-policy", settings.connection_load_balancing_policy)
    try:
        if settings.user is not None:
            password_bytes(settings.password)
    except ConfigFault as fault:
        raise UriFault(f"the password of user {settings.user!r} {fault.why}") from None
    return settings
