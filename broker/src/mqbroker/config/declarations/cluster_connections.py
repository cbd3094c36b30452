"""Options of cluster connections, declared as those in options.py are. Names and defaults are Artemis's.

Artemis has some more that mean nothing on AMQP links; they are refused with the reason (`REFUSED`). What options of one
or several connections may hold together is checked here, what is allowed and hardly meant is doubted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mqbroker.base.errors import ConfigFault
from mqbroker.config import patterns
from mqbroker.config.declarations.declaration import MIB, NodeName, OptionTable, option
from mqbroker.config.declarations.repeated_tables import TableRows, missing, names_twice
from mqbroker.config.declarations.table_slices import slice_of
from mqbroker.config.matching import address_items
from mqbroker.config.slices import BrokerOptions, ClusterConnectionOptions

DEAD_LETTERS: Final = "dead_letter_address"
HEAD: Final = "cluster-connections"
PERIOD_MS_MAX: Final = 86_400_000
ATTEMPTS_MAX: Final = 1_000_000

LoadBalancing = Literal["OFF", "STRICT", "ON_DEMAND", "OFF_WITH_REDISTRIBUTION"]
GroupName = Annotated[str, Field(pattern=patterns.OPTIONAL_NODE_NAME)]

REFUSED: Final = {
    "min-large-message-size": "messages of every size cross AMQP links in frames; which of them become files on this "
    "host is said by limits.amqp-min-large-message-size-bytes; remove it",
    "producer-window-size": "a sender on an AMQP link is held back by the credit that the other node gives, its "
    "limits.link-credit, and by confirmation-window-size here; remove it",
    "call-failover-timeout": "no call waits for another node to take over, links are made anew after retry-interval; "
    "remove it",
    "client-id": "links are known by the ids of their nodes and by the name of the connection; remove it",
}


class ClusterConnectionTable(OptionTable):
    """Links to the other nodes of a cluster, over which messages reach queues and consumers there. May be repeated."""

    name: NodeName = option(..., "Name of the connection, the same on all nodes and distinct within the file.")
    address: Annotated[str, Field(max_length=4096)] = option(
        "",
        "Addresses that it is for: beginnings of their names, divided by commas, `!` before those that it is not for; "
        "empty: all.",
    )
    connector_ref: NodeName = option(..., "Name of the connector by which the other nodes reach this one.")
    client_connector_ref: GroupName = option(
        "",
        "Name of the connector by which clients reach this node; others are told of it, tell it to their clients for "
        "the case that they are gone, and have their connection routers send clients there.",
    )
    discovery_group_ref: GroupName = option(
        "", "Name of the discovery group that first nodes come from; or else static-connectors."
    )
    static_connectors: Annotated[list[NodeName], Field(max_length=64)] = option(
        [], "Names of the connectors of first nodes; any that is reached tells of all others."
    )
    allow_direct_connections_only: bool = option(
        False, "Have links only to nodes that are listed in static-connectors, whoever else is heard of."
    )
    message_load_balancing: LoadBalancing = option(
        "ON_DEMAND",
        "Which messages go to other nodes: those that have a consumer there (ON_DEMAND), shares for all that have the "
        "queue (STRICT), copies for their subscriptions alone (OFF), and those that are left behind "
        "(OFF_WITH_REDISTRIBUTION).",
    )
    forward_when_no_consumers: bool | None = option(
        None, "Old name: true is message-load-balancing = STRICT, false is ON_DEMAND."
    )
    max_hops: int = option(1, "Links that a message may cross; 0: no node tells this one of its queues.", ge=0, le=64)
    check_period: int = option(
        30_000, "Silence of another node after which the link to it is given up.", unit="ms", ge=100, le=PERIOD_MS_MAX
    )
    connection_ttl: int = option(
        60_000, "Silence of this node on a link that never comes about: something is sent twice as often.",
        unit="ms", ge=200, le=PERIOD_MS_MAX,
    )  # fmt: skip
    call_timeout: int = option(
        30_000, "Time that another node has to answer when a link to it is opened.", unit="ms", ge=1, le=PERIOD_MS_MAX
    )
    retry_interval: int = option(
        500, "Time after which a link that was lost is tried again.", unit="ms", ge=1, le=PERIOD_MS_MAX
    )
    retry_interval_multiplier: float = option(
        1.0, "Factor by which that time grows with each attempt in vain.", ge=1.0, le=100.0
    )
    max_retry_interval: int = option(2_000, "Its upper bound.", unit="ms", ge=1, le=PERIOD_MS_MAX)
    initial_connect_attempts: int = option(
        -1, "Attempts to reach a node for the first time; -1: no bound.", ge=-1, le=ATTEMPTS_MAX
    )
    reconnect_attempts: int = option(
        -1, "Attempts to reach a node again after its link was lost; -1: no bound.", ge=-1, le=ATTEMPTS_MAX
    )
    use_duplicate_detection: bool = option(
        True, "Have the other node drop what is sent to it again after a lost link; without it that may come twice."
    )
    confirmation_window_size: int = option(
        MIB, "Bytes on one link that the other node has not answered yet; -1: no bound.", unit="bytes", ge=-1, le=2**40
    )
    notification_interval: int = option(
        1_000, "Time between two times that this node tells the others of itself after it has started.",
        unit="ms", ge=1, le=PERIOD_MS_MAX,
    )  # fmt: skip
    notification_attempts: int = option(2, "How often it does so.", ge=0, le=1000)
    topology_scanner_attempts: int = option(
        30, "Attempts, each after retry-interval, to reach a listed node that has stopped; then a warning, and one "
        "every 30 s. -1: no bound, 0: none. Where a name leads and nobody has answered yet: 30 at least.",
        ge=-1, le=ATTEMPTS_MAX,
    )  # fmt: skip
    on_node_lost: Literal["hold", "reroute", "dead-letter"] = option(
        "hold", "What becomes of messages for a node that does not come back: they wait, are routed anew, or are dead "
        "letters.",
    )  # fmt: skip
    node_lost_grace: int = option(
        600_000, "Time that it must have been away for that.", unit="ms", ge=0, le=365 * PERIOD_MS_MAX
    )


def cluster_connection(table: ClusterConnectionTable) -> ClusterConnectionOptions:
    """Its slice. The old name says what the new one does not."""
    old = {None: table.message_load_balancing, True: "STRICT", False: "ON_DEMAND"}
    instead = old[table.forward_when_no_consumers]
    connection: ClusterConnectionOptions = slice_of(table, message_load_balancing=instead)
    return connection


def faults(tables: Mapping[str, TableRows], unknown: object) -> Iterator[ConfigFault]:
    """What is wrong between the options of these tables, in a file as TOML has it."""
    rows = tables[HEAD]
    yield from names_twice(HEAD, rows, unknown)
    for number, row in rows:
        path, connectors = f"{HEAD}.{number}", tables["connectors"]
        yield from missing(f"{path}.connector-ref", "connectors", row.get("connector-ref"), connectors, unknown)
        wanted = row.get("client-connector-ref")
        yield from missing(f"{path}.client-connector-ref", "connectors", wanted or None, connectors, unknown)
        yield from _first_nodes(path, row, tables, unknown)
        yield from _periods(path, row)
        if "forward-when-no-consumers" in row and "message-load-balancing" in row:
            why = "is the old name of message-load-balancing, which is set too; remove it"
            yield ConfigFault(f"{path}.forward-when-no-consumers", why)


def _first_nodes(
    path: str, row: Mapping[str, Any], tables: Mapping[str, TableRows], unknown: object
) -> Iterator[ConfigFault]:
    group, static = row.get("discovery-group-ref"), row.get("static-connectors")
    if bool(group) == bool(static):
        why = "is set beside static-connectors; keep one of them" if group else (
            "is missing, and so are static-connectors: nothing says where first nodes come from; set one of them"
        )  # fmt: skip
        yield ConfigFault(f"{path}.discovery-group-ref", why)
    if group:
        yield from missing(
            f"{path}.discovery-group-ref", "discovery-groups", group, tables["discovery-groups"], unknown
        )
        if row.get("allow-direct-connections-only") is True:
            why = "allows those of static-connectors alone, and there are none; remove it, or list them"
            yield ConfigFault(f"{path}.allow-direct-connections-only", why)
    for name in static if isinstance(static, list) else []:
        yield from missing(f"{path}.static-connectors", "connectors", name, tables["connectors"], unknown)


def _periods(path: str, row: Mapping[str, Any]) -> Iterator[ConfigFault]:
    model = ClusterConnectionTable.model_fields
    period_ms = row.get("check-period", model["check_period"].default)
    ttl_ms = row.get("connection-ttl", model["connection_ttl"].default)
    if type(period_ms) is int and type(ttl_ms) is int and period_ms >= ttl_ms:
        why = f"must be above check-period, which is {period_ms}; raise it, or lower that"
        yield ConfigFault(f"{path}.connection-ttl", why)


def doubts(options: BrokerOptions) -> Iterator[ConfigFault]:
    """What is allowed and hardly meant."""
    connections = options.cluster_connections
    for number, one in enumerate(connections):
        path = f"{HEAD}.{number}"
        if one.forward_when_no_consumers is not None:
            why = f"is an old name; write message-load-balancing = {one.message_load_balancing!r} instead"
            yield ConfigFault(f"{path}.forward-when-no-consumers", why)
        wild = [item for items in address_items(one.address) for item in items if "#" in item or "*" in item]
        if wild:
            why = (
                f"has {', '.join(wild)}: # and * stand for themselves here; items are beginnings of names, empty is all"
            )
            yield ConfigFault(f"{path}.address", why)
        if one.max_retry_interval < one.retry_interval:
            why = f"is {one.max_retry_interval} ms, below retry-interval, which therefore never comes about"
            yield ConfigFault(f"{path}.max-retry-interval", why)
        yield from _unreachable(path, one, options)
        yield from _lonely(path, one, options)
        yield from _losing(path, one, options)
    for (_, earlier), (number, later) in combinations(enumerate(connections), 2):
        if overlap(earlier.address, later.address):
            why = (
                f"overlaps with that of {earlier.name}: messages for such addresses could go over both; give each "
                "addresses of its own"
            )
            yield ConfigFault(f"{HEAD}.{number}.address", why)


def _lonely(path: str, one: ClusterConnectionOptions, options: BrokerOptions) -> Iterator[ConfigFault]:
    places = {each.name: (each.host, each.port) for each in options.connectors}
    if one.static_connectors and all(places[name] == places[one.connector_ref] for name in one.static_connectors):
        why = (
            "names this node alone, so it dials nobody: after a restart it is alone until others look for it; list one "
            "of these as well"
        )
        yield ConfigFault(f"{path}.static-connectors", why)


def _losing(path: str, one: ClusterConnectionOptions, options: BrokerOptions) -> Iterator[ConfigFault]:
    settings = options.address_settings
    said = [settings.built_in.dead_letter_address, *(each.values.get(DEAD_LETTERS) for each in settings.matches)]
    if one.on_node_lost == "dead-letter" and not any(said):
        why = (
            "makes dead letters of what waits for a lost node, and no address-settings have a dead-letter-address: it "
            "would be gone; set one"
        )
        yield ConfigFault(f"{path}.on-node-lost", why)


def _unreachable(path: str, one: ClusterConnectionOptions, options: BrokerOptions) -> Iterator[ConfigFault]:
    ports = {listener.port: listener.kind for listener in options.listeners}
    by_name = {connector.name: connector.port for connector in options.connectors}
    port, for_clients = by_name[one.connector_ref], by_name.get(one.client_connector_ref)
    if for_clients is not None and ports.get(for_clients) == "cluster":
        why = f"leads to port {for_clients}, a listener for nodes, where no client may log in; name one of kind client"
        yield ConfigFault(f"{path}.client-connector-ref", why)
    if ports.get(port) == "client":
        why = f"leads to port {port}, a listener for clients, where no node may log in; name one of kind cluster"
        yield ConfigFault(f"{path}.connector-ref", why)
    elif "cluster" not in ports.values():
        why = "is there, but no listener of kind cluster: other nodes cannot reach this one; add one to [[listeners]]"
        yield ConfigFault(f"{path}.connector-ref", why)


def overlap(one: str, other: str) -> bool:
    """Whether some name of an address is matched by both of two options `address`."""
    included, excluded = zip(address_items(one), address_items(other), strict=True)
    out = excluded[0] + excluded[1]
    for first in included[0] or ("",):
        for second in included[1] or ("",):
            longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
            # Names below an exclusion that is longer still are only some of those that both match.
            if longer.startswith(shorter) and not longer.startswith(out):
                return True
    return False
