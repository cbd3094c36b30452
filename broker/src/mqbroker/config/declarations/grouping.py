"""Options of the grouping handler: groups of messages that are kept together in a whole cluster.

Names and defaults are Artemis's. Source: Artemis's manual, "Clustered Grouping".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations.declaration import NodeName, OptionTable, option
from mqbroker.config.slices import BrokerOptions

HEAD: Final = "grouping-handler"
LOCAL, REMOTE = "LOCAL", "REMOTE"
PERIOD_MS_MAX: Final = 86_400_000


class GroupingHandlerTable(OptionTable):
    """Keeps each group of messages at one node of the cluster. One node is LOCAL and decides, all others are REMOTE."""

    name: NodeName = option("grouping", "Name of the handler, for people.")
    type: Literal["", "LOCAL", "REMOTE"] = option(
        "", "LOCAL decides where groups go, REMOTE asks the node that does; empty: there is no handler."
    )
    address: Annotated[str, Field(max_length=4096)] = option(
        "",
        "Addresses that it is for: beginnings of their names, divided by commas, `!` before those that it is not for; "
        "empty: all.",
    )
    timeout: int = option(
        5_000, "Time to wait for a decision, after which messages of the group are refused.",
        unit="ms", ge=10, le=PERIOD_MS_MAX,
    )  # fmt: skip
    group_timeout: int = option(
        -1, "Time without use after which a group may go elsewhere; for REMOTE, after which the LOCAL node is asked "
        "again. -1 or 0: never.", unit="ms", ge=-1, le=365 * PERIOD_MS_MAX,
    )  # fmt: skip
    reaper_period: int = option(
        30_000, "Time between two looks for such groups, at the LOCAL node.", unit="ms", ge=1, le=PERIOD_MS_MAX
    )


def faults(raw: Mapping[str, Any], unknown: object = None) -> Iterator[ConfigFault]:
    """What the table may not hold together with others, in a file as TOML has it."""
    table = raw.get(HEAD)
    if isinstance(table, dict) and table.get("type") == REMOTE and not raw.get("cluster-connections"):
        why = "is REMOTE, but there are no cluster-connections over which a LOCAL node could be asked; add one"
        yield ConfigFault(f"{HEAD}.type", why)


def doubts(options: BrokerOptions) -> Iterator[ConfigFault]:
    """What is allowed and hardly meant."""
    handler = options.grouping_handler
    if handler.type == LOCAL and not options.cluster_connections:
        why = "is LOCAL, but there are no cluster-connections: groups of one node stay together by themselves"
        yield ConfigFault(f"{HEAD}.type", why)


def between_hosts(brokers: Mapping[str, Mapping[str, Any]], unknown: object) -> Iterator[tuple[str, ConfigFault]]:
    """Where there are handlers, all nodes of a cluster have one, and exactly one of them decides."""
    types: dict[str, dict[str, object]] = {}
    for host, variables in brokers.items():
        handler = variables.get("mq_grouping_handler") or {}
        said = handler.get("type", "") if isinstance(handler, Mapping) else unknown
        types.setdefault(str(variables["mq_cluster_name"]), {})[host] = said
    for cluster, by_host in types.items():
        if unknown in by_host.values() or not any(by_host.values()):
            continue
        arbiters = [host for host, said in by_host.items() if said == LOCAL]
        if len(arbiters) != 1:
            deciding = " and ".join(arbiters) if arbiters else "none"
            why = (
                f"one node of cluster {cluster} decides where groups go, and here that is {deciding}: set LOCAL for one"
            )
            yield (arbiters or list(by_host))[-1], ConfigFault("mq_grouping_handler.type", why)
        for host in (host for host, said in by_host.items() if not said):
            why = f"is missing, and other nodes of cluster {cluster} have it: groups sent here would be split"
            yield host, ConfigFault("mq_grouping_handler", why)
