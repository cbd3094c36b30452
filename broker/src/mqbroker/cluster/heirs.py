"""Which node takes the messages of one that stops: a table of candidates, and one choice.

Source: Artemis's manual, "Scale Down"; docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.config.slices import ScaleDownOptions


@dataclass(frozen=True, slots=True)
class HeirCandidate:
    """A node to which a link stands. `places` are where it is reached, as it says and as it was found."""

    connection: str  # the cluster connection that the link is of
    discovery_group: str  # of that connection
    node_id: str
    name: str
    places: frozenset[tuple[str, str, int]]
    group: str  # of scale-down, as it says
    heir: str  # whom it leaves everything to itself; empty: it stays


def choose(
    options: ScaleDownOptions, listed: Sequence[Connector], candidates: Sequence[HeirCandidate]
) -> HeirCandidate | str:
    """The one that takes all, or why there is none. `listed` are the connectors that `options` name, in their order."""
    if not candidates:
        return "no node of the cluster is linked"
    if options.discovery_group_ref:
        candidates = [each for each in candidates if each.discovery_group == options.discovery_group_ref]
        if not candidates:
            return f"no node is linked that discovery group {options.discovery_group_ref} found"
    if options.group_name:
        candidates = [each for each in candidates if each.group == options.group_name]
        if not candidates:
            return f"no node of scale-down group {options.group_name} is linked"
    staying = sorted((each for each in candidates if not each.heir), key=lambda each: each.node_id)
    if not staying:
        return "all nodes that could take them leave themselves, or take no messages"
    if not options.connectors:
        return staying[0]
    at = (each for connector in listed for each in staying if connector.place in each.places)
    return next(at, "no node that scale-down.connectors lead to is linked")
