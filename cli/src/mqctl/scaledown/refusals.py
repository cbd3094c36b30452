"""What the node that takes the messages would refuse of queues, which it says else only when clients have gone.

A queue that is there by the same name on other terms does not keep what the one that moves does; one that is not there
is not made at an address that was made for others, nor beyond `queues-max` (core/queue/creation of the broker, and
node/cluster/membership/arrival_links.py). What an address keeps for later queues has no terms. An empty queue that is
refused holds up nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mqctl.admin import AdminClient, AdminError
from mqctl.output import counted
from mqctl.scaledown.cluster_look import NOT_FOUND, NodeLook

RING: Final = "retroactive"  # the routing of what an address keeps for later queues
QUEUES_MAX: Final = "limits.queues-max"
Row = Mapping[str, Any]


def refused(session: AdminClient, target: NodeLook, rows: Iterable[Row], addresses: Mapping[str, Row]) -> list[str]:
    """`rows`: what nodes that leave say of each queue that moves there; `addresses`: those of the target by name."""
    there = {str(row["name"]): row for row in target.queues}
    moving = list(rows)
    full = [row for row in moving if row["left"] and row.get("routing_type") != RING]
    said = {text for row in full if row["queue"] in there for text in _on_other_terms(session, target, row, there)}
    said |= {text for row in full if row["queue"] not in there for text in _of_another_kind(target, row, addresses)}
    new = [row for row in moving if row["queue"] not in there]
    # Those that are empty are made as well, and take the room of others; alone they hold up nothing.
    return sorted(said) + (_too_many(session, target, new) if any(row["left"] for row in new) else [])


def _on_other_terms(session: AdminClient, target: NodeLook, row: Row, there: Mapping[str, Row]) -> list[str]:
    """Earlier releases say no terms but the address and the routing."""
    name, shown = str(row["queue"]), there[row["queue"]]
    if "terms" in row:
        try:
            shown = session.call("queue-show", name=name)
        except AdminError as error:
            if error.condition != NOT_FOUND:
                raise
            return []  # it has gone since, as one that is deleted with its last consumer: it is made as it is here
    terms: Row = row.get("terms") or {each: row[each] for each in ("address", "routing_type") if each in row}
    different = [each for each, value in terms.items() if each in shown and shown[each] != value]
    if not different:
        return []
    what = ", ".join(f"{each.replace('_', '-')} is {shown[each]!r} there" for each in different)
    why = f"it is there on other terms, and would not keep what that one does: {what}"
    return [f"queue {name} of {target.name}: {why}; delete it there, make it as it is here, or --to another"]


def _of_another_kind(target: NodeLook, row: Row, addresses: Mapping[str, Row]) -> list[str]:
    """Of addresses that somebody made for some kinds of queues; what a file says of one is not known here."""
    address, routing = addresses.get(str(row["address"])), row.get("routing_type")
    if address is None or routing is None or address.get("auto_created", True) or address.get("configured", True):
        return []
    kinds: Sequence[str] = address["routing_types"]
    if routing in kinds:
        return []
    return [
        f"address {row['address']} of {target.name}: it was made for {' and '.join(kinds)} queues, and {row['queue']} "
        f"is {routing}; make it for both there, or --to another"
    ]


def _too_many(session: AdminClient, target: NodeLook, new: Sequence[Row]) -> list[str]:
    rows = session.call("config-show")["options"]
    most = next((int(row["value"]) for row in rows if row["option"] == QUEUES_MAX), None)
    count, more = len(target.queues), len({str(row["queue"]) for row in new})
    if most is None or count + more <= most:
        return []
    return [
        f"{target.name} has {counted(count, 'queue')}, {more} more come, and it takes {most} (queues-max): raise "
        "that there, or --to another"
    ]
