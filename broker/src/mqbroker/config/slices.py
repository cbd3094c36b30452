"""Options as the rooms see them: one frozen dataclass for each table of `broker.toml`, plain values, no defaults.

Made by `make gen` from the models in `options.py`, which alone know defaults and bounds; changes belong there. A unit
stands beside a name that does not say it. Whoever needs options without a file takes
`mqbroker.config.declarations.options.defaults()` and `dataclasses.replace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Table `[node]`."""

    name: str
    data_directory: str
    admin_socket: str
    users_file: str
    cluster_secret_file: str
    stop_timeout_ms: int
    busy_poll_us: int  # µs
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
    anonymous_role: str
    failover_server_list: tuple[str, ...]
    redirect_to: str
    router: str
    anycast_prefix: tuple[str, ...]
    multicast_prefix: tuple[str, ...]
    link_stealing: str
    idle_timeout_ms: int
    login_timeout_ms: int
    max_frame_size_bytes: int
    frame_size_before_open_bytes: int
    frames_per_second_max: int
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
    journal_pool_files: int
    journal_sync: bool
    journal_on_damage: str
    journal_compact_min_files: int
    journal_compact_percentage: int  # percent
    disk_pending_bytes_max: int
    min_disk_free_bytes: int
    persist_id_cache: bool


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Table `[limits]`."""

    global_max_size_bytes: int
    max_message_size_bytes: int
    amqp_min_large_message_size_bytes: int
    large_message_in_memory_max_size_bytes: int
    link_credit: int  # messages
    sessions_per_connection_max: int
    links_per_session_max: int
    queues_max: int
    queues_per_connection_max: int
    queues_per_user_max: int
    addresses_per_connection_max: int
    addresses_per_user_max: int
    consumers_per_queue_max: int
    transaction_timeout_ms: int
    transaction_max_size_bytes: int
    transaction_messages_max: int
    transaction_parts_max: int
    transactions_per_connection_max: int
    transactions_per_connection_max_size_bytes: int


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """All settings of one address, after matching."""

    auto_create_queues: bool
    auto_create_addresses: bool
    auto_delete_queues: bool
    auto_delete_created_queues: bool
    auto_delete_queues_delay: int  # ms
    auto_delete_queues_message_count: int  # messages
    auto_delete_addresses: bool
    auto_delete_addresses_delay: int  # ms
    auto_delete_addresses_skip_usage_check: bool
    default_address_routing_type: str
    default_max_consumers: int
    default_exclusive_queue: bool
    default_last_value_queue: bool
    default_last_value_key: str
    default_non_destructive: bool
    default_ring_size: int  # messages
    default_consumers_before_dispatch: int
    default_delay_before_dispatch: int  # ms
    default_group_rebalance: bool
    default_group_buckets: int
    default_group_first_key: str
    default_purge_on_no_consumers: bool
    dead_letter_address: str
    max_delivery_attempts: int
    auto_create_dead_letter_resources: bool
    dead_letter_queue_prefix: str
    dead_letter_queue_suffix: str
    send_to_dla_on_no_route: bool
    redelivery_delay: int  # ms
    redelivery_delay_multiplier: float
    redelivery_collision_avoidance_factor: float
    max_redelivery_delay: int  # ms
    expiry_address: str
    expiry_delay: int  # ms
    min_expiry_delay: int  # ms
    max_expiry_delay: int  # ms
    auto_create_expiry_resources: bool
    expiry_queue_prefix: str
    expiry_queue_suffix: str
    slow_consumer_threshold: int  # messages
    slow_consumer_threshold_measurement_unit: str
    slow_consumer_policy: str
    slow_consumer_check_period: int  # s
    enable_ingress_timestamp: bool
    retroactive_message_count: int  # messages
    id_cache_size: int  # messages
    id_cache_retention: int  # ms
    max_size_bytes: int
    max_size_messages: int
    address_full_policy: str
    page_limit_bytes: int
    page_limit_messages: int
    page_full_policy: str
    page_size_bytes: int
    config_delete_queues: str
    config_delete_addresses: str
    config_delete_diverts: str
    redirect_to: str
    redistribution_delay: int  # ms


@dataclass(frozen=True, slots=True)
class AddressMatch:
    """One `[[address-settings]]` table: a pattern, and what it says."""

    match: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AddressSettingsOptions:
    """All of these tables, and what holds where none says anything."""

    built_in: AddressSettings
    matches: tuple[AddressMatch, ...]


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """One `[[security-settings]]` table."""

    match: str
    send: tuple[str, ...]
    consume: tuple[str, ...]
    browse: tuple[str, ...]
    create_address: tuple[str, ...]
    create_durable_queue: tuple[str, ...]
    create_non_durable_queue: tuple[str, ...]
    delete_durable_queue: tuple[str, ...]
    delete_non_durable_queue: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """One `[[addresses.anycast]]` or `[[addresses.multicast]]` table. None: it was not said."""

    name: str
    durable: bool
    filter: str
    max_consumers: int | None
    exclusive: bool | None
    last_value: bool | None
    last_value_key: str | None
    non_destructive: bool | None
    ring_size: int | None  # messages
    consumers_before_dispatch: int | None
    delay_before_dispatch: int | None  # ms
    group_rebalance: bool | None
    group_buckets: int | None
    group_first_key: str | None
    purge_on_no_consumers: bool | None


@dataclass(frozen=True, slots=True)
class AddressOptions:
    """One `[[addresses]]` table."""

    name: str
    routing_types: tuple[str, ...]
    anycast: tuple[QueueOptions, ...]
    multicast: tuple[QueueOptions, ...]


@dataclass(frozen=True, slots=True)
class DivertOptions:
    """One `[[diverts]]` table."""

    name: str
    address: str
    forwarding_address: str
    filter: str
    exclusive: bool
    routing_type: str


@dataclass(frozen=True, slots=True)
class ConnectorOptions:
    """One `[[connectors]]` table."""

    name: str
    host: str
    port: int
    tls_enabled: bool


@dataclass(frozen=True, slots=True)
class BroadcastGroupOptions:
    """One `[[broadcast-groups]]` table."""

    name: str
    discovery: str
    local_bind_address: str
    local_bind_port: int
    group_address: str
    group_port: int
    directory: str
    peers: tuple[str, ...]
    broadcast_period: int  # ms
    connector_ref: str
    time_to_live: int


@dataclass(frozen=True, slots=True)
class DiscoveryGroupOptions:
    """One `[[discovery-groups]]` table."""

    name: str
    discovery: str
    local_bind_address: str
    local_bind_port: int
    group_address: str
    group_port: int
    directory: str
    names: tuple[str, ...]
    tls_enabled: bool
    peers: tuple[str, ...]
    poll_period: int  # ms
    refresh_timeout: int  # ms
    initial_wait_timeout: int  # ms


@dataclass(frozen=True, slots=True)
class ClusterConnectionOptions:
    """One `[[cluster-connections]]` table. None: it was not said."""

    name: str
    address: str
    connector_ref: str
    client_connector_ref: str
    discovery_group_ref: str
    static_connectors: tuple[str, ...]
    allow_direct_connections_only: bool
    message_load_balancing: str
    forward_when_no_consumers: bool | None
    max_hops: int
    check_period: int  # ms
    connection_ttl: int  # ms
    call_timeout: int  # ms
    retry_interval: int  # ms
    retry_interval_multiplier: float
    max_retry_interval: int  # ms
    initial_connect_attempts: int
    reconnect_attempts: int
    use_duplicate_detection: bool
    confirmation_window_size: int  # bytes
    notification_interval: int  # ms
    notification_attempts: int
    topology_scanner_attempts: int
    on_node_lost: str
    node_lost_grace: int  # ms


@dataclass(frozen=True, slots=True)
class ConnectionRouterOptions:
    """One `[[connection-routers]]` table."""

    name: str
    key_type: str
    key_filter: str
    local_target_filter: str
    static_connectors: tuple[str, ...]
    discovery_group_ref: str
    cluster_connection: str
    local_target_enabled: bool
    local_connector_ref: str
    check_period: int  # ms
    quorum_size: int
    quorum_timeout: int  # ms
    policy: str
    modulo: int
    cache_timeout: int  # ms
    cache_persisted: bool


@dataclass(frozen=True, slots=True)
class GroupingHandlerOptions:
    """Table `[grouping-handler]`."""

    name: str
    type: str
    address: str
    timeout: int  # ms
    group_timeout: int  # ms
    reaper_period: int  # ms


@dataclass(frozen=True, slots=True)
class ScaleDownOptions:
    """Table `[scale-down]`."""

    enabled: bool
    group_name: str
    connectors: tuple[str, ...]
    discovery_group_ref: str
    commit_interval: int  # messages
    timeout: int  # ms
    heir_timeout: int  # ms


@dataclass(frozen=True, slots=True)
class MetricOptions:
    """Table `[metrics]`."""

    local_bind_address: str
    port: int
    connections_max: int


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """A whole valid `broker.toml`. Only `app` holds it; a room is given its slice."""

    node: NodeOptions
    listeners: tuple[ListenerOptions, ...]
    journal: JournalOptions
    limits: LimitOptions
    address_settings: AddressSettingsOptions
    security_settings: tuple[SecuritySettings, ...]
    addresses: tuple[AddressOptions, ...]
    diverts: tuple[DivertOptions, ...]
    connectors: tuple[ConnectorOptions, ...]
    broadcast_groups: tuple[BroadcastGroupOptions, ...]
    discovery_groups: tuple[DiscoveryGroupOptions, ...]
    cluster_connections: tuple[ClusterConnectionOptions, ...]
    connection_routers: tuple[ConnectionRouterOptions, ...]
    grouping_handler: GroupingHandlerOptions
    scale_down: ScaleDownOptions
    metrics: MetricOptions


# What a running broker takes on reload; all else is read at start only.
RELOADABLE = frozenset({
    "address-settings.auto-create-addresses",
    "address-settings.auto-create-dead-letter-resources",
    "address-settings.auto-create-expiry-resources",
    "address-settings.auto-create-queues",
    "address-settings.auto-delete-addresses",
    "address-settings.auto-delete-addresses-delay",
    "address-settings.auto-delete-addresses-skip-usage-check",
    "address-settings.auto-delete-created-queues",
    "address-settings.auto-delete-queues",
    "address-settings.auto-delete-queues-delay",
    "address-settings.auto-delete-queues-message-count",
    "address-settings.config-delete-addresses",
    "address-settings.config-delete-diverts",
    "address-settings.config-delete-queues",
    "address-settings.dead-letter-address",
    "address-settings.dead-letter-queue-prefix",
    "address-settings.dead-letter-queue-suffix",
    "address-settings.default-address-routing-type",
    "address-settings.default-consumers-before-dispatch",
    "address-settings.default-delay-before-dispatch",
    "address-settings.default-exclusive-queue",
    "address-settings.default-group-buckets",
    "address-settings.default-group-first-key",
    "address-settings.default-group-rebalance",
    "address-settings.default-last-value-key",
    "address-settings.default-last-value-queue",
    "address-settings.default-max-consumers",
    "address-settings.default-non-destructive",
    "address-settings.default-purge-on-no-consumers",
    "address-settings.default-ring-size",
    "address-settings.enable-ingress-timestamp",
    "address-settings.expiry-address",
    "address-settings.expiry-delay",
    "address-settings.expiry-queue-prefix",
    "address-settings.expiry-queue-suffix",
    "address-settings.id-cache-retention",
    "address-settings.id-cache-size",
    "address-settings.match",
    "address-settings.max-delivery-attempts",
    "address-settings.max-expiry-delay",
    "address-settings.max-redelivery-delay",
    "address-settings.min-expiry-delay",
    "address-settings.redelivery-collision-avoidance-factor",
    "address-settings.redelivery-delay",
    "address-settings.redelivery-delay-multiplier",
    "address-settings.redirect-to",
    "address-settings.redistribution-delay",
    "address-settings.retroactive-message-count",
    "address-settings.send-to-dla-on-no-route",
    "address-settings.slow-consumer-check-period",
    "address-settings.slow-consumer-policy",
    "address-settings.slow-consumer-threshold",
    "address-settings.slow-consumer-threshold-measurement-unit",
    "addresses.anycast",
    "addresses.anycast.consumers-before-dispatch",
    "addresses.anycast.delay-before-dispatch",
    "addresses.anycast.durable",
    "addresses.anycast.exclusive",
    "addresses.anycast.filter",
    "addresses.anycast.group-buckets",
    "addresses.anycast.group-first-key",
    "addresses.anycast.group-rebalance",
    "addresses.anycast.last-value",
    "addresses.anycast.last-value-key",
    "addresses.anycast.max-consumers",
    "addresses.anycast.name",
    "addresses.anycast.non-destructive",
    "addresses.anycast.purge-on-no-consumers",
    "addresses.anycast.ring-size",
    "addresses.multicast",
    "addresses.name",
    "addresses.routing-types",
    "diverts.address",
    "diverts.exclusive",
    "diverts.filter",
    "diverts.forwarding-address",
    "diverts.name",
    "diverts.routing-type",
    "limits.addresses-per-connection-max",
    "limits.addresses-per-user-max",
    "limits.queues-per-connection-max",
    "limits.queues-per-user-max",
    "listeners.connections-max",
    "listeners.tls-certificate-file",
    "listeners.tls-ciphers",
    "listeners.tls-client-auth",
    "listeners.tls-client-ca-file",
    "listeners.tls-handshake-timeout-ms",
    "listeners.tls-key-file",
    "metrics.connections-max",
    "node.log-format",
    "node.stop-timeout-ms",
    "security-settings.browse",
    "security-settings.consume",
    "security-settings.create-address",
    "security-settings.create-durable-queue",
    "security-settings.create-non-durable-queue",
    "security-settings.delete-durable-queue",
    "security-settings.delete-non-durable-queue",
    "security-settings.match",
    "security-settings.send",
})  # fmt: skip
