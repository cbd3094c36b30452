"""The table of the brokers of `mqctl dev`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mqctl.brokers.node_state import look
from mqctl.dev import process, state
from mqctl.errors import UsageError
from mqctl.exits import Exit
from mqctl.nodes import Node
from mqctl.output import Column, OutputShape, Rows, write
from mqctl.world import World

COLUMNS = (
    Column("node"),
    Column("state"),
    Column("url"),
    Column("pid", is_number=True),
    Column("queues", is_number=True),
    Column("messages", is_number=True),
    Column("log"),
)


def show(world: World, shape: OutputShape, place: Path) -> int:
    """Write the table for the brokers under `place`."""
    nodes = state.nodes(place)
    if not nodes:
        raise UsageError(f"there is no dev cluster in {place}", "mqctl dev up")
    rows = [row_of(world, one) for one in nodes]
    write(Rows("mqctl.dev/1", COLUMNS, rows, {"user": state.USER, "directory": str(place)}), shape, world.data)
    return Exit.DONE if all(row["state"] == "running" for row in rows) else Exit.DEGRADED


def row_of(world: World, one: state.DevNode) -> dict[str, Any]:
    """What is shown of one broker: whether it runs, and what it says of itself."""
    pid = state.running_pid(one)
    row: dict[str, Any] = {"node": one.name, "state": "stopped", "url": f"amqp://127.0.0.1:{one.port}", "pid": pid}
    row |= {"queues": None, "messages": None, "log": str(one.log)}
    if pid is not None:
        answer = look(world, Node(one.name, "default", socket=str(one.socket)), 5)
        row |= {name: answer.get(name) for name in ("state", "queues", "messages")}
    elif one.process_file.exists():
        row["state"] = f"ended: {process.last_words(one)}"
    return row
