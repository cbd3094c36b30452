"""Every option of `broker.toml`, declared once: type, default, bounds, unit, what a change needs, one sentence.

Everything else about options is derived from these models: loading, the reference, the JSON schema, the variables of
the role. Names have hyphens in TOML and underscores in Python and YAML; there is no other mapping. An option stands
here only if this release honours it, and each has a test that changes behaviour by it (tests/contract).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mqbroker.config import patterns
from mqbroker.config.declaring import (
    GIB,
    KIB,
    MIB,
    AbsolutePath,
    IpAddress,
    NodeName,
    OptionalPath,
    OptionalPlace,
    Places,
    Prefix,
    Roles,
    SaslMechanisms,
    Table,
    option,
    setting,
)
from mqbroker.config.slices import (
    AddressMatch,
    AddressSettings,
    AddressSettingsOptions,
    BrokerOptions,
    DivertOptions,
    JournalOptions,
    LimitOptions,
    ListenerOptions,
    MetricOptions,
    NodeOptions,
    SecuritySettings,
)


class NodeTable(Table):
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
    stop_timeout_ms: int = option(
        10_000,
        "Time that a graceful stop may take before the process ends at once.",
        unit="ms",
        reload=True,
        ge=100,
        le=600_000,
    )
    log_format: Literal["text", "json"] = option("text", "Form of the log lines on standard error.", reload=True)


class ListenerTable(Table):
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
    sasl_mechanisms: SaslMechanisms = option(
        ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"],
        "SASL mechanisms that are offered; ANONYMOUS lets everybody in without a password, EXTERNAL whom a verified "
        "client certificate names.",
    )
    anonymous_role: Annotated[str, Field(pattern=patterns.OPTIONAL_ROLE)] = option(
        "", "Role of those who log in by ANONYMOUS, for the permissions of security settings; empty means none."
    )
    failover_server_list: Places = option(
        [], "Other brokers, each as `host:port`, that clients are told of for the case that this one is gone."
    )
    redirect_to: OptionalPlace = option(
        "", "Broker, as `host:port`, that clients of this listener are sent to when they have logged in; for moves."
    )
    anycast_prefix: Prefix = option("", "Beginning of names that ask for a queue, as `queue://` does; empty: none.")
    multicast_prefix: Prefix = option("", "Beginning of names that ask for a topic, as `topic://` does; empty: none.")
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
    connections_max: int = option(
        10_000, "Connections at the same time; further ones are closed at once.", reload=True, ge=1, le=1_000_000
    )
    backlog: int = option(1024, "Connections that may wait in the kernel to be accepted.", ge=1, le=65535)


class JournalTable(Table):
    """Durable storage on this host's disk."""

    journal_file_size_bytes: int = option(
        10 * MIB,
        "Size of a journal file; a larger write gets a file of its own.",
        unit="bytes",
        ge=64 * KIB,
        le=1 * GIB,
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
    persist_id_cache: bool = option(
        True, "Keep the ids of duplicate detection on disk, so that they outlive the process; see id-cache-size."
    )


class LimitTable(Table):
    """Bounds of memory and of counts."""

    global_max_size_bytes: int = option(
        256 * MIB,
        "Memory for messages of all queues; at this size publishers get no credit.",
        unit="bytes",
        ge=MIB,
        le=1024 * GIB,
    )
    max_message_size_bytes: int = option(
        100 * MIB,
        "Largest message that is accepted; it is announced on every link.",
        unit="bytes",
        ge=1 * KIB,
        le=4 * GIB,
    )
    amqp_min_large_message_size_bytes: int = option(
        100 * KIB,
        "Size above which a message is kept in a file instead of in memory, unless a transaction holds it; -1: never.",
        unit="bytes",
        ge=-1,
        le=4 * GIB,
    )
    link_credit: int = option(2000, "Credit that a publisher is given on a link.", unit="messages", ge=1, le=1_000_000)
    sessions_per_connection_max: int = option(256, "Sessions that one connection may begin.", ge=1, le=65536)
    links_per_session_max: int = option(1024, "Links that one session may attach.", ge=1, le=1_000_000)
    queues_max: int = option(100_000, "Queues of this node.", ge=1, le=10_000_000)
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


FullPolicy = Literal["DROP", "FAIL", "BLOCK", "PAGE"]
RateUnit = Literal["MESSAGES_PER_SECOND", "MESSAGES_PER_MINUTE", "MESSAGES_PER_HOUR", "MESSAGES_PER_DAY"]
RoutingType = Literal["ANYCAST", "MULTICAST"]
Name = Annotated[str, Field(max_length=1024)]
FullName = Annotated[str, Field(min_length=1, max_length=1024)]
LONG_MS = 10 * 365 * 86_400_000


class AddressSettingsTable(Table):
    """What holds at the addresses that match. The table may be repeated: option by option the most specific match wins.

    Words of an address are separated by dots; `*` stands for one word, `#` for any number of them.
    """

    match: str = option(
        ..., "Address, or pattern of addresses, that the settings are for.", reload=True, min_length=1, max_length=1024
    )
    auto_create_queues: bool | None = setting(
        True, "Create a queue when somebody sends to or receives from an address that has none; else refuse."
    )
    auto_create_addresses: bool | None = setting(True, "Make an address that is not there for those who use it.")
    auto_delete_queues: bool | None = setting(
        True, "Delete queues that were created by themselves once they have been used, are idle and are empty."
    )
    auto_delete_queues_delay: int | None = setting(0, "Time that it must have been idle.", unit="ms", ge=0, le=LONG_MS)
    auto_delete_queues_message_count: int | None = setting(
        0, "Messages that such a queue may still hold; -1: any number.", unit="messages", ge=-1, le=2**40
    )
    auto_delete_addresses: bool | None = setting(
        True, "Delete addresses that have no queue any more, and no producer where they gave copies."
    )
    auto_delete_addresses_delay: int | None = setting(
        0, "Time that such an address must have been unused.", unit="ms", ge=0, le=LONG_MS
    )
    auto_delete_addresses_skip_usage_check: bool | None = setting(False, "Delete also those that never had a queue.")
    default_address_routing_type: RoutingType | None = setting(
        "ANYCAST", "Routing type where a client does not say: ANYCAST shares messages, MULTICAST copies them."
    )
    default_max_consumers: int | None = setting(-1, "Consumers of one queue; -1: no bound.", ge=-1, le=1_000_000)
    default_exclusive_queue: bool | None = setting(False, "One consumer gets all messages, the others stand by.")
    default_last_value_queue: bool | None = setting(False, "Keep only the last message of each `_AMQ_LVQ_NAME`.")
    default_last_value_key: Name | None = setting(
        "", "Property by which last-value queues tell messages apart instead; naming one makes such queues."
    )
    default_non_destructive: bool | None = setting(
        False, "Consumers get copies; messages leave by expiry, replacement or administration alone."
    )
    default_ring_size: int | None = setting(
        -1, "Messages that a queue keeps, older ones make room; -1: no bound.", unit="messages", ge=-1, le=2**40
    )
    default_consumers_before_dispatch: int | None = setting(
        0, "Consumers that must be there before the first message is handed out.", ge=0, le=1_000_000
    )
    default_delay_before_dispatch: int | None = setting(
        -1, "Time to wait for them, from the first consumer on; -1: for ever.", unit="ms", ge=-1, le=LONG_MS
    )
    default_group_rebalance: bool | None = setting(False, "Groups find their consumers anew when one more comes.")
    default_group_buckets: int | None = setting(
        -1, "Number of classes that groups are put into, to bound memory; -1: each group for itself.", ge=-1, le=65536
    )
    default_group_first_key: Name | None = setting(
        "", "Property that is set to true on the first message of a group that a consumer gets; empty: none."
    )
    default_purge_on_no_consumers: bool | None = setting(False, "Drop what is in a queue as its last consumer leaves.")
    dead_letter_address: Name | None = setting(
        "", "Address for messages that could not be delivered or were rejected; without one they are dropped."
    )
    max_delivery_attempts: int | None = setting(
        10, "Deliveries in vain that make a dead letter; -1: no bound.", ge=-1, le=1_000_000
    )
    auto_create_dead_letter_resources: bool | None = setting(
        False, "Keep the dead letters of each address in a queue of their own at the dead-letter address."
    )
    dead_letter_queue_prefix: Name | None = setting("DLQ.", "What the names of those queues begin with.")
    dead_letter_queue_suffix: Name | None = setting("", "What they end with.")
    redelivery_delay: int | None = setting(0, "Time before a message is delivered again.", unit="ms", ge=0, le=LONG_MS)
    redelivery_delay_multiplier: float | None = setting(
        1.0, "Factor by which that time grows with each delivery in vain.", ge=1.0, le=100.0
    )
    redelivery_collision_avoidance_factor: float | None = setting(
        0.0, "Share by which that time varies, so that messages do not come back together.", ge=0.0, le=1.0
    )
    max_redelivery_delay: int | None = setting(
        0, "Its upper bound; 0: ten times the delay.", unit="ms", ge=0, le=LONG_MS
    )
    expiry_address: Name | None = setting("", "Address for expired messages; without one they are dropped.")
    expiry_delay: int | None = setting(-1, "Time to live where none is said; -1: none.", unit="ms", ge=-1, le=LONG_MS)
    min_expiry_delay: int | None = setting(-1, "Shortest time to live; -1: no bound.", unit="ms", ge=-1, le=LONG_MS)
    max_expiry_delay: int | None = setting(-1, "Longest time to live; -1: no bound.", unit="ms", ge=-1, le=LONG_MS)
    auto_create_expiry_resources: bool | None = setting(
        False, "Keep the expired messages of each address in a queue of their own at the expiry address."
    )
    expiry_queue_prefix: Name | None = setting("EXP.", "What the names of those queues begin with.")
    expiry_queue_suffix: Name | None = setting("", "What they end with.")
    slow_consumer_threshold: int | None = setting(
        -1, "Messages that a consumer should at least settle in a unit of time while messages wait; -1: any number.",
        unit="messages", ge=-1, le=2**40,
    )  # fmt: skip
    slow_consumer_threshold_measurement_unit: RateUnit | None = setting(
        "MESSAGES_PER_SECOND", "Unit of slow-consumer-threshold."
    )
    slow_consumer_policy: Literal["KILL", "NOTIFY"] | None = setting(
        "NOTIFY", "What happens to a slow consumer: its connection is closed (KILL), or the log and events tell of it."
    )
    slow_consumer_check_period: int | None = setting(
        5, "Time between two looks at the consumers of a queue.", unit="s", ge=1, le=86_400
    )
    id_cache_size: int | None = setting(
        20_000,
        "Ids (`_AMQ_DUPL_ID`) that an address remembers: a message with one of them is accepted and dropped; 0: none.",
        unit="messages",
        ge=0,
        le=1_000_000,
    )
    max_size_bytes: int | None = setting(
        -1,
        "Bytes of messages in the queues of an address above which it is full; -1: no bound.",
        unit="bytes",
        ge=-1,
        le=2**50,
        reload=False,
    )
    max_size_messages: int | None = setting(
        -1,
        "Messages in the queues of an address above which it is full; -1: no bound.",
        unit="messages",
        ge=-1,
        le=2**40,
        reload=False,
    )
    address_full_policy: FullPolicy | None = setting(
        "BLOCK",
        "What happens at a full address: BLOCK gives producers no credit, FAIL rejects, DROP accepts and drops, "
        "PAGE keeps on disk what is too much, also where `global-max-size-bytes` is reached.",
        reload=False,
    )
    page_size_bytes: int | None = setting(
        10 * 2**20,
        "Bytes of messages that are read back together where an address pages; at most a quarter of its bounds.",
        unit="bytes",
        ge=1024,
        le=2**30,
        reload=False,
    )
    redirect_to: OptionalPlace | None = setting("", "Broker, as `host:port`, that links to the address are sent to.")


class SecuritySettingsTable(Table):
    """Roles that may do something at the addresses that match. The table may be repeated: the most specific match wins.

    It holds as a whole, nothing is added from others. Without any table everybody who is logged in may do everything.
    """

    match: str = option(
        ..., "Address, or pattern of addresses, that the permissions are for.", min_length=1, max_length=1024
    )
    send: Roles = option([], "Roles that may send to matching addresses.")
    consume: Roles = option([], "Roles that may consume from queues of matching addresses.")
    browse: Roles = option([], "Roles that may browse queues of matching addresses.")
    create_address: Roles = option([], "Roles that may have matching addresses made by using them.")
    create_durable_queue: Roles = option([], "Roles that may have durable queues made at matching addresses.")
    create_non_durable_queue: Roles = option([], "Roles that may have queues made there that are not durable.")
    delete_durable_queue: Roles = option([], "Roles that may end durable subscriptions of matching addresses.")
    delete_non_durable_queue: Roles = option([], "Roles that may replace subscriptions there that are not durable.")


class DivertTable(Table):
    """Messages of an address that go to another as well, or instead. The table may be repeated."""

    name: NodeName = option(..., "Name of the divert, distinct within the file.")
    address: FullName = option(..., "Address whose messages are diverted.")
    forwarding_address: FullName = option(..., "Address that they go to.")
    filter: str = option("", "Selector: only messages that match are diverted; empty means all.", max_length=4096)
    exclusive: bool = option(False, "Messages that are diverted do not stay at their address.")
    routing_type: Literal["STRIP", "PASS", "ANYCAST", "MULTICAST"] = option(
        "STRIP", "Queues of the forwarding address that are reached: those of one routing type, or (STRIP, PASS) all."
    )


class MetricTable(Table):
    """Metrics and health over HTTP. They show names and numbers, never messages; whoever reaches the port is served."""

    local_bind_address: IpAddress = option(
        "127.0.0.1", "IP address of this host that metrics and health are served on."
    )
    port: int = option(0, "TCP port of metrics and health; 0 serves neither.", ge=0, le=65535)
    connections_max: int = option(
        32, "HTTP connections at the same time; further ones are answered with 503.", reload=True, ge=1, le=1000
    )


class BrokerFile(Table):
    """A whole `broker.toml`."""

    node: NodeTable = Field(default_factory=NodeTable)
    listeners: list[ListenerTable] = Field(default_factory=list, max_length=64)
    journal: JournalTable = Field(default_factory=JournalTable)
    limits: LimitTable = Field(default_factory=LimitTable)
    address_settings: list[AddressSettingsTable] = Field(default_factory=list, max_length=10_000)
    security_settings: list[SecuritySettingsTable] = Field(default_factory=list, max_length=10_000)
    diverts: list[DivertTable] = Field(default_factory=list, max_length=10_000)
    metrics: MetricTable = Field(default_factory=MetricTable)


def _node_slice(table: NodeTable) -> NodeOptions:
    values = table.model_dump()
    for name in ("data_directory", "admin_socket", "users_file"):
        filled = values[name].replace("{name}", table.name)
        values[name] = filled.replace("{data-directory}", values["data_directory"])
    return NodeOptions(**values)


def _listener_slice(table: ListenerTable) -> ListenerOptions:
    values = table.model_dump()
    for name in ("sasl_mechanisms", "failover_server_list"):
        values[name] = tuple(values[name])
    return ListenerOptions(**values)


def built_in_settings() -> AddressSettings:
    """What holds at an address that no match says anything of."""
    values = {}
    for name, info in AddressSettingsTable.model_fields.items():
        if isinstance(info.json_schema_extra, dict) and "built_in" in info.json_schema_extra:
            values[name] = info.json_schema_extra["built_in"]
    return AddressSettings(**values)  # type: ignore[arg-type]  # a unit test compares names and types


def _settings_slice(tables: list[AddressSettingsTable]) -> AddressSettingsOptions:
    matches = [AddressMatch(table.match, table.model_dump(exclude={"match"}, exclude_none=True)) for table in tables]
    return AddressSettingsOptions(built_in_settings(), tuple(matches))


def _security_slice(table: SecuritySettingsTable) -> SecuritySettings:
    values = table.model_dump()
    return SecuritySettings(values.pop("match"), **{name: tuple(roles) for name, roles in values.items()})


def to_slices(file: BrokerFile) -> BrokerOptions:
    """Plain dataclasses for the rooms, placeholders of paths filled in."""
    return BrokerOptions(
        node=_node_slice(file.node),
        listeners=tuple(_listener_slice(table) for table in file.listeners),
        journal=JournalOptions(**file.journal.model_dump()),
        limits=LimitOptions(**file.limits.model_dump()),
        address_settings=_settings_slice(file.address_settings),
        security_settings=tuple(_security_slice(table) for table in file.security_settings),
        diverts=tuple(DivertOptions(**table.model_dump()) for table in file.diverts),
        metrics=MetricOptions(**file.metrics.model_dump()),
    )


def defaults() -> BrokerOptions:
    """What an empty `broker.toml` means: no listener at all, everything else at its default."""
    return to_slices(BrokerFile())


def default_listener(name: str = "clients", port: int = 5672) -> ListenerOptions:
    """A listener with nothing but its name and port given."""
    return _listener_slice(ListenerTable.model_validate({"name": name, "port": port}))
