"""`mqctl logs`."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from mqbroker.base.text import printable

from mqctl.brokers import journald
from mqctl.brokers.requests import PLACE, AskOptions, nodes_meant
from mqctl.dev import log as dev_log
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.fanout import as_it_comes, on_each
from mqctl.inventory import node_name
from mqctl.nodes import Node
from mqctl.output import Column, Format, Rows, cell_text, chosen_columns, write
from mqctl.progress import counting
from mqctl.world import World

COLUMNS = (Column("time"), Column("level"), Column("message"))
SCHEMA = "mqctl.logs/1"
COUNT_MAX = 10_000

LogRow = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which lines, and whether to wait for more."""

    count: Annotated[
        int, typer.Option("--count", "-n", help="The last so many lines of a node.", min=1, max=COUNT_MAX)
    ] = 100
    since: Annotated[str, typer.Option(help="Not older, as journalctl takes it: 'yesterday', '-1h'.")] = ""
    grep: Annotated[
        str, typer.Option(help=f"Only lines with a match of this pattern (as of Python's re), of the last {COUNT_MAX}.")
    ] = ""
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new ones as they come, until Ctrl-C.")] = False


def run(world: World, options: Options) -> int:
    """Show the log of the brokers of all nodes: what journald has of their units. Exit code 3 if a host is silent.

    A line is written as time, node, level and message, or as rows with -o json and -o csv.
    """
    nodes = nodes_meant(world, options)
    matches = _matcher(options.grep)
    if options.since and any(node.access is None for node in nodes):
        raise UsageError("brokers of `mqctl dev` have no journal, --since does not go with them", "mqctl logs --dev")
    if options.follow:
        return follow(world, nodes, options, matches)
    rows: list[LogRow] = []
    is_whole = True
    with counting(world, "hosts asked", len(nodes)) as advance:
        for _, lines in on_each(nodes, lambda one: lines_of(world, one, options, matches), lambda _: advance(1)):
            if isinstance(lines, CommandError):
                is_whole = False
                world.note(f"mqctl: {lines.what}")
            else:
                rows += lines
    rows.sort(key=lambda row: str(row["time"]))
    if options.shape.format is Format.TABLE and not options.shape.columns:
        for row in rows:
            _write_line(world, line_of(row))
    else:
        write(Rows(SCHEMA, (*PLACE, *COLUMNS), rows, {"is_whole": is_whole}), options.shape, world.data)
    return Exit.DONE if is_whole else Exit.DEGRADED


def _matcher(pattern: str) -> Callable[[LogRow], bool]:
    try:
        wanted = re.compile(pattern)
    except re.error as fault:
        raise UsageError(f"--grep {pattern}: {fault}", "mqctl logs --grep 'login-.*'") from None
    return lambda row: wanted.search(row["message"]) is not None


def lines_of(world: World, node: Node, options: Options, matches: Callable[[LogRow], bool]) -> list[LogRow]:
    """The last lines of one node, oldest first."""
    looked_at = COUNT_MAX if options.grep else options.count
    if node.access is None:
        rows = [_placed(node, row) for row in dev_log.last_lines(_file(node), looked_at)]
    else:
        rows = journald.last_lines(world, node, looked_at, options.since)
    return [row for row in rows if matches(row)][-options.count :]


def follow(world: World, nodes: list[Node], options: Options, matches: Callable[[LogRow], bool]) -> int:
    """All hosts at once, in the order in which their lines come. It ends by itself only when no host is left."""
    write_row = _writer(world, options)
    by_host: dict[str, list[Node]] = {}
    for node in nodes:
        by_host.setdefault(node.host, []).append(node)
    for _, row in as_it_comes(list(by_host.values()), lambda some: _followed(world, some, options)):
        if isinstance(row, CommandError):
            world.note(f"mqctl: {row.what}")
        elif matches(row):
            write_row(row)
            world.out.flush()
    return Exit.DEGRADED


def _followed(world: World, nodes: list[Node], options: Options) -> Iterator[LogRow]:
    first = nodes[0]
    if first.access is None:
        return (_placed(first, row) for row in dev_log.followed(_file(first), options.count))
    return journald.followed(world, nodes, options.count, options.since)


def _writer(world: World, options: Options) -> Callable[[LogRow], None]:
    """How one row is written at a time."""
    shape = options.shape
    names = [one.name for one in chosen_columns(Rows(SCHEMA, (*PLACE, *COLUMNS)), shape)]
    if shape.format is Format.JSON:
        return lambda row: _write_json(world, {name: row[name] for name in names})
    if shape.format is Format.CSV:
        writer = csv.writer(world.out, lineterminator="\n")
        writer.writerow(names)
        return lambda row: writer.writerow([cell_text(row[name]) for name in names])
    if shape.columns:
        return lambda row: _write_line(world, " ".join(cell_text(row[name]) for name in names))
    return lambda row: _write_line(world, line_of(row))


def _write_json(world: World, row: LogRow) -> None:
    world.out.write(json.dumps({"schema": SCHEMA, **row}, ensure_ascii=False) + "\n")


def _write_line(world: World, text: str) -> None:
    world.out.write(printable(text) + "\n")


def line_of(row: LogRow) -> str:
    """One row of a log on one line, for people."""
    place = node_name(row["host"], row["instance"])
    return f"{row['time']} {place} {row['level']} {row['message']}"


def _placed(node: Node, row: LogRow) -> LogRow:
    return {"host": node.host, "instance": node.instance} | row


def _file(node: Node) -> Path:
    return Path(node.socket).parent / "log"
