"""A node's backup as another node takes it: messages and queues, and nothing that was said of that node itself.

What cannot be taken over without losing something or waiting for ever is refused by name: it stays in the backup, and
its own node, or a successor with its id, can go on with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from mqbroker.base.errors import ConfigFault
from mqbroker.core.address.stored_tables import kinds_in
from mqbroker.core.cluster import cordon, scale_down
from mqbroker.journal.recovered import Recovered

REMEDY: Final = "give it to its own node, or to a new one that becomes it (--keep-node-id)"


def is_cordoned(recovered: Recovered) -> bool:
    """Whether the node let no client in."""
    return bool(recovered.duplicates.get(cordon.NAME))


def is_leaving(recovered: Recovered) -> bool:
    """Whether its messages were on their way to an heir."""
    return bool(recovered.duplicates.get(scale_down.NAME)) or any(kind.is_draining for _, kind in kinds_in(recovered))


def notes_of(recovered: Recovered) -> tuple[str, ...]:
    """What the node of this backup goes on with when it is started as itself."""
    notes = []
    if is_cordoned(recovered):
        notes.append("the node was cordoned when the backup was made, and is so again: mqctl undrain has it serve")
    if is_leaving(recovered):
        why = "the node was leaving when the backup was made, and goes on with that when it is started"
        notes.append(f"{why}: mqctl scale-down --cancel takes that back")
    return tuple(notes)


def left_out(recovered: Recovered, backup_id: str, node_id: str) -> dict[int, str]:
    """Queues that are nothing at the node with this id, by their ids: ways to itself, in which nothing waits. Raises
    ConfigFault for a backup that it cannot take."""
    if is_leaving(recovered):
        raise ConfigFault(backup_id, f"was made while its node was leaving, and its queues go to an heir; {REMEDY}")
    contents = recovered.queue_contents()
    names: dict[int, str] = {}
    for queue_id, kind in kinds_in(recovered):
        if kind.is_forwarding and kind.forwards_to == node_id:
            if waiting := sum(count for _, count, _ in contents[queue_id]):
                why = f"has {waiting} messages of address {kind.address} that wait for the node here"
                raise ConfigFault(backup_id, f"{why}, and a node sends nothing to itself; {REMEDY}")
            names[queue_id] = kind.name
    return names


def for_another(rows: Iterable[dict[str, Any]], without: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Rows of an export (core/store/journal_export.py) without these queues, and without what was said of the node."""
    left = set(without)
    for row in rows:
        if row["type"] == "queue" and row["id"] in left:
            continue
        if row["type"] == "ids" and row["name"] == cordon.NAME:
            continue
        yield row | {"queues": row["queues"] - len(left)} if row["type"] == "end" else row
