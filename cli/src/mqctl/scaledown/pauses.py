"""What pauses where messages move to: told before it begins, and once they are there. Pure.

A queue that pauses goes on doing so where it is made at the other node, until somebody resumes it there; and what was
served stands where a queue of its name pauses there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mqctl.scaledown.looks import NodeLook

NAMES_MAX: Final = 20  # queues that are named in one sentence


def foreseen(target: NodeLook, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the plan says of the queues that move to a node; `rows`: of the nodes that leave for it, in which earlier
    releases do not say `paused`."""
    there = {str(row["name"]): bool(row.get("paused", False)) for row in target.queues}
    moving = {(str(row["queue"]), bool(row["paused"])) for row in rows if row["left"] and "paused" in row}
    made = sorted({name for name, is_paused in moving if is_paused and name not in there})
    stands = sorted({name for name, is_paused in moving if there.get(name, False) and not is_paused})
    return [
        *([f"{_named(made)}: made paused at {target.name}, as here; {_resume(target.name)}"] if made else []),
        *([f"{_named(stands)}: paused at {target.name}, and not here; {_resume(target.name)}"] if stands else []),
    ]


def told_of(name: str, answer: Mapping[str, Any]) -> list[str]:
    """What a node that drains says of its queues by now, as `scale-down-show` answers; nothing of an earlier release,
    or of another node that has not said."""
    to, rows = str(answer.get("node") or "?"), answer.get("queues", ())
    paused = [str(row["queue"]) for row in rows if row.get("paused_there")]
    served = [str(row["queue"]) for row in rows if row.get("paused") and row.get("paused_there") is False]
    return [
        *([f"{name}: {_named(paused)}: paused at {to}; {_resume(to)}"] if paused else []),
        *(
            [f"{name}: {_named(served)}: paused here, and handed out at {to}; mqctl queue pause NAME --host {to} there"]
            if served
            else []
        ),
    ]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"queue {', '.join(names[:NAMES_MAX])}{more}"


def _resume(node: str) -> str:
    return f"what is there stands until mqctl queue resume NAME --host {node}, or mqctl address resume of its address"
