"""What a connection, a sender and a receiver can be told, with defaults.

Those of a connection stand in a URI under Artemis's names (`reconnect-attempts`, or `reconnectAttempts`), or in a call
under the names here. Times in ms, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict

FOREVER = -1


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one connection. Attempts count rounds over all known brokers; -1 is for ever.

    `initial_connect_attempts`: 0 and 1 are one round. `reconnect_attempts`: 0 makes a lost connection an error at once.
    `call_timeout_ms`: for everything that the broker answers at once, such as a login or an attach.
    `idle_timeout_ms`: a broker that was silent for so long is taken for dead; 0 is never.
    `use_topology_for_load_balancing`: what brokers tell of others is balanced over as well, not only tried last.
    `call_failover_timeout_ms`: how long a call may wait while the connection is away; -1 is as long as it takes.
    `allow_plain`: send a password as it is over a connection without TLS. Loopback counts as safe.
    `pending_max`, `pending_bytes_max`: of one sender, messages without an outcome; above it, callers wait.
    `local_bind_address`, `refresh_timeout_ms`, `initial_wait_timeout_ms` and the cluster's secret, or the file that
    holds it, are for brokers that announce themselves to a group (`udp://`).
    """

    user: str | None = None
    password: str = field(default="", repr=False)
    container_id: str = ""
    initial_connect_attempts: int = 0
    reconnect_attempts: int = 0
    retry_interval_ms: int = 2000
    retry_interval_multiplier: float = 1.0
    max_retry_interval_ms: int = 2000
    call_timeout_ms: int = 30_000
    idle_timeout_ms: int = 60_000
    connection_load_balancing_policy: str = "round-robin"
    use_topology_for_load_balancing: bool = True
    call_failover_timeout_ms: int = FOREVER
    allow_plain: bool = False
    max_frame_size: int = 256 * 1024
    max_message_size: int = 100 * 1024 * 1024
    pending_max: int = 1000
    pending_bytes_max: int = 16 * 1024 * 1024
    tls_ca_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    tls_key_password: str = field(default="", repr=False)
    local_bind_address: str = ""
    refresh_timeout_ms: int = 10_000
    initial_wait_timeout_ms: int = 10_000
    cluster_secret: str = field(default="", repr=False)
    cluster_secret_file: str = ""


class ConnectOptions(TypedDict, total=False):
    """Arguments of `connect` beside the URI: fields of `Settings`, which win over the URI, and what no URI can say.

    `tls`: an ssl.SSLContext of your own. `policy`: a callable instead of a named load-balancing policy; it is given the
    number of brokers and says the index of the one to try first. `on_event`: is called in the connection's loop with a
    line of text whenever the connection is made, lost or given up.
    """

    user: str | None
    password: str
    container_id: str
    initial_connect_attempts: int
    reconnect_attempts: int
    retry_interval_ms: int
    retry_interval_multiplier: float
    max_retry_interval_ms: int
    call_timeout_ms: int
    idle_timeout_ms: int
    connection_load_balancing_policy: str
    use_topology_for_load_balancing: bool
    call_failover_timeout_ms: int
    allow_plain: bool
    max_frame_size: int
    max_message_size: int
    pending_max: int
    pending_bytes_max: int
    tls_ca_file: str
    tls_certificate_file: str
    tls_key_file: str
    tls_key_password: str
    local_bind_address: str
    refresh_timeout_ms: int
    initial_wait_timeout_ms: int
    cluster_secret: str
    cluster_secret_file: str
    tls: Any
    policy: Callable[[int], int]
    on_event: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SenderTerms:
    """Of one sender. An empty address: each message says in `to` where it goes.

    `topic`: True is for a topic, False for a queue, None leaves it to the broker. `settled`: at most once, a send
    returns when it is written. `resend`: what had no outcome when the connection was lost is sent again; False raises
    OutcomeUnknown. `duplicate_detection`: each message gets an id, so what is sent again is taken once.
    """

    address: str = ""
    topic: bool | None = None
    settled: bool = False
    resend: bool = True
    duplicate_detection: bool = False


class SenderOptions(TypedDict, total=False):
    """Arguments of `Connection.sender` beside the address; see `SenderTerms`."""

    topic: bool | None
    settled: bool
    resend: bool
    duplicate_detection: bool


@dataclass(frozen=True, slots=True)
class ReceiverTerms:
    """Of one receiver. An address may be `address::queue`; with `temporary` it is empty, and the broker chooses it.

    `credit`: messages that wait here at most, beside those that were taken. `selector`: JMS's. `topic`: as for senders.
    `subscription`: the name of a durable subscription, which outlives the receiver; it needs a container_id, unless it
    is `shared_globally`. `shared`: several receivers share one subscription of this name (volatile without `durable`).
    `settled`: at most once, nothing is to be accepted. `confirm`: `accept` returns when the broker has settled as well.
    `browse`: copies, the messages stay. `priority`: consumers of higher priority are served first. `no_local`: not what
    this container published.
    """

    address: str = ""
    credit: int = 100
    selector: str = ""
    topic: bool | None = None
    subscription: str = ""
    durable: bool = True
    shared: bool = False
    shared_globally: bool = False
    settled: bool = False
    confirm: bool = False
    browse: bool = False
    priority: int = 0
    no_local: bool = False
    temporary: bool = False

    @property
    def outlives_its_link(self) -> bool:
        """Whether it is that of a durable subscription."""
        return bool(self.subscription and self.durable)


class ReceiverOptions(TypedDict, total=False):
    """Arguments of `Connection.receiver` beside the address; see `ReceiverTerms`."""

    credit: int
    selector: str
    topic: bool | None
    subscription: str
    durable: bool
    shared: bool
    shared_globally: bool
    settled: bool
    confirm: bool
    browse: bool
    priority: int
    no_local: bool
