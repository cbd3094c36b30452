"""Every option of `broker.toml`, declared once: type, default, bounds, unit, what a change needs, one sentence.

Everything else about options is derived from these models: loading, the slices that rooms get, the reference, the JSON
schema, the variables of the role. Names have hyphens in TOML and underscores in Python and YAML; there is no other
mapping. An option stands here only if this release honours it, and each has a test that changes behaviour by it
(tests/contract).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mqbroker.config import patterns
from mqbroker.config.declarations import cluster_connections as connections
from mqbroker.config.declarations import clustering, routing
from mqbroker.config.declarations.address_options import (
    AddressSettingsTable,
    AddressTable,
    DivertTable,
    SecuritySettingsTable,
)
from mqbroker.config.declarations.declaration import (
    GIB,
    KIB,
    MIB,
    AbsolutePath,
    IpAddress,
    NodeName,
    OptionalPath,
    OptionalPlace,
    OptionTable,
    PlaceList,
    PrefixList,
    SaslMechanismList,
    option,
)
from mqbroker.config.declarations.grouping import GroupingHandlerTable
from mqbroker.config.declarations.monitoring import MetricTable
from mqbroker.config.declarations.scale_down import ScaleDownTable
from mqbroker.config.declarations.table_slices import slice_of
from mqbroker.config.slices import (
    AddressMatch,
    AddressSettings,
    AddressSettingsOptions,
    BrokerOptions,
    ListenerOptions,
    NodeOptions,
)


class NodeTable(OptionTable):
    """The process itself: its name and its places in the file system."""

    name: NodeName = option("default", "Name of this node in logs, in status output and as its AMQP container id.")
    data_directory: AbsolutePath = option(
        "/var/lib/mq/{name}", "Absolute path of the directory that holds the identity and the journal of this node."
    )
    admin_socket: AbsolutePath = option(
        "/run/mq/{name}/admin.sock", "Absolute path of the Unix socket that administration goes through."
    )
    users_file: AbsolutePath = option(
        "{data-directory}/users.json", "Absolute path of the file of users, kept by `mqbroker users`."
    )
    cluster_secret_file: AbsolutePath = option(
        "{data-directory}/cluster-secret",
        "Absolute path of the file of the cluster's secret, kept by `mqbroker secret`; read where there are "
        "broadcast groups, discovery groups or cluster connections.",
    )
    stop_timeout_ms: int = option(
        10_000,
        "Time that a graceful stop may take before the process ends at once.",
        unit="ms",
        reload=True,
        ge=100,
        le=600_000,
    )
    busy_poll_us: int = option(
        100,
        "Time for which the broker looks for what comes next before it sleeps, while clients send again as soon as "
        "they are answered; 0: it sleeps at once, which saves processor time and makes each answer later.",
        unit="µs",
        ge=0,
        le=10_000,
    )
    log_format: Literal["text", "json"] = option("text", "Form of the log lines on standard error.", reload=True)


class ListenerTable(OptionTable):
    """A socket that the broker accepts connections on. The table may be repeated."""

    name: NodeName = option(..., "Name of the listener in logs and errors, distinct within the file.")
    kind: Literal["client", "cluster"] = option(
        "client",
        "Whom it serves: users with the role cluster log in on cluster listeners only, all others never there.",
    )
    local_bind_address: IpAddress = option("127.0.0.1", "IP address of this host that the listener is bound to.")
    port: int = option(..., "TCP port of the listener.", ge=1, le=65535)
    allow_plaintext: bool = option(
        False, "Allow an address beyond loopback although nothing on this listener is encrypted."
    )
    tls_certificate_file: OptionalPath = option(
        "",
        "PEM file with the certificate of the listener and the CA certificates in between; it turns TLS on.",
        reload=True,
    )
    tls_key_file: OptionalPath = option(
        "", "PEM file with the private key of the certificate, not encrypted.", reload=True
    )
    tls_client_auth: Literal["none", "optional", "required"] = option(
        "none", "Whether clients are asked for a certificate, and whether one without is let in.", reload=True
    )
    tls_client_ca_file: OptionalPath = option(
        "", "PEM file with the CA certificates that certificates of clients are checked against.", reload=True
    )
    tls_user_from: Literal["common-name", "subject-alternative-name"] = option(
        "common-name", "What in a client's certificate is the name of the user that EXTERNAL lets in."
    )
    tls_ciphers: Annotated[str, Field(pattern=patterns.CIPHERS, max_length=2000)] = option(
        "", "Ciphers of TLS 1.2 in OpenSSL's notation; empty means those that OpenSSL prefers.", reload=True
    )
    tls_handshake_timeout_ms: int = option(
        5_000, "Time that a peer has for its TLS handshake.", unit="ms", reload=True, ge=100, le=600_000
    )
    sasl_mechanisms: SaslMechanismList = option(
        ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"],
        "SASL mechanisms that are offered; ANONYMOUS lets everybody in without a password, EXTERNAL whom a verified "
        "client certificate names.",
    )
    anonymous_role: Annotated[str, Field(pattern=patterns.OPTIONAL_ROLE)] = option(
        "", "Role of those who log in by ANONYMOUS, for the permissions of security settings; empty means none."
    )
    failover_server_list: PlaceList = option(
        [],
        "Other brokers, each as `host:port`, that clients are told of for the case that this one is gone; empty: "
        "members of the cluster that have client-connector-ref.",
    )
    redirect_to: OptionalPlace = option(
        "", "Broker, as `host:port`, that clients of this listener are sent to when they have logged in; for moves."
    )
    router: routing.OptionalName = option(
        "", "Name of the connection router that says which broker the clients of this listener are sent to."
    )
    anycast_prefix: PrefixList = option(
        [], "Beginnings of names that ask for a queue, as `queue://` does; or one text, with commas between several."
    )
    multicast_prefix: PrefixList = option(
        [], "Beginnings of names that ask for a topic, as `topic://` does; or one text, with commas between several."
    )
    link_stealing: Literal["none", "durable", "all"] = option(
        "durable",
        "Links that end where they are when their container attaches them by the same name in another session or "
        "connection: those whose terminus is durable, as AMQP says all, or none.",
    )
    idle_timeout_ms: int = option(
        60_000,
        "Silence after which a peer counts as gone; it is announced to the peer.",
        unit="ms",
        ge=100,
        le=3_600_000,
    )
    login_timeout_ms: int = option(
        10_000, "Time that a peer has from its connection to its open.", unit="ms", ge=100, le=600_000
    )
    max_frame_size_bytes: int = option(
        64 * KIB, "Largest AMQP frame that is accepted once a connection is open.", unit="bytes", ge=512, le=16 * MIB
    )
    frame_size_before_open_bytes: int = option(
        4 * KIB, "Largest frame that is accepted before a connection is open.", unit="bytes", ge=512, le=64 * KIB
    )
    frames_per_second_max: int = option(
        0,
        "Frames that one connection may send in a second; who sends more is not read for so long; 0: any.",
        ge=0,
        le=100_000_000,
    )
    connections_max: int = option(
        10_000, "Connections at the same time; further ones are closed at once.", reload=True, ge=1, le=1_000_000
    )
    backlog: int = option(1024, "Connections that may wait in the kernel to be accepted.", ge=1, le=65535)


class JournalTable(OptionTable):
    """Durable storage on this host's disk."""

    journal_file_size_bytes: int = option(
        10 * MIB,
        "Size of a journal file; a larger write gets a file of its own.",
        unit="bytes",
        ge=64 * KIB,
        le=1 * GIB,
    )
    journal_pool_files: int = option(
        32,
        "Journal files that are kept, once they are no longer needed, to be used again; 0: none. They are given back "
        "when room on the disk gets scarce (min-disk-free-bytes).",
        ge=0,
        le=1000,
    )
    journal_sync: bool = option(
        True, "Wait for the disk before a durable message is acknowledged; without it a power cut loses messages."
    )
    journal_on_damage: Literal["stop", "truncate"] = option(
        "stop", "What to do at start when the journal is damaged in its middle: stop, or drop all from there on."
    )
    journal_compact_min_files: int = option(
        10, "Journal files that there must be before compaction starts; 0 turns it off.", ge=0, le=100_000
    )
    journal_compact_percentage: int = option(
        30, "Compaction starts when less than this share of the journal is still needed.", unit="percent", ge=1, le=100
    )
    disk_pending_bytes_max: int = option(
        16 * MIB,
        "Bytes on their way to the disk above which publishers are held back.",
        unit="bytes",
        ge=64 * KIB,
        le=GIB,
    )
    min_disk_free_bytes: int = option(
        256 * MIB,
        "Free bytes of the journal's file system below which no messages are taken in; 0 turns it off.",
        unit="bytes",
        ge=0,
        le=2**50,
    )
    persist_id_cache: bool = option(
        True, "Keep the ids of duplicate detection on disk, so that they outlive the process; see id-cache-size."
    )


class LimitTable(OptionTable):
    """Bounds of memory and of counts."""

    global_max_size_bytes: int = option(
        256 * MIB,
        "Memory for messages of all queues; at this size addresses page, or publishers get no credit.",
        unit="bytes",
        ge=MIB,
        le=1024 * GIB,
    )
    max_message_size_bytes: int = option(
        100 * MIB, "Largest message that is accepted; it is announced on every link.", unit="bytes", ge=KIB, le=4 * GIB
    )
    amqp_min_large_message_size_bytes: int = option(
        100 * KIB,
        "Size above which a message may go into a file, unless a transaction holds it; -1: never.",
        unit="bytes",
        ge=-1,
        le=4 * GIB,
    )
    large_message_in_memory_max_size_bytes: int = option(
        MIB, "Large messages up to this size stay in memory while half of it is free.", unit="bytes", ge=0, le=GIB
    )
    link_credit: int = option(2000, "Credit that a publisher is given on a link.", unit="messages", ge=1, le=1_000_000)
    sessions_per_connection_max: int = option(256, "Sessions that one connection may begin.", ge=1, le=65536)
    links_per_session_max: int = option(
        1024,
        "Links that one session may attach; one of another node as many as queues-max, if that is more.",
        ge=1,
        le=1_000_000,
    )
    queues_max: int = option(100_000, "Queues of this node.", ge=1, le=10_000_000)
    queues_per_connection_max: int = option(
        10_000,
        "Queues that one connection may have made and that are there, temporary ones too; -1: as queues-max says.",
        reload=True,
        ge=-1,
        le=10_000_000,
    )
    queues_per_user_max: int = option(
        -1,
        "Queues that all connections of one user may have made and that are there, over restarts; -1: as queues-max "
        "says.",
        reload=True,
        ge=-1,
        le=10_000_000,
    )
    addresses_per_connection_max: int = option(
        10_000,
        "Addresses that one connection may have made and that are there; -1: as queues-max says.",
        reload=True,
        ge=-1,
        le=10_000_000,
    )
    addresses_per_user_max: int = option(
        -1,
        "Addresses that all connections of one user may have made and that are there; -1: as queues-max says.",
        reload=True,
        ge=-1,
        le=10_000_000,
    )
    consumers_per_queue_max: int = option(1000, "Consumers of one queue.", ge=1, le=1_000_000)
    transaction_timeout_ms: int = option(
        300_000,
        "Time from declaring a transaction to its commit; one that takes longer is rolled back.",
        unit="ms",
        ge=1,
        le=86_400_000,
    )
    transaction_max_size_bytes: int = option(
        64 * MIB,
        "Messages published in one transaction that is not committed yet; one with more can only be rolled back.",
        unit="bytes",
        ge=1 * KIB,
        le=1 * GIB,
    )
    transaction_messages_max: int = option(
        50_000,
        "Messages published in one transaction; one with more can only be rolled back. A commit is done in one go.",
        ge=1,
        le=1_000_000,
    )
    transaction_parts_max: int = option(
        2_000,
        "Parts of one transaction; one with more can only be rolled back. A commit is done in one go, in which "
        "everybody else waits some 10 µs for each. Up to 256 messages in a row for one address, with the same header "
        "and without expiry, group, delay, key or duplicate id, are one part; any other message is one, and so is a "
        "range of acknowledgements. Ten copies of a part over diverts or for addresses with wildcards, or eighty "
        "queues that get one, are a part more.",
        ge=1,
        le=50_000,
    )
    transactions_per_connection_max: int = option(
        100, "Transactions that one connection may have open at once.", ge=1, le=100_000
    )
    transactions_per_connection_max_size_bytes: int = option(
        128 * MIB,
        "Messages published in all open transactions of one connection; one that goes beyond can only be rolled back.",
        unit="bytes",
        ge=1 * KIB,
        le=16 * GIB,
    )


class BrokerFile(OptionTable):
    """A whole `broker.toml`."""

    node: NodeTable = Field(default_factory=NodeTable)
    listeners: list[ListenerTable] = Field(default_factory=list, max_length=64)
    journal: JournalTable = Field(default_factory=JournalTable)
    limits: LimitTable = Field(default_factory=LimitTable)
    address_settings: list[AddressSettingsTable] = Field(default_factory=list, max_length=10_000)
    security_settings: list[SecuritySettingsTable] = Field(default_factory=list, max_length=10_000)
    addresses: list[AddressTable] = Field(default_factory=list, max_length=10_000)
    diverts: list[DivertTable] = Field(default_factory=list, max_length=10_000)
    connectors: list[clustering.ConnectorTable] = Field(default_factory=list, max_length=64)
    broadcast_groups: list[clustering.BroadcastGroupTable] = Field(default_factory=list, max_length=16)
    discovery_groups: list[clustering.DiscoveryGroupTable] = Field(default_factory=list, max_length=16)
    cluster_connections: list[connections.ClusterConnectionTable] = Field(default_factory=list, max_length=16)
    connection_routers: list[routing.ConnectionRouterTable] = Field(default_factory=list, max_length=64)
    grouping_handler: GroupingHandlerTable = Field(default_factory=GroupingHandlerTable)
    scale_down: ScaleDownTable = Field(default_factory=ScaleDownTable)
    metrics: MetricTable = Field(default_factory=MetricTable)


def _node_slice(table: NodeTable) -> NodeOptions:
    filled = {"name": table.name}
    for name in ("data_directory", "admin_socket", "users_file", "cluster_secret_file"):
        value = str(getattr(table, name)).replace("{name}", table.name)
        filled[name] = value.replace("{data-directory}", filled.get("data_directory", value))
    node: NodeOptions = slice_of(table, **filled)
    return node


def built_in_settings() -> AddressSettings:
    """What holds at an address that no match says anything of."""
    values = {}
    for name, info in AddressSettingsTable.model_fields.items():
        if isinstance(info.json_schema_extra, dict) and "built_in" in info.json_schema_extra:
            values[name] = info.json_schema_extra["built_in"]
    return AddressSettings(**values)  # type: ignore[arg-type]  # both are made from the same declarations


def _settings_slice(tables: list[AddressSettingsTable]) -> AddressSettingsOptions:
    matches = [AddressMatch(table.match, table.model_dump(exclude={"match"}, exclude_none=True)) for table in tables]
    return AddressSettingsOptions(built_in_settings(), tuple(matches))


def to_slices(file: BrokerFile) -> BrokerOptions:
    """Plain dataclasses for the rooms, placeholders of paths filled in."""
    whole: BrokerOptions = slice_of(
        file,
        node=_node_slice(file.node),
        address_settings=_settings_slice(file.address_settings),
        cluster_connections=tuple(map(connections.cluster_connection, file.cluster_connections)),
    )
    return whole


def defaults() -> BrokerOptions:
    """What an empty `broker.toml` means: no listener at all, everything else at its default."""
    return to_slices(BrokerFile())


def default_listener(name: str = "clients", port: int = 5672) -> ListenerOptions:
    """A listener with nothing but its name and port given."""
    listener: ListenerOptions = slice_of(ListenerTable.model_validate({"name": name, "port": port}))
    return listener
