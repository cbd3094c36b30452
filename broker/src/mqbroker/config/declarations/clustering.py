"""Options of what nodes say to each other, declared as those in options.py are. Names and defaults are Artemis's.

What groups and connectors may hold together is checked here as well; faults keep a broker from starting, doubts are
told and nothing more.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from mqbroker.base.errors import ConfigFault
from mqbroker.config import patterns
from mqbroker.config.declarations import cluster_connections, group_kinds, grouping, scale_down
from mqbroker.config.declarations.declaration import NodeName, OptionalPath, OptionTable, option
from mqbroker.config.declarations.repeated_tables import missing, names_twice, rows_of
from mqbroker.config.declarations.variables import LOOPBACK
from mqbroker.config.names import toml_name
from mqbroker.config.slices import BroadcastGroupOptions, BrokerOptions, DiscoveryGroupOptions

PERIOD_MS_MAX: Final = 3_600_000
HEADS: Final = ("connectors", "broadcast-groups", "discovery-groups", cluster_connections.HEAD)
GROUPS: Final = ("broadcast-groups", "discovery-groups")
JGROUPS: Final = (
    "JGroups is not used here: remove jgroups-file and jgroups-channel, and set group-address and group-port for "
    "discovery by UDP multicast"
)


def _multicast_address(value: str) -> str:
    if not value:
        return value  # what a kind of discovery needs is checked in group_kinds
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        address = ipaddress.IPv4Address("0.0.0.0")
    if not address.is_multicast or value == "224.0.0.0":
        sentence = "must be an IPv4 multicast address from 224.0.0.1 to 239.255.255.255, such as 231.7.7.7"
        raise PydanticCustomError("multicast_address", sentence)
    return value


def _optional_ipv4(value: str) -> str:
    if value:
        try:
            address = ipaddress.IPv4Address(value)
        except ValueError:
            address = None
        if address is None or address.is_multicast or address.is_unspecified:
            sentence = "must be an IPv4 address of this host such as 192.0.2.11, or empty"
            raise PydanticCustomError("ipv4_address", sentence)
    return value


def _reachable(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return value  # a name
    if address.is_unspecified or address.is_multicast:
        raise PydanticCustomError("reachable", "must be one address of one host: others connect to it")
    return value


MulticastAddress = Annotated[str, AfterValidator(_multicast_address)]
OptionalIpv4 = Annotated[str, AfterValidator(_optional_ipv4)]
Peers = Annotated[list[Annotated[str, Field(pattern=patterns.PLACE)]], Field(max_length=64)]
DnsNames = Annotated[list[Annotated[str, Field(pattern=patterns.DNS_NAME)]], Field(max_length=64)]
HostName = Annotated[str, Field(pattern=patterns.HOST), AfterValidator(_reachable)]


class ConnectorTable(OptionTable):
    """How a node is reached: this one, or for static-connectors another. May be repeated; others name them."""

    name: NodeName = option(..., "Name of the connector, distinct within the file.")
    host: HostName = option(..., "IP address or name by which other nodes reach the host.")
    port: int = option(..., "TCP port of the listener that the connector leads to.", ge=1, le=65535)
    tls_enabled: bool = option(False, "Whether that listener has TLS; others are told so.")


class BroadcastGroupTable(OptionTable):
    """Where this node announces itself. The table may be repeated."""

    name: NodeName = option(..., "Name of the group, distinct within the file.")
    discovery: Literal["udp", "file", "gossip"] = option(
        "udp", "How it announces itself: by UDP multicast, by files in a shared directory, or by TCP to peers (gossip)."
    )
    local_bind_address: OptionalIpv4 = option(
        "",
        "IPv4 address of the network card that is sent from; for udp, empty leaves the choice to the host's routes; "
        "gossip needs it.",
    )
    local_bind_port: int = option(
        -1,
        "Port of local-bind-address. udp: sent from, -1 is any. gossip needs it: TCP, peers connect to it; a discovery "
        "group may share it.",
        ge=-1,
        le=65535,
    )
    group_address: MulticastAddress = option(
        "", "Multicast address that is sent to, 224.0.0.1 to 239.255.255.255; udp needs it."
    )
    group_port: int = option(0, "UDP port that is sent to; udp needs it.", ge=0, le=65535)
    directory: OptionalPath = option("", "Directory that all nodes share, in which each writes a file; file needs it.")
    peers: Peers = option([], "Nodes, each as `host:port`, that records are exchanged with by gossip.")
    broadcast_period: int = option(
        2000, "Time between two announcements; the first comes at once.", unit="ms", ge=50, le=PERIOD_MS_MAX
    )
    connector_ref: NodeName = option(..., "Name of the connector that is announced.")
    time_to_live: int = option(
        1,
        "udp: routers that an announcement may cross, plus one; 1 stays on the network of the card.",
        ge=0,
        le=255,
    )


class DiscoveryGroupTable(OptionTable):
    """Where this node looks for others. The table may be repeated."""

    name: NodeName = option(..., "Name of the group, distinct within the file.")
    discovery: Literal["udp", "file", "dns", "gossip"] = option(
        "udp",
        "How others are found: by UDP multicast, by files in a shared directory, by names in DNS, or by TCP to peers "
        "(gossip).",
    )
    local_bind_address: OptionalIpv4 = option(
        "",
        "IPv4 address of the network card that is listened on; for udp, empty leaves the choice to the host's routes; "
        "gossip needs it.",
    )
    local_bind_port: int = option(
        -1, "gossip needs it: TCP port that peers connect to; a broadcast group may share it.", ge=-1, le=65535
    )
    group_address: MulticastAddress = option("", "Multicast address that is listened to; udp needs it.")
    group_port: int = option(0, "UDP port that is listened on; udp needs it.", ge=0, le=65535)
    directory: OptionalPath = option("", "Directory that all nodes share, whose files are read; file needs it.")
    names: DnsNames = option(
        [],
        "dns needs it: names that are resolved, `host:port` for addresses or such as `_mq._tcp.example.org` for SRV "
        "records.",
    )
    tls_enabled: bool = option(False, "dns: whether the listeners behind the names have TLS.")
    peers: Peers = option([], "Nodes, each as `host:port`, that records are exchanged with by gossip.")
    poll_period: int = option(
        2000, "Time between two looks, by file, dns and gossip.", unit="ms", ge=50, le=PERIOD_MS_MAX
    )
    refresh_timeout: int = option(
        10_000, "Time without an announcement after which a node counts as gone.", unit="ms", ge=100, le=PERIOD_MS_MAX
    )
    initial_wait_timeout: int = option(
        10_000, "Time from the start within which a first node should be heard; then a warning.",
        unit="ms", ge=1, le=PERIOD_MS_MAX,
    )  # fmt: skip


def faults(raw: Mapping[str, Any], unknown: object = None) -> Iterator[ConfigFault]:
    """What these tables may not hold together, in a file as TOML has it. Nothing is said of the value `unknown`."""
    tables = {head: rows_of(raw.get(head)) for head in HEADS}
    for head in HEADS[:-1]:
        yield from names_twice(head, tables[head], unknown)
    for number, row in tables["broadcast-groups"]:
        path, wanted = f"broadcast-groups.{number}", row.get("connector-ref")
        yield from missing(f"{path}.connector-ref", "connectors", wanted, tables["connectors"], unknown)
    for head in GROUPS:
        for number, row in tables[head]:
            yield from group_kinds.faults(f"{head}.{number}", head, row)
        yield from _places_twice(head, tables[head], unknown)
    yield from cluster_connections.faults(tables, unknown)
    yield from grouping.faults(raw, unknown)
    yield from scale_down.faults(raw, unknown)


def _places_twice(head: str, rows: Sequence[tuple[int, Mapping[str, Any]]], unknown: object) -> Iterator[ConfigFault]:
    """A node is announced at a place once, and has one ear at a TCP port or in a directory."""
    seen: dict[tuple[str, ...], int] = {}
    for number, row in rows:
        if head == "discovery-groups" and row.get("discovery") not in ("file", "gossip"):
            continue
        place = group_kinds.place_key(row)
        if place in seen and unknown not in place:
            why = f"and the rest of the place are those of {head}.{seen[place]}; one group is enough there"
            yield ConfigFault(f"{head}.{number}.{group_kinds.place_option(row)}", why)
        seen.setdefault(place, number)


def between_hosts(brokers: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ConfigFault]]:
    """Where a cluster has several hosts, the connectors that they tell each other of lead from one to the other."""
    sizes = Counter(str(variables["mq_cluster_name"]) for variables in brokers.values())
    for host, variables in brokers.items():
        cluster = str(variables["mq_cluster_name"])
        if sizes[cluster] == 1:
            continue
        common = variables.get("mq_local_bind_address") or ("" if variables.get("mq_cluster_interface") else LOOPBACK)
        heads = ("mq_broadcast_groups", "mq_cluster_connections")
        told = [row.get("connector_ref") for head in heads for _, row in rows_of(variables.get(head))]
        for number, row in rows_of(variables.get("mq_connectors")):
            place = str(row.get("host", common))
            if row.get("name") in told and _is_loopback(place):
                why = (
                    f"is {place}, where no other host of cluster {cluster} finds this one; set mq_cluster_interface to "
                    "the cluster's network card, or the address of the host here"
                )
                yield host, ConfigFault(f"mq_connectors.{number}.host", why)


def _is_loopback(place: str) -> bool:
    try:
        return ipaddress.ip_address(place).is_loopback
    except ValueError:
        return place == "localhost"


def explained(fault: ConfigFault) -> ConfigFault:
    """The fault, with what to do about it where it is an option that Artemis has and this broker does not.

    Names are those of a file or, beginning with mq_, of an inventory.
    """
    head, name = (toml_name(part) for part in (fault.path.partition(".")[0], fault.path.rpartition(".")[2]))
    head = head.removeprefix("mq-")
    if head in GROUPS and name.startswith("jgroups-"):
        return ConfigFault(fault.path, JGROUPS)
    if head == cluster_connections.HEAD and name in cluster_connections.REFUSED:
        return ConfigFault(fault.path, cluster_connections.REFUSED[name])
    return fault


def doubts(options: BrokerOptions) -> Iterator[ConfigFault]:
    """What is allowed and hardly meant."""
    for number, group in enumerate(options.broadcast_groups):
        if group.discovery == "udp" and group.local_bind_port != -1 and not group.local_bind_address:
            why = f"is {group.local_bind_port} and means nothing without local-bind-address; set that, or remove this"
            yield ConfigFault(f"broadcast-groups.{number}.local-bind-port", why)
    for number, listened in enumerate(options.discovery_groups):
        periods = [
            one.broadcast_period
            for one in options.broadcast_groups
            if _meeting_point(one) == _meeting_point(listened) and listened.refresh_timeout < 2 * one.broadcast_period
        ]
        if periods:
            why = (
                f"is {listened.refresh_timeout} ms, less than two broadcast periods of {max(periods)} ms: one lost "
                "announcement makes a node seem gone; raise it, or lower broadcast-period"
            )
            yield ConfigFault(f"discovery-groups.{number}.refresh-timeout", why)
    yield from cluster_connections.doubts(options)
    yield from grouping.doubts(options)


def _meeting_point(group: BroadcastGroupOptions | DiscoveryGroupOptions) -> tuple[str, str | int, int]:
    """Where announcers and listeners of one kind meet."""
    if group.discovery == "udp":
        return ("udp", group.group_address, group.group_port)
    if group.discovery == "gossip":
        return ("gossip", group.local_bind_address, group.local_bind_port)
    return (group.discovery, group.directory, 0)
