"""`mqctl operation show`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mqctl import operation
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.exits import Exit
from mqctl.inventory_faults import checked
from mqctl.output import Column, Rows, write
from mqctl.remote import operation as noting
from mqctl.world import World

COLUMNS = (
    Column("host"), Column("number", is_number=True), Column("state"), Column("command"), Column("user"),
    Column("machine"), Column("since"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """Of which cluster."""


def run(world: World, options: Options) -> int:
    """Show which operation the hosts are held by, or were last: its number, the command, who runs it, since when.

    One operation at a time changes a cluster. Its number grows, and each step of it is refused on a host that knows a
    higher one. It has no time after which it ends. `paused` is held, and nothing more of it
    begins. Exit code 3 if a host is not reached.
    """
    cluster = checked(world, options)
    found, faults = operation.look(world, cluster.hosts)
    for fault in faults.values():
        world.note(f"mqctl: {fault}")
    rows = [
        {"host": name, "number": note["number"], "state": state_of(note),
         "command": note["what"], "user": note["user"], "machine": note["machine"], "since": note["since"]}
        if note else {"host": name, "number": 0, "state": "free"}
        for name, note in found.items()
    ]  # fmt: skip
    write(Rows("mqctl.operation-show/1", COLUMNS, rows), options.shape, world.data)
    return Exit.DEGRADED if faults else Exit.DONE


def state_of(note: Mapping[str, Any]) -> str:
    """Whether what is noted holds the host, and whether somebody paused it."""
    if not note["is_held"]:
        return "free"
    return "paused" if note.get("wish") == noting.PAUSE else "held"
