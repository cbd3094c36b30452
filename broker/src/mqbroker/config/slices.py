"""Options as the rooms see them: one frozen dataclass for each table of `broker.toml`, plain values, no defaults.

Names, types and order mirror the models in `options.py`, which alone know defaults and bounds (a unit test compares
the two). Whoever needs options without a file takes `mqbroker.config.options.defaults()` and `dataclasses.replace`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Table `[node]`. Paths are absolute, their placeholders are filled in."""

    name: str
    data_directory: str
    admin_socket: str
    users_file: str
    stop_timeout_ms: int
    log_format: str


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """One `[[listeners]]` table."""

    name: str
    kind: str
    local_bind_address: str
    port: int
    allow_plaintext: bool
    tls_certificate_file: str
    tls_key_file: str
    tls_client_auth: str
    tls_client_ca_file: str
    tls_user_from: str
    tls_ciphers: str
    tls_handshake_timeout_ms: int
    sasl_mechanisms: tuple[str, ...]
    idle_timeout_ms: int
    login_timeout_ms: int
    max_frame_size_bytes: int
    frame_size_before_open_bytes: int
    connections_max: int
    backlog: int

    @property
    def has_tls(self) -> bool:
        """Whether everything on this listener is encrypted."""
        return bool(self.tls_certificate_file)


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Table `[journal]`."""

    journal_file_size_bytes: int
    journal_sync: bool
    journal_on_damage: str
    journal_compact_min_files: int
    journal_compact_percentage: int
    disk_pending_bytes_max: int


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Table `[limits]`."""

    global_max_size_bytes: int
    max_message_size_bytes: int
    link_credit: int
    sessions_per_connection_max: int
    links_per_session_max: int
    queues_max: int
    consumers_per_queue_max: int


@dataclass(frozen=True, slots=True)
class AddressOptions:
    """Table `[addresses]`."""

    auto_create_queues: bool


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """A whole valid `broker.toml`. Only `app` holds it; a room is given its slice."""

    node: NodeOptions
    listeners: tuple[ListenerOptions, ...]
    journal: JournalOptions
    limits: LimitOptions
    addresses: AddressOptions
