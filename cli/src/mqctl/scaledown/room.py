"""Whether what moves to a node fits what its settings bound at each address.

What comes from another node is taken in as far as the link has credit. Where an address is full by `BLOCK` it has none,
and the drain stands until somebody consumes; by any other policy all is taken in, and then it is producers there who
are refused, or whose messages are dropped, until there is room again (core/queue/meter.py of the broker says how).
Where a queue of the address cannot page, `PAGE` is `BLOCK`. A queue that pauses is made so at the other node; one that
is there and does not pause hands out what comes, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqctl.admin import AdminClient
from mqctl.nodes import open_admin
from mqctl.output import counted
from mqctl.scaledown.cluster_look import NodeLook
from mqctl.scaledown.pauses import pausing_at
from mqctl.scaledown.plan import DrainPlan, RowsByNode
from mqctl.scaledown.refusals import NOBODY, RING, refused
from mqctl.world import World

BLOCK, DROP, PAGE = "BLOCK", "DROP", "PAGE"
MESSAGES: Final = "messages"
UNITS: Final = (MESSAGES, "bytes")


@dataclass(frozen=True, slots=True)
class AddressLoad:
    """Messages of one address, and their bytes as far as the broker knows them; whether all of its queues can page, and
    whether it pauses and its release does not make its queues so at the other node; the nodes that they come from."""

    messages: int = 0
    size_bytes: int = 0
    can_page: bool = True
    is_paused: bool = False
    sources: tuple[str, ...] = field(default=(), compare=False)

    def __add__(self, more: AddressLoad) -> AddressLoad:
        return AddressLoad(
            self.messages + more.messages,
            self.size_bytes + more.size_bytes,
            self.can_page and more.can_page,
            self.is_paused or more.is_paused,
            tuple(dict.fromkeys((*self.sources, *more.sources))),
        )

    def of(self, unit: str) -> int:
        """In `messages` or `bytes`."""
        return self.messages if unit == MESSAGES else self.size_bytes


def coming_to(plan: DrainPlan, rows: RowsByNode) -> dict[str, dict[str, AddressLoad]]:
    """Node that takes messages -> address -> what comes there from all that leave, where anything does."""
    by_node: dict[str, dict[str, AddressLoad]] = {}
    for leaving, queues in rows.items():
        at = by_node.setdefault(plan.targets[leaving].name, {})
        for row in queues:
            if row["left"] and row.get("routing_type") != RING:
                can_page = bool(row.get("can_page", True))
                is_paused = "paused" not in row and bool(row.get("address_paused", False))
                more = AddressLoad(int(row["left"]), int(row.get("bytes", 0)), can_page, is_paused, (leaving,))
                at[str(row["address"])] = at.get(str(row["address"]), AddressLoad()) + more
    return by_node


def lacking(world: World, plan: DrainPlan) -> list[str]:
    """What does not fit at the nodes that take the messages, or is refused there, each with what would become of it
    and a way out. What those bring there that leave before is there by then."""
    said: list[str] = []
    together = coming_to(plan.together, plan.together.moving)
    for name, coming in coming_to(plan, plan.moving).items():
        target = next(one for one in plan.targets.values() if one.name == name)
        own = [row for queues in plan.going_to(name).values() for row in queues]
        before = plan.there_before(name)
        if coming:
            with open_admin(world, target.node) as session:
                there = {row["name"]: row for row in session.call("addresses")["addresses"]}
                said += refused(session, target, own, there, before)
                said += _lacking_at(session, target, there, coming, together[name])
        said += unpaused_at(target, own, before)
    return said


def unpaused_at(target: NodeLook, rows: Iterable[Mapping[str, Any]], before: RowsByNode = NOBODY) -> list[str]:
    """Queues that pause where they are and hold something, and that are there and do not, or will be by what those
    bring that leave `before`."""
    now, by_then = pausing_at(target), pausing_at(target, before)
    names = sorted({str(row["queue"]) for row in rows if row["left"] and row.get("paused", False)})
    here = "it does not pause there, so what moves is handed out; pause it there as well, or resume it"
    earlier = (
        "one of the hosts before has it, and it does not pause, so what moves is handed out; pause it at both, or "
        "resume it"
    )
    return [
        f"queue {name} of {target.name}: {here if name in now else earlier}"
        for name in names
        if not by_then.get(name, True)
    ]


def _lacking_at(
    session: AdminClient,
    target: NodeLook,
    there: Mapping[str, Mapping[str, Any]],
    coming: Mapping[str, AddressLoad],
    together: Mapping[str, AddressLoad],
) -> list[str]:
    """`together`: with what those bring that leave before."""
    said = []
    for address, more in sorted(coming.items()):
        answer = session.call("address-settings-show", address=address)
        settings = {row["setting"]: row["value"] for row in answer["settings"]}
        held = [row for row in target.queues if row["address"] == address and row.get("routing_type") != RING]
        count = sum(int(row["message_count"]) for row in held)
        row = there.get(address, {})
        here = AddressLoad(count, int(row.get("bytes") or 0), bool(row.get("can_page", True)))
        if why := why_it_does_not_fit(settings, here, together[address]):
            said.append(
                f"address {address} of {target.name}: {why}; raise that there, have it consumed, or --to another"
            )
        if more.is_paused and not row.get("paused", False):
            said.append(
                f"address {address} of {target.name}: it does not pause there, so what moves is handed out; "
                "pause it there as well, or resume it"
            )
    return said


def why_it_does_not_fit(settings: Mapping[str, Any], here: AddressLoad, coming: AddressLoad) -> str:
    """Empty where it does. `here`: what the address has already, in all its queues."""
    said, together = str(settings["address-full-policy"]), here + coming
    policy = BLOCK if said == PAGE and not together.can_page else said
    prefix = "page-limit" if policy == PAGE else "max-size"
    for unit in UNITS:
        most = _paged_most(settings, unit, together) if policy == PAGE else int(settings[f"{prefix}-{unit}"])
        if most < 0 or together.of(unit) <= most:
            continue
        room, more = max(most - here.of(unit), 0), coming.of(unit)
        what = counted(more, "message") if unit == MESSAGES else f"{more} bytes"
        whose = f" from {' and '.join(coming.sources)}" if len(coming.sources) > 1 else ""
        then = _what_then(settings, policy)
        why = "as a queue of it cannot page, " if policy != said else ""
        return f"{what} come{whose}, and it has room for {room} ({prefix}-{unit}): {why}{then}"
    return ""


def _paged_most(settings: Mapping[str, Any], unit: str, held: AddressLoad) -> int:
    """What the address holds at most where it pages so much: what may be paged, and what is in memory beside, which is
    as much of it as the tighter of the bounds of memory leaves. Below 0: nothing bounds it, or nothing is paged."""
    limit = int(settings[f"page-limit-{unit}"])
    bounds = ((int(settings[f"max-size-{each}"]), held.of(each)) for each in UNITS)
    shares = [most / has for most, has in bounds if 0 <= most < has]
    return limit + int(held.of(unit) * min(shares)) if limit >= 0 and shares else -1


def _what_then(settings: Mapping[str, Any], policy: str) -> str:
    if policy == BLOCK:
        return f"by {BLOCK} the drain stands until somebody consumes"
    says = str(settings["page-full-policy"]) if policy == PAGE else policy
    then = "what producers send there is dropped" if says == DROP else "producers there are refused"
    return f"by {policy} all is taken in, and {then} until somebody consumes"
