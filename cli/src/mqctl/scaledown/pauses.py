"""What pauses where messages move to: told before it begins, and once they are there. Pure.

A queue that pauses goes on doing so where it is made at the other node, until somebody resumes it there; and what was
served stands where a queue of its name pauses there. What a node that drains says of the others is as of its links: who
is asked itself says how it is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mqctl.scaledown.cluster_look import NodeLook
from mqctl.scaledown.plan import RowsByNode
from mqctl.scaledown.refusals import NOBODY, made_by

NAMES_MAX: Final = 20  # queues that are named in one sentence


def pausing_at(target: NodeLook, before: RowsByNode = NOBODY) -> dict[str, bool]:
    """The queues of a node, and whether each pauses. `before`: by their names, what nodes say that leave earlier: the
    first that brings a queue has it made so, and one of an earlier release does not have it pause."""
    there = made_by(before) | {str(row["name"]): row for row in target.queues}
    return {name: bool(row.get("paused", False)) for name, row in there.items()}


def foreseen(target: NodeLook, rows: Iterable[Mapping[str, Any]], before: RowsByNode = NOBODY) -> list[str]:
    """What the plan says of the queues that move to a node; `rows`: of the nodes that leave for it, in which earlier
    releases do not say `paused`. To one that is empty something may be on its way."""
    there = pausing_at(target, before)
    moving = {(str(row["queue"]), bool(row["paused"]), bool(row["left"])) for row in rows if "paused" in row}
    made = {name for name, is_paused, _ in moving if is_paused and name not in there}
    stands = {name for name, is_paused, has_any in moving if has_any and there.get(name, False) and not is_paused}
    # Where it has any that hinders (room.py).
    goes = {name for name, is_paused, has_any in moving if not has_any and is_paused and not there.get(name, True)}
    texts = (
        (made, f"made paused at {target.name}, as here; {_resume(target.name, is_made=True)}"),
        (stands, f"paused at {target.name}, and not here; {_resume(target.name)}"),
        (goes, f"paused here and empty, and what still comes is handed out at {target.name}; {_pause(target.name)}"),
    )
    return [f"{_named(sorted(names))}: {text}" for names, text in texts if names]


def told_of(name: str, rows: Iterable[Mapping[str, Any]], looks: Sequence[NodeLook]) -> list[str]:
    """What became of the queues of a node that drains or has left: `rows` of its receipt, `paused` and `heirs`, in
    which earlier releases say nothing of pauses. `looks`: at the other nodes, as far as they answered."""
    said: dict[str, list[str]] = {}
    for row, heir, look, is_paused in _heirs(rows, {one.node_id: one for one in looks if not one.fault}):
        to = str(heir.get("node") or heir["node_id"]) if look is None else look.name
        host = "" if look is None else look.name
        if is_paused:
            text = f"paused at {to}; {_resume(host)}"
        elif row.get("paused"):
            text = f"paused here, and handed out at {to}; {_pause(host)}"
        else:
            continue
        said.setdefault(text, []).append(str(row["queue"]))
    return [f"{name}: {_named(list(dict.fromkeys(names)))}: {text}" for text, names in said.items()]


def _heirs(
    rows: Iterable[Mapping[str, Any]], looks: Mapping[str, NodeLook]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], NodeLook | None, bool]]:
    """Each node that took some of a queue, or has it for what may come, and whether it is paused there: as it says
    now, else as it said it to the node that drains."""
    for row in rows:
        for heir in row.get("heirs", ()):
            if heir.get("paused_there") is None:
                continue
            look = looks.get(str(heir["node_id"]))
            queues = [] if look is None else [one for one in look.queues if one["name"] == row["queue"]]
            if look is None or queues:  # else it is gone there since, and nothing stands
                yield row, heir, look, bool(queues[0].get("paused") if queues else heir["paused_there"])


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"queue {', '.join(names[:NAMES_MAX])}{more}"


def _resume(node: str, *, is_made: bool = False) -> str:
    """One that is made pauses by itself; one that is there may do so for the sake of its address as well."""
    also = "" if is_made else f", and mqctl address resume ADDRESS {_at(node)} where its address pauses there too"
    return f"what is there stands until mqctl queue resume NAME {_at(node)}{also}"


def _pause(node: str) -> str:
    return f"mqctl queue pause NAME {_at(node)} has it wait there as well"


def _at(node: str) -> str:
    """The option of a command; where nobody knows the name that mqctl has for the node, in words."""
    return f"--host {node}" if node else "there"
