"""Options of what a node does with its messages when it is stopped, declared as those in options.py are.

Names are Artemis's (`ha-policy`, `primary-only`, `scale-down`). Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from mqbroker.base.errors import ConfigFault
from mqbroker.base.time import STANDSTILL_MS_MAX
from mqbroker.config.declarations.cluster_connections import GroupName
from mqbroker.config.declarations.declaration import NodeName, OptionTable, option
from mqbroker.config.declarations.repeated_tables import missing, rows_of

HEAD: Final = "scale-down"
TIMEOUT_MS_MAX: Final = 86_400_000


class ScaleDownTable(OptionTable):
    """What becomes of the messages of a broker that is stopped in order: another node of the cluster can take them."""

    enabled: bool = option(
        False, "Whether a graceful stop moves them to another node first; with none there they stay, and it stops."
    )
    group_name: GroupName = option(
        "", "Only a node with the same name here takes them, which needs no `enabled` for that; empty: any node."
    )
    connectors: Annotated[list[NodeName], Field(max_length=64)] = option(
        [], "Names of connectors; the first whose node is linked takes them. Empty: the node with the lowest id."
    )
    discovery_group_ref: GroupName = option(
        "", "Only nodes of cluster connections with this discovery group take them; empty: of any. Not with connectors."
    )
    commit_interval: int = option(
        -1,
        "Artemis's messages for each commit. Without effect here: messages go as their window allows, each once.",
        unit="messages", ge=-1, le=1_000_000,
    )  # fmt: skip
    timeout: int = option(
        300_000,
        "Time that this may take; then the broker stops, and what is left is served when it starts again. Clients with "
        "unsettled messages stay for a quarter of it, and for ten seconds at most.",
        unit="ms", ge=1_000, le=TIMEOUT_MS_MAX,
    )  # fmt: skip
    heir_timeout: int = option(
        60_000,
        "Time after which a node that leaves, by whatever way, hands what waits to the next node of the cluster "
        "while the one that takes its messages takes none, more than 2 s; -1: never.",
        unit="ms", ge=-1, le=TIMEOUT_MS_MAX,
    )  # fmt: skip


def faults(raw: Mapping[str, Any], unknown: object = None) -> Iterator[ConfigFault]:
    """What the table may not hold together with others, in a file as TOML has it."""
    table = raw.get(HEAD)
    if not isinstance(table, Mapping):
        return
    if table.get("enabled") is True and not raw.get("cluster-connections"):
        why = "is true, but there are no cluster-connections over which messages could go; add one"
        yield ConfigFault(f"{HEAD}.enabled", why)
    timeout = table.get("heir-timeout")
    if isinstance(timeout, int) and 0 <= timeout <= STANDSTILL_MS_MAX:
        why = (
            f"is {timeout} ms, and of a standstill of the node that leaves up to {STANDSTILL_MS_MAX} ms count, so that "
            "one would be enough to pass a sound node over; set more, or -1 for never"
        )
        yield ConfigFault(f"{HEAD}.heir-timeout", why)
    names, group = table.get("connectors"), table.get("discovery-group-ref")
    if names and group:
        why = "cannot stand beside connectors: these say already which nodes take messages; remove one of them"
        yield ConfigFault(f"{HEAD}.discovery-group-ref", why)
    for name in names if isinstance(names, list) else []:
        yield from missing(f"{HEAD}.connectors", "connectors", name, rows_of(raw.get("connectors")), unknown)
    if group:
        groups = rows_of(raw.get("discovery-groups"))
        yield from missing(f"{HEAD}.discovery-group-ref", "discovery-groups", group, groups, unknown)
