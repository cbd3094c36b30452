"""`mqctl events`."""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from mqbroker.base.text import one_line

from mqctl.admin import AdminClient
from mqctl.brokers.requests import PLACE, AskOptions, ListOperation, gather, nodes_meant, row_of
from mqctl.exits import Exit
from mqctl.nodes import Node, open_admin
from mqctl.output import Column, Format, Rows, write
from mqctl.world import World

COLUMNS = (
    Column("time"),
    Column("level"),
    Column("event"),
    Column("fields"),
    Column("position", is_number=True, wide_only=True),
)
SCHEMA = "mqctl.events/1"
FOLLOW_S = 1.0
LIMIT_MAX = 2000


class EventLevel(enum.StrEnum):
    """From what matters most to what matters least."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which events, and whether to wait for more."""

    level: Annotated[EventLevel, typer.Option(help="The least that matters.")] = EventLevel.INFO
    name: Annotated[str, typer.Option(help="Only events of this name; it may end in *.")] = "*"
    count: Annotated[int, typer.Option("--count", "-n", help="The last so many of a node.", min=1, max=2000)] = 100
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new ones as they happen, until Ctrl-C.")] = False


def run(world: World, options: Options) -> int:
    """Show what happened on all nodes lately, as their brokers remember it: oldest first, times in UTC.

    Exit code 3 if a node does not answer.
    """
    arguments = {"level": options.level.value, "name": options.name, "limit": options.count}
    if options.follow:
        return follow(world, options, arguments)
    rows, is_whole = gather(world, options, ListOperation(SCHEMA, "events", "events", COLUMNS, arguments=arguments))
    rows = [shown(row, options.shape.format) for row in sorted(rows, key=lambda row: row["time_ms"])]
    write(Rows(SCHEMA, (*PLACE, *COLUMNS), rows, {"is_whole": is_whole}), options.shape, world.data)
    return Exit.DONE if is_whole else Exit.DEGRADED


def follow(world: World, options: Options, arguments: dict[str, Any]) -> int:
    """Ask each node again and again for what is new; one line each, as JSON with -o json."""
    with ExitStack() as stack:
        sessions = [(node, stack.enter_context(open_admin(world, node))) for node in nodes_meant(world, options)]
        places = {node.name: 0 for node, _ in sessions}
        is_first = True
        while True:
            for node, session in sessions:
                said = arguments if is_first else arguments | {"after": places[node.name], "limit": LIMIT_MAX}
                places[node.name] = _show_new(world, options, (node, session), said)
            is_first = False
            world.out.flush()
            world.sleep_s(FOLLOW_S)


def _show_new(world: World, options: Options, at: tuple[Node, AdminClient], arguments: dict[str, Any]) -> int:
    node, session = at
    answer = session.call("events", **arguments)
    if answer["missed"]:
        world.note(f"mqctl: {node.name}: there was more than it remembers; some events are missing here")
    for one in answer["events"]:
        row = row_of(node, one, {})
        if options.shape.format is Format.JSON:
            world.out.write(json.dumps({"schema": SCHEMA, **shown(row, Format.JSON)}, ensure_ascii=False) + "\n")
        else:
            world.out.write(one_line(line_of(node.name, shown(row, Format.TABLE))) + "\n")
    return int(answer["position"])


def shown(row: Mapping[str, Any], format_: Format) -> dict[str, Any]:
    """A row with a time for people; the fields stay an object in JSON and become text elsewhere."""
    seconds, ms = divmod(row["time_ms"], 1000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    fields = row["fields"]
    text = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
    return {**row, "time": f"{stamp}.{ms:03}Z", "fields": fields if format_ is Format.JSON else text}


def _value(value: Any) -> str:
    """In quotes, as in the log, where it could be taken for more than one value or line."""
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if '"' in text or text.split() != [text] else text


def line_of(node: str, row: Mapping[str, Any]) -> str:
    """One event of a node on one line, for people."""
    return f"{row['time']} {node} {row['level']} {row['event']} {row['fields']}".rstrip()
