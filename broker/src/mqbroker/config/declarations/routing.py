"""Options of connection routers, declared as those in options.py are. Names and defaults are Artemis's.

What a router may hold together with other tables is checked here as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations.declaration import NodeName, OptionTable, option

HEAD: Final = "connection-routers"
PERIOD_MS_MAX: Final = 3_600_000
MODULO: Final = "CONSISTENT_HASH_MODULO"
POOLS: Final = ("static-connectors", "discovery-group-ref", "cluster-connection")
OF_POOL: Final = (
    "local-target-enabled",
    "local-connector-ref",
    "policy",
    "quorum-size",
    "quorum-timeout",
    "check-period",
    "cache-persisted",
)
KeyType = Literal["SOURCE_IP", "CLIENT_ID", "SNI_HOST", "USER_NAME", "ROLE_NAME"]
PolicyName = Literal["FIRST_ELEMENT", "ROUND_ROBIN", "CONSISTENT_HASH", "LEAST_CONNECTIONS", "CONSISTENT_HASH_MODULO"]


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise PydanticCustomError("pattern", "must be a regular expression: {why}", {"why": str(error)}) from None
    return value


RegularExpression = Annotated[str, Field(max_length=1000), AfterValidator(_pattern)]
OptionalName = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$")]
NodeNames = Annotated[list[NodeName], Field(max_length=64)]


class ConnectionRouterTable(OptionTable):
    """Which broker clients are sent to when they connect. The table may be repeated; listeners name one."""

    name: NodeName = option(..., "Name of the router, distinct within the file.")
    key_type: KeyType = option("SOURCE_IP", "What of a connection is its key, by which its broker is chosen.")
    key_filter: RegularExpression = option(
        "", "Regular expression: what it finds in the key first is the key; empty takes the key as it is."
    )
    local_target_filter: RegularExpression = option(
        "", "Regular expression: connections whose whole key matches it stay here; empty: none."
    )
    static_connectors: NodeNames = option([], "Names of connectors that lead to the brokers that are chosen among.")
    discovery_group_ref: OptionalName = option(
        "", "Name of the discovery group whose brokers are chosen among, in place of static-connectors."
    )
    cluster_connection: OptionalName = option(
        "",
        "Name of the cluster connection whose members are chosen among, in place of static-connectors: those that have "
        "client-connector-ref there.",
    )
    local_target_enabled: bool = option(False, "Whether this broker is one of those that are chosen among.")
    local_connector_ref: OptionalName = option(
        "",
        "Name of the connector by which other brokers know this one, so that all hash alike; with static-connectors "
        "and names in DNS.",
    )
    check_period: int = option(
        5000, "Time between two looks whether static-connectors or members answer.", unit="ms", ge=50, le=PERIOD_MS_MAX
    )
    quorum_size: int = option(1, "Brokers that must be there before connections are routed.", ge=1, le=1000)
    quorum_timeout: int = option(
        3000, "Time that a connection waits for so many; then it is refused.", unit="ms", ge=0, le=600_000
    )
    policy: PolicyName = option("ROUND_ROBIN", "How a broker is chosen.")
    modulo: int = option(
        0, "CONSISTENT_HASH_MODULO needs it: number of groups that keys fall into by their hash.", ge=0, le=1_000_000
    )
    cache_timeout: int = option(
        -1,
        "Time for which a key keeps its broker after it was used last; 0 is as long as the broker is there, -1 not at "
        "all.",
        unit="ms",
        ge=-1,
        le=86_400_000,
    )
    cache_persisted: bool = option(
        False, "Whether that holds beyond a restart of the broker; it needs cache-timeout to be 0 or more."
    )


def faults(raw: Mapping[str, Any], unknown: object = None) -> Iterator[ConfigFault]:
    """What routers may not hold together with other tables, as TOML has them. Nothing is said of `unknown`."""
    routers = _rows(raw.get(HEAD))
    seen: dict[str, int] = {}
    for number, row in enumerate(routers):
        path, name = f"{HEAD}.{number}", row.get("name")
        if isinstance(name, str) and name != unknown:
            if name in seen:
                why = f"{name} is declared twice, first as {HEAD}.{seen[name]}; rename one of them"
                yield ConfigFault(f"{path}.name", why)
            seen.setdefault(name, number)
        yield from _pool_faults(path, row)
        yield from _reference_faults(path, row, raw, unknown)
    yield from _listener_faults(_rows(raw.get("listeners")), list(seen), unknown)


def _pool_faults(path: str, row: Mapping[str, Any]) -> Iterator[ConfigFault]:
    pools = [name for name in POOLS if row.get(name)]
    for name in pools[1:]:
        yield ConfigFault(f"{path}.{name}", f"is set beside {pools[0]}; remove one of them")
    if not pools and not row.get("local-target-filter"):
        others = ", ".join(POOLS[1:])
        why = f"is missing, and so are {others} and local-target-filter: the router would refuse everybody"
        yield ConfigFault(f"{path}.{POOLS[0]}", why)
    for name in OF_POOL:
        if not pools and name in row:
            why = f"means nothing without brokers to choose among; set one of {', '.join(POOLS)}, or remove this"
            yield ConfigFault(f"{path}.{name}", why)
    if row.get("cluster-connection") and row.get("local-connector-ref"):
        why = "is set beside cluster-connection, whose members know each other by their node ids; remove it"
        yield ConfigFault(f"{path}.local-connector-ref", why)
    if row.get("cache-persisted") is True and row.get("cache-timeout", -1) == -1:
        why = "is set, but cache-timeout is -1, so nothing is remembered; set that to 0 or more, or remove this"
        yield ConfigFault(f"{path}.cache-persisted", why)
    if (row.get("policy") == MODULO) != bool(row.get("modulo", 0)):
        yield ConfigFault(f"{path}.modulo", f"goes with policy = {MODULO}, which needs it to be 1 or more")


def _reference_faults(
    path: str, row: Mapping[str, Any], raw: Mapping[str, Any], unknown: object
) -> Iterator[ConfigFault]:
    listed = row.get("static-connectors")
    wanted = [("static-connectors", "connectors", each) for each in (listed if isinstance(listed, list) else [])]
    wanted.append(("local-connector-ref", "connectors", row.get("local-connector-ref", "")))
    wanted.append(("discovery-group-ref", "discovery-groups", row.get("discovery-group-ref", "")))
    wanted.append(("cluster-connection", "cluster-connections", row.get("cluster-connection", "")))
    for option_name, head, name in wanted:
        known = [each.get("name") for each in _rows(raw.get(head))]
        if isinstance(name, str) and name and name not in known and unknown not in (name, *known):
            there = ", ".join(str(each) for each in known) or "none"
            yield ConfigFault(f"{path}.{option_name}", f"there is no {name} among [[{head}]] (there are: {there})")


def _listener_faults(
    listeners: Sequence[Mapping[str, Any]], known: list[str], unknown: object
) -> Iterator[ConfigFault]:
    for number, row in enumerate(listeners):
        name, path = row.get("router", ""), f"listeners.{number}.router"
        if not isinstance(name, str) or not name or name == unknown:
            continue
        if name not in known:
            why = f"there is no router {name}; declare it as [[{HEAD}]] (there are: {', '.join(known) or 'none'})"
            yield ConfigFault(path, why)
        if row.get("kind") == "cluster":
            yield ConfigFault(path, "is for listeners of clients: nodes are never sent elsewhere")
        if row.get("redirect-to"):
            yield ConfigFault(path, "is set beside redirect-to, which sends everybody away; remove one of them")


def _rows(tables: object) -> list[Mapping[str, Any]]:
    """Those entries that are tables, in their places: others become empty ones, of which types complain."""
    return [item if isinstance(item, dict) else {} for item in (tables if isinstance(tables, list) else [])]
