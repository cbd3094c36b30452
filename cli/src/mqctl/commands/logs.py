"""`mqctl logs`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mqctl.asking import PLACE, AskOptions, nodes_meant
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node, shell
from mqctl.output import Column, Format, Rows, printable, write
from mqctl.progress import counting
from mqctl.ssh import shell as remote
from mqctl.world import World

COLUMNS = (Column("time"), Column("level"), Column("message"))
LEVELS = ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug")
JOURNAL_TIME_S = 60.0
TAIL_BYTES_MAX = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which lines."""

    count: Annotated[
        int, typer.Option("--count", "-n", help="The last so many lines of a node.", min=1, max=10_000)
    ] = 100
    since: Annotated[str, typer.Option(help="Not older, as journalctl takes it: 'yesterday', '-1h'.")] = ""


def run(world: World, options: Options) -> int:
    """Show the log of the brokers of all nodes: what journald has of their units. Exit code 3 if a host is silent.

    A line is written as time, node, level and message, or as rows with -o json and -o csv.
    """
    nodes = nodes_meant(world, options)
    rows: list[dict[str, Any]] = []
    is_whole = True
    with counting(world, "hosts asked", len(nodes)) as advance:
        for _, found in on_each(nodes, lambda one: lines_of(world, one, options), lambda _: advance(1)):
            if isinstance(found, CommandError):
                is_whole = False
                world.note(f"mqctl: {found.what}")
            else:
                rows += found
    rows.sort(key=lambda row: str(row["time"]))
    if options.shape.format is Format.TABLE and not options.shape.columns:
        for row in rows:
            place = row["host"] if row["instance"] == "default" else f"{row['host']}/{row['instance']}"
            world.out.write(printable(f"{row['time']} {place} {row['level']} {row['message']}") + "\n")
    else:
        write(Rows("mqctl.logs/1", (*PLACE, *COLUMNS), rows, {"is_whole": is_whole}), options.shape, world.data)
    return Exit.DONE if is_whole else Exit.DEGRADED


def lines_of(world: World, node: Node, options: Options) -> list[dict[str, Any]]:
    """The last lines of one node, oldest first."""
    place = {"host": node.host, "instance": node.instance}
    if node.access is None:
        if options.since:
            raise CommandError(f"{node.name}: brokers of `mqctl dev` have no journal, --since does not go with them")
        return [place | row for row in of_file(Path(node.socket).parent / "log", options.count)]
    command = ["journalctl", f"--unit=mqbroker@{node.instance}.service", f"--lines={options.count}", "--output=json"]
    command += ["--no-pager", "--quiet", *([f"--since={options.since}"] if options.since else [])]
    result = remote.run(shell(world, node.access), command, timeout_s=JOURNAL_TIME_S)
    if result.code:
        raise CommandError(f"{node.name}: journalctl: {result.complaint}", f"mqctl logs --host {node.name}")
    return [place | of_journal(json.loads(line)) for line in result.out.splitlines() if line.strip()]


def of_journal(entry: dict[str, Any]) -> dict[str, Any]:
    """One entry of journalctl's JSON; a message that is not UTF-8 comes as a list of bytes."""
    message = entry.get("MESSAGE")
    text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message or "")
    priority = str(entry.get("PRIORITY", "6"))
    level = LEVELS[int(priority)] if priority in "01234567" else priority
    return {"time": stamp(int(entry.get("__REALTIME_TIMESTAMP", 0))), "level": level, "message": text}


def stamp(time_us: int) -> str:
    """UTC, with milliseconds, as brokers write it themselves."""
    seconds, us = divmod(time_us, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{us // 1000:03}Z"


def of_file(path: Path, count: int) -> list[dict[str, Any]]:
    """The last lines of the log of a broker of `mqctl dev`; what is no line of the broker's has no time."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - TAIL_BYTES_MAX, 0))
            lines = file.read().decode(errors="replace").splitlines()[-count:]
    except OSError as fault:
        raise CommandError(f"{path}: {fault.strerror}", "mqctl dev status") from None
    return [_row(line) for line in lines]


def _row(line: str) -> dict[str, Any]:
    moment, _, rest = line.partition(" ")
    level, _, message = rest.partition(" ")
    if moment.endswith("Z") and level.lower() in LEVELS:
        return {"time": moment, "level": level.lower(), "message": message.strip()}
    return {"time": "", "level": "", "message": line}
