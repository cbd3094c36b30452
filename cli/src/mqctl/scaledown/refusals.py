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
NOBODY: Final[Mapping[str, Iterable[Row]]] = {}


def refused(
    session: AdminClient,
    target: NodeLook,
    rows: Iterable[Row],
    addresses: Mapping[str, Row],
    before: Mapping[str, Iterable[Row]] = NOBODY,
) -> list[str]:
    """`rows`: what nodes that leave say of each queue that moves there; `addresses`: those of the target by name;
    `before`: by their names, what nodes say that leave earlier, of queues which are there by then."""
    moving = list(rows)
    full = [row for row in moving if row["left"] and row.get("routing_type") != RING]
    there = _there(session, target, full)
    made = {name: row for name, row in made_by(before).items() if name not in there}
    said = {text for row in full if row["queue"] in there for text in _on_other_terms(target, row, there)}
    said |= {text for row in full if row["queue"] not in there for text in _of_another_kind(target, row, addresses)}
    said |= {text for row in full if row["queue"] in made for text in _made_otherwise(target, row, made)}
    new = [row for row in moving if row["queue"] not in there]
    # Those that are empty are made as well, and take the room of others; alone they hold up nothing.
    is_asked = any(row["left"] for row in new)
    return sorted(said) + (_too_many(session, target, len(there), new, made) if is_asked else [])


def made_by(before: Mapping[str, Iterable[Row]]) -> dict[str, Row]:
    """The queues of those that leave earlier, by name: who brings one first has it made, and later ones find it so."""
    made: dict[str, Row] = {}
    for row in (row for queues in before.values() for row in queues):
        made.setdefault(str(row["queue"]), row)
    return made


def _there(session: AdminClient, target: NodeLook, full: Iterable[Row]) -> dict[str, Row]:
    """The queues of the target, with all that it says of namesakes of those that have something. One that has gone
    since the look, as with its last consumer, is made as it is here."""
    there: dict[str, Row] = {str(row["name"]): row for row in target.queues}
    for name in {str(row["queue"]) for row in full if "terms" in row} & {*there}:
        try:
            there[name] = session.call("queue-show", name=name)
        except AdminError as error:
            if error.condition != NOT_FOUND:
                raise
            del there[name]
    return there


def _on_other_terms(target: NodeLook, row: Row, there: Mapping[str, Row]) -> list[str]:
    """Earlier releases say no terms but the address and the routing."""
    name, shown = str(row["queue"]), there[row["queue"]]
    terms: Row = row.get("terms") or {each: row[each] for each in ("address", "routing_type") if each in row}
    what = _differences(terms, shown)
    if not what:
        return []
    why = f"it is there on other terms, and would not keep what that one does: {what}"
    return [f"queue {name} of {target.name}: {why}; delete it there, make it as it is here, or --to another"]


def _made_otherwise(target: NodeLook, row: Row, made: Mapping[str, Row]) -> list[str]:
    """By what one brings there that leaves before."""
    name = str(row["queue"])
    what = _differences(row.get("terms") or {}, made[name].get("terms") or {})
    if not what:
        return []
    why = f"one of the hosts before has it on other terms, and it would not keep what this one does: {what}"
    return [f"queue {name} of {target.name}: {why}; make both alike, or have each leave by itself, with --to"]


def _differences(terms: Row, there: Row) -> str:
    different = [each for each, value in terms.items() if each in there and there[each] != value]
    return ", ".join(f"{each.replace('_', '-')} is {there[each]!r} there" for each in different)


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


def _too_many(
    session: AdminClient, target: NodeLook, count: int, new: Sequence[Row], made: Mapping[str, Row]
) -> list[str]:
    """`count`: how many are there; `made`: those that are by then."""
    rows = session.call("config-show")["options"]
    most = next((int(row["value"]) for row in rows if row["option"] == QUEUES_MAX), None)
    more = len({str(row["queue"]) for row in new} - {*made})
    if most is None or count + len(made) + more <= most:
        return []
    beside = f" beside {len(made)} of the hosts before" if made else ""
    return [
        f"{target.name} has {counted(count, 'queue')}, {more} more come{beside}, and it takes {most} (queues-max): "
        "raise that there, or --to another"
    ]
