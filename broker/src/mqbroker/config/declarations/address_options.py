"""Options of addresses: what holds for the messages at those that match, who may do what there, and diverts.

Declared as those in options.py are.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from mqbroker.config.declarations.declaration import (
    NodeName,
    OptionalPlace,
    OptionTable,
    Roles,
    distinct,
    option,
    qualified,
    setting,
)

FullPolicy = Literal["DROP", "FAIL", "BLOCK", "PAGE"]
RateUnit = Literal["MESSAGES_PER_SECOND", "MESSAGES_PER_MINUTE", "MESSAGES_PER_HOUR", "MESSAGES_PER_DAY"]
RoutingType = Literal["ANYCAST", "MULTICAST"]
RoutingTypes = Annotated[list[RoutingType], Field(max_length=2), AfterValidator(distinct)]
Deletion = Literal["OFF", "FORCE"]
EntityName = Annotated[str, Field(max_length=1024)]
FullName = Annotated[str, Field(min_length=1, max_length=1024)]
TargetName = Annotated[EntityName, AfterValidator(qualified)]
FullTargetName = Annotated[FullName, AfterValidator(qualified)]
LONG_MS = 10 * 365 * 86_400_000


class AddressSettingsTable(OptionTable):
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
    auto_delete_created_queues: bool | None = setting(
        False, "The same of queues that somebody made, durable subscriptions among them, but not of declared ones."
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
    auto_delete_addresses_skip_usage_check: bool | None = setting(
        True, "Delete also those that never had a queue, to which somebody only sent; Artemis keeps them."
    )
    default_address_routing_type: RoutingType | None = setting(
        "ANYCAST", "Routing type where a client does not say: ANYCAST shares messages, MULTICAST copies them."
    )
    default_max_consumers: int | None = setting(-1, "Consumers of one queue; -1: no bound.", ge=-1, le=1_000_000)
    default_exclusive_queue: bool | None = setting(False, "One consumer gets all messages, the others stand by.")
    default_last_value_queue: bool | None = setting(False, "Keep only the last message of each `_AMQ_LVQ_NAME`.")
    default_last_value_key: EntityName | None = setting(
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
    default_group_first_key: EntityName | None = setting(
        "", "Property that is set to true on the first message of a group that a consumer gets; empty: none."
    )
    default_purge_on_no_consumers: bool | None = setting(
        False,
        "Drop what is in a queue as its last consumer leaves. That goes piece by piece: where the process is killed "
        "meanwhile, the rest is there again.",
    )
    dead_letter_address: TargetName | None = setting(
        "",
        "Address, or `address::queue`, for messages that could not be delivered or were rejected; without one they are "
        "dropped.",
    )
    max_delivery_attempts: int | None = setting(
        10, "Deliveries in vain that make a dead letter; -1: no bound.", ge=-1, le=1_000_000
    )
    auto_create_dead_letter_resources: bool | None = setting(
        False, "Keep the dead letters of each address in a queue of their own at the dead-letter address."
    )
    dead_letter_queue_prefix: EntityName | None = setting("DLQ.", "What the names of those queues begin with.")
    dead_letter_queue_suffix: EntityName | None = setting("", "What they end with.")
    send_to_dla_on_no_route: bool | None = setting(
        False, "Send messages that reach no queue of their address to the dead-letter address, else they are dropped."
    )
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
    expiry_address: TargetName | None = setting(
        "", "Address, or `address::queue`, for expired messages; without one they are dropped."
    )
    expiry_delay: int | None = setting(-1, "Time to live where none is said; -1: none.", unit="ms", ge=-1, le=LONG_MS)
    min_expiry_delay: int | None = setting(-1, "Shortest time to live; -1: no bound.", unit="ms", ge=-1, le=LONG_MS)
    max_expiry_delay: int | None = setting(-1, "Longest time to live; -1: no bound.", unit="ms", ge=-1, le=LONG_MS)
    auto_create_expiry_resources: bool | None = setting(
        False, "Keep the expired messages of each address in a queue of their own at the expiry address."
    )
    expiry_queue_prefix: EntityName | None = setting("EXP.", "What the names of those queues begin with.")
    expiry_queue_suffix: EntityName | None = setting("", "What they end with.")
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
    enable_ingress_timestamp: bool | None = setting(
        False, "Say in the annotation `x-opt-ingress-time` of each message when it came, in ms since 1970."
    )
    retroactive_message_count: int | None = setting(
        0, "Newest messages of an address that queues get which are made later; 0: none.",
        unit="messages", ge=0, le=100_000,
    )  # fmt: skip
    id_cache_size: int | None = setting(
        20_000,
        "Ids (`_AMQ_DUPL_ID`) that an address remembers: a message with one of them is accepted and dropped; 0: none.",
        unit="messages",
        ge=0,
        le=1_000_000,
    )
    id_cache_retention: int | None = setting(
        600_000, "Time for which these ids outlive their address, which may be deleted by itself; 0: they go with it.",
        unit="ms", ge=0, le=30 * 86_400_000,
    )  # fmt: skip
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
        "PAGE",
        "What happens at a full address: PAGE keeps on disk what is too much, also where `global-max-size-bytes` is "
        "reached, BLOCK gives producers no credit, FAIL rejects, DROP accepts and drops.",
        reload=False,
    )
    page_limit_bytes: int | None = setting(
        -1,
        "Bytes of messages that the queues of an address may page; -1: no bound.",
        unit="bytes",
        ge=-1,
        le=2**50,
        reload=False,
    )
    page_limit_messages: int | None = setting(
        -1,
        "Messages that the queues of an address may page; -1: no bound.",
        unit="messages",
        ge=-1,
        le=2**40,
        reload=False,
    )
    page_full_policy: Literal["DROP", "FAIL"] | None = setting(
        "FAIL", "What happens where those are reached: FAIL rejects, DROP accepts and drops.", reload=False
    )
    page_size_bytes: int | None = setting(
        10 * 2**20,
        "Bytes of messages that are read back together where an address pages; at most a quarter of its bounds.",
        unit="bytes",
        ge=1024,
        le=2**30,
        reload=False,
    )
    config_delete_queues: Deletion | None = setting(
        "OFF", "What becomes of a queue that `[[addresses]]` declared and no longer does: FORCE deletes it as it is."
    )
    config_delete_addresses: Deletion | None = setting(
        "OFF", "What becomes of such an address: FORCE deletes it with all of its queues."
    )
    config_delete_diverts: Deletion | None = setting(
        "OFF", "What becomes of a divert from the address that is gone from the file: FORCE ends it on reload, else "
        "it stays until a restart."
    )  # fmt: skip
    redirect_to: OptionalPlace | None = setting("", "Broker, as `host:port`, that links to the address are sent to.")
    redistribution_delay: int | None = setting(
        -1, "Time after which messages that no consumer here takes go to a node that has one; -1: they stay.",
        unit="ms", ge=-1, le=LONG_MS,
    )  # fmt: skip


class QueueTable(OptionTable):
    """A queue of a declared address. What is left out is as the settings of the address say."""

    name: FullName = option(..., "Name of the queue, distinct among all queues of the file.", reload=True)
    durable: bool = option(True, "Keep the queue, and durable messages in it, over restarts.", reload=True)
    filter: str = option(
        "", "Selector: only messages that match come into the queue; empty means all.", reload=True, max_length=4096
    )
    max_consumers: int | None = option(None, "Consumers; -1: no bound.", reload=True, ge=-1, le=1_000_000)
    exclusive: bool | None = option(None, "One consumer gets all messages, the others stand by.", reload=True)
    last_value: bool | None = option(None, "Keep only the last message of each `_AMQ_LVQ_NAME`.", reload=True)
    last_value_key: EntityName | None = option(
        None,
        "Property by which a last-value queue tells messages apart instead; naming one makes it such.",
        reload=True,
    )
    non_destructive: bool | None = option(
        None, "Consumers get copies; messages leave by expiry, replacement or administration alone.", reload=True
    )
    ring_size: int | None = option(
        None, "Messages that it keeps, older ones make room; -1: no bound.",
        unit="messages", reload=True, ge=-1, le=2**40,
    )  # fmt: skip
    consumers_before_dispatch: int | None = option(
        None, "Consumers that must be there before the first message is handed out.", reload=True, ge=0, le=1_000_000
    )
    delay_before_dispatch: int | None = option(
        None, "Time to wait for them, from the first consumer on; -1: for ever.",
        unit="ms", reload=True, ge=-1, le=LONG_MS,
    )  # fmt: skip
    group_rebalance: bool | None = option(None, "Groups find their consumers anew when one more comes.", reload=True)
    group_buckets: int | None = option(
        None, "Number of classes that groups are put into; -1: each group for itself.", reload=True, ge=-1, le=65536
    )
    group_first_key: EntityName | None = option(
        None, "Property that is set to true on the first message of a group that a consumer gets.", reload=True
    )
    purge_on_no_consumers: bool | None = option(
        None, "Drop what is in it as its last consumer leaves, as `default-purge-on-no-consumers` says.", reload=True
    )


class AddressTable(OptionTable):
    """An address that is there from the start. The table may be repeated; its queues are tables of their own.

    What is missing is made at start and on reload, queues that are there get the options of the file. What is gone from
    the file stays unless `config-delete-addresses` or `config-delete-queues` says otherwise.
    """

    name: FullName = option(..., "Name of the address, distinct within the file.", reload=True)
    routing_types: RoutingTypes = option(
        [], "What its queues may be; empty: both, and `default-address-routing-type` decides at first.", reload=True
    )
    anycast: list[QueueTable] = option(
        [], "Queues that share the messages, each a `[[addresses.anycast]]`.", reload=True, max_length=10_000
    )
    multicast: list[QueueTable] = option(
        [], "Queues that get a copy each, each a `[[addresses.multicast]]`.", reload=True, max_length=10_000
    )


class SecuritySettingsTable(OptionTable):
    """Roles that may do something at the addresses that match. The table may be repeated: the most specific match wins.

    It holds as a whole, nothing is added from others. Without any table everybody who is logged in may do everything.
    """

    match: str = option(
        ...,
        "Address, or pattern of addresses, that the permissions are for.",
        reload=True,
        min_length=1,
        max_length=1024,
    )
    send: Roles = option([], "Roles that may send to matching addresses.", reload=True)
    consume: Roles = option([], "Roles that may consume from queues of matching addresses.", reload=True)
    browse: Roles = option([], "Roles that may browse queues of matching addresses.", reload=True)
    create_address: Roles = option([], "Roles that may have matching addresses made by using them.", reload=True)
    create_durable_queue: Roles = option(
        [], "Roles that may have durable queues made at matching addresses.", reload=True
    )
    create_non_durable_queue: Roles = option(
        [], "Roles that may have queues made there that are not durable.", reload=True
    )
    delete_durable_queue: Roles = option(
        [], "Roles that may end durable subscriptions of matching addresses.", reload=True
    )
    delete_non_durable_queue: Roles = option(
        [], "Roles that may replace subscriptions there that are not durable.", reload=True
    )


class DivertTable(OptionTable):
    """Messages of an address that go to another as well, or instead. The table may be repeated."""

    name: NodeName = option(..., "Name of the divert, distinct within the file.", reload=True)
    address: FullName = option(..., "Address whose messages are diverted.", reload=True)
    forwarding_address: FullTargetName = option(..., "Address, or `address::queue`, that they go to.", reload=True)
    filter: str = option(
        "", "Selector: only messages that match are diverted; empty means all.", reload=True, max_length=4096
    )
    exclusive: bool = option(False, "Messages that are diverted do not stay at their address.", reload=True)
    routing_type: Literal["STRIP", "PASS", "ANYCAST", "MULTICAST"] = option(
        "STRIP",
        "Queues of the forwarding address that are reached: those of one routing type, or (STRIP, PASS) all.",
        reload=True,
    )
