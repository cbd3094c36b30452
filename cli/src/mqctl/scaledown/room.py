"""Whether what moves to a node fits what its settings bound at each address.

What comes from another node is taken in as far as the link has credit. Where an address is full by `BLOCK` it has none,
and the drain stands until somebody consumes; by any other policy all is taken in, and then it is producers there who
are refused, or whose messages are dropped, until there is room again (core/queue/meter.py of the broker says how).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqctl.admin import AdminClient
from mqctl.nodes import open_admin
from mqctl.output import counted
from mqctl.scaledown.looks import NodeLook
from mqctl.scaledown.plan import DrainPlan
from mqctl.world import World

BLOCK, DROP, PAGE = "BLOCK", "DROP", "PAGE"
UNBOUNDED: Final = -1
RowsByNode = Mapping[str, Iterable[Mapping[str, Any]]]  # node -> what it says of each queue that moves


@dataclass(frozen=True, slots=True)
class AddressLoad:
    """Messages of one address, and their bytes as far as the broker knows them."""

    messages: int = 0
    size_bytes: int = 0

    def __add__(self, more: AddressLoad) -> AddressLoad:
        return AddressLoad(self.messages + more.messages, self.size_bytes + more.size_bytes)


def coming_to(plan: DrainPlan, rows: RowsByNode) -> dict[str, dict[str, AddressLoad]]:
    """Node that takes messages -> address -> what comes there from all that leave, where anything does."""
    found: dict[str, dict[str, AddressLoad]] = {}
    for leaving, queues in rows.items():
        at = found.setdefault(plan.targets[leaving].name, {})
        for row in queues:
            if row["left"]:
                more = AddressLoad(int(row["left"]), int(row.get("bytes", 0)))
                at[str(row["address"])] = at.get(str(row["address"]), AddressLoad()) + more
    return found


def lacking(world: World, plan: DrainPlan, rows: RowsByNode) -> list[str]:
    """What does not fit at the nodes that take the messages, each with what would become of it and a way out."""
    said: list[str] = []
    for name, coming in coming_to(plan, rows).items():
        target = next(one for one in plan.targets.values() if one.name == name)
        if coming:
            with open_admin(world, target.node) as session:
                said += _lacking_at(session, target, coming)
    return said


def _lacking_at(session: AdminClient, target: NodeLook, coming: Mapping[str, AddressLoad]) -> list[str]:
    sizes = {row["name"]: int(row.get("bytes") or 0) for row in session.call("addresses")["addresses"]}
    said = []
    for address, more in sorted(coming.items()):
        answer = session.call("address-settings-show", address=address)
        settings = {row["setting"]: row["value"] for row in answer["settings"]}
        count = sum(int(row["message_count"]) for row in target.queues if row["address"] == address)
        if why := why_it_does_not_fit(settings, AddressLoad(count, sizes.get(address, 0)), more):
            said.append(
                f"address {address} of {target.name}: {why}; raise that there, have it consumed, or --to another"
            )
    return said


def why_it_does_not_fit(settings: Mapping[str, Any], here: AddressLoad, coming: AddressLoad) -> str:
    """Empty where it does. `here`: what the address has already, in all its queues."""
    policy = str(settings["address-full-policy"])
    prefix = "page-limit" if policy == PAGE else "max-size"
    for unit, most, has, more in (
        ("messages", _bound(settings, prefix, "messages"), here.messages, coming.messages),
        ("bytes", _bound(settings, prefix, "bytes"), here.size_bytes, coming.size_bytes),
    ):
        if most == UNBOUNDED or has + more <= most:
            continue
        room = max(most - has, 0)
        what = counted(more, "message") if unit == "messages" else f"{more} bytes"
        return f"{what} come, and it has room for {room} ({prefix}-{unit}): {_what_then(settings, policy)}"
    return ""


def _bound(settings: Mapping[str, Any], prefix: str, unit: str) -> int:
    """What the address holds at most; what pages holds what may be in memory as well."""
    most = int(settings[f"{prefix}-{unit}"])
    if most < 0:
        return UNBOUNDED
    in_memory = int(settings[f"max-size-{unit}"]) if prefix == "page-limit" else 0
    return most + max(in_memory, 0)


def _what_then(settings: Mapping[str, Any], policy: str) -> str:
    if policy == BLOCK:
        return f"by {BLOCK} the drain stands until somebody consumes"
    says = str(settings["page-full-policy"]) if policy == PAGE else policy
    then = "what producers send there is dropped" if says == DROP else "producers there are refused"
    return f"by {policy} all is taken in, and {then} until somebody consumes"
