"""Everything that can happen to a node, as values. `io/` gathers all of one loop turn and makes one call of `step`.

Connection ids and request ids are integers that `io/` (or the simulator) hands out, ascending and never reused.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

from mqbroker.amqp.certificate import Certificate
from mqbroker.base.frozen import frozen
from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values.traffic import BytesReceived as BytesReceived
from mqbroker.node.values.traffic import Synced as Synced


@frozen()
class ConnectionAccepted:
    """A peer connected to a listener of ours. `entropy` are 32 random bytes for nonces of this connection.

    `certificate`: the peer's, where it presented one that TLS has verified. `server_name`: what it asked TLS for.
    """

    conn: int
    listener: str
    peer: str
    entropy: bytes
    is_loopback: bool = True
    is_tls: bool = False
    certificate: Certificate | None = None
    server_name: str = ""


@frozen()
class Connected:
    """An outgoing connection that effect `Connect(conn, …)` asked for stands."""

    conn: int
    entropy: bytes


@frozen()
class Closed:
    """A connection is gone, from whichever side. Comes exactly once for each; nothing of it comes later."""

    conn: int
    why: str


@frozen()
class WriteBlocked:
    """The transport's buffer of this connection is over its high-water mark (or under the low one again)."""

    conn: int
    is_blocked: bool


@frozen()
class Done:
    """The one good completion of the effect `id`. `result` is what its effect says."""

    id: int
    result: Any = None


@frozen()
class Failed:
    """The one bad completion of the effect `id`."""

    id: int
    why: str


class Configuration(NamedTuple):
    """What effect `LoadConfiguration` found: the options, and the users (name -> verifier, see config.users)."""

    options: BrokerOptions
    users: dict[str, Any]


@frozen()
class UnsyncedBytes:
    """The disk queue in `io/`: bytes that were handed over in appends and are not synced yet."""

    pending_bytes: int


@frozen()
class Datagram:
    """Something came to a discovery group that `JoinGroup` asked for. `source` is its sender's address and port."""

    group: str
    source: str
    data: bytes


@frozen()
class Slipped:
    """A bug showed in `io/` where it served somebody at `source` who asks for `what`, and ended that connection alone.

    `place`: where in the source.
    """

    what: str
    source: str
    error: str
    place: str


@frozen()
class Resolved:
    """The names of a discovery group led to these places: (name, host, port), all that there are now."""

    group: str
    found: tuple[tuple[str, str, int], ...]


@frozen()
class Looked:
    """Looks of a discovery group at its place fail now, and why; or they work again, where `why` is empty."""

    group: str
    why: str


@frozen()
class JournalSpace:
    """Whether less is free on the file system of the journal than the options want; `is_scarce`: or will be soon."""

    is_low: bool
    free_bytes: int
    is_scarce: bool = False


class CertificateExpiry(NamedTuple):
    """What ends of a listener: its option, the file that the option named, its life in seconds since 1970."""

    listener: str
    option: str
    file: str
    not_before_s: int
    not_after_s: int


@frozen()
class CertificatesInUse:
    """What listeners have loaded by now."""

    endings: tuple[CertificateExpiry, ...]


@frozen()
class AdminRequest:
    """One request of the admin socket. Answered by exactly one `AdminReply` with the same `id`.

    `uid` is the user of the system who asks, where that is known.
    """

    id: int
    session: int
    operation: str
    arguments: dict[str, Any]
    uid: int | None = None


@frozen()
class AdminClosed:
    """An admin session is gone: what it had in delivery returns to its place."""

    session: int


@frozen()
class UsersChanged:
    """The file of users was read again (name -> verifier, see config.users)."""

    users: dict[str, Any]


@frozen()
class ClusterKeyChanged:
    """The file of the cluster's secret was read again; the key is made of it."""

    key: bytes = field(repr=False)


@frozen()
class OptionsChanged:
    """The file of options was read again. `io/` takes what may change while the process runs (config.slices).

    `users`: the file of users with it, as in UsersChanged.
    """

    options: BrokerOptions
    users: dict[str, Any] | None = None


@frozen()
class Stop:
    """Stop gracefully: refuse new connections, close all with `amqp:connection:forced`, sync, then `Halt`."""


Input = (
    BytesReceived | Synced | ConnectionAccepted | Connected | Closed | WriteBlocked | Done | Failed | UnsyncedBytes |
    Datagram | Slipped | Resolved | Looked | JournalSpace | CertificatesInUse | AdminRequest | AdminClosed |
    UsersChanged | ClusterKeyChanged | OptionsChanged | Stop
)  # fmt: skip
