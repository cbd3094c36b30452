"""`mqctl perf`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mqctl import inventory
from mqctl.brokers.requests import ActOptions, the_node
from mqctl.dev import state
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.nodes import Node, open_admin, shell
from mqctl.output import Column, Format, Rows, write
from mqctl.remote_program import command_of
from mqctl.ssh import shell as remote
from mqctl.world import World

PYTHON = "/opt/mq/current/bin/python"
COLUMNS = (
    Column("host"),
    Column("instance"),
    Column("what"),
    Column("messages", is_number=True),
    Column("per_s", is_number=True),
    Column("p50_ms", is_number=True),
    Column("p90_ms", is_number=True),
    Column("p99_ms", is_number=True),
    Column("p99.9_ms", is_number=True),
    Column("max_ms", is_number=True),
)
START_S = 60.0  # for all that is not sending: login, the last messages, a busy host
BAR_CHARACTERS = 50


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """How much, and through which queue."""

    queue: Annotated[str, typer.Option(help="Queue to send through. [default: a temporary one]")] = ""
    count: Annotated[int, typer.Option(help="Messages at most.", min=1, max=1_000_000)] = 10_000
    rate: Annotated[float, typer.Option(help="Messages a second; 0: as many as it takes.", min=0, max=100_000)] = 0
    duration: Annotated[float, typer.Option(help="Seconds after which no more are sent.", min=0.1, max=3600)] = 10
    size: Annotated[int, typer.Option(help="Bytes of a body.", min=8, max=1_000_000)] = 100
    in_flight: Annotated[int, typer.Option(help="Messages without an outcome at most.", min=1, max=1000)] = 100
    durable: Annotated[bool, typer.Option(help="Durable messages: accepted when they are on the disk.")] = True
    user: Annotated[str, typer.Option(help="User to log in as. [default: the first of mq_users]")] = ""
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Also where the queue has messages or consumers.")] = False


def run(world: World, options: Options) -> int:
    """Put load on one node and measure it: send messages through a queue, receive them again, show how long they took.

    The client runs on the node's host. `accepted` is until the broker has taken a message, `received` until it came
    back, both from when the message was due. Exit code 3 if messages did not come back.
    """
    node = the_node(world, options)
    if options.queue and not options.yes:
        refuse_used(world, node, options.queue)
    login = _login(world, options, node)
    request = {
        "queue": options.queue, "count": options.count, "rate": options.rate, "seconds_max": options.duration,
        "size": options.size, "in_flight": options.in_flight, "durable": options.durable, **login,
    }  # fmt: skip
    measured = _run(world, node, request, options.duration + START_S)
    rows = [row_of(node, "accepted", measured["sent_per_s"], measured["accepted_ms"]),
            row_of(node, "received", measured["received_per_s"], measured["received_ms"])]  # fmt: skip
    extra = {name: measured[name]["histogram"] for name in ("accepted_ms", "received_ms")}
    write(Rows("mqctl.perf/1", COLUMNS, rows, {"histograms": extra}), options.shape, world.data)
    if options.shape.format is Format.TABLE:
        world.out.write("\nreceived after at most\n" + "".join(f"{line}\n" for line in drawn(extra["received_ms"])))
    return _verdict(world, options, measured)


def _verdict(world: World, options: Options, measured: Mapping[str, Any]) -> Exit:
    if measured["fault"]:
        raise CommandError(f"sending ended early: {measured['fault']}", "mqctl events")
    missing = measured["sent"] - measured["received"]
    if missing:
        where = (
            f"stay in {options.queue}, or another consumer took them" if options.queue else "are gone with the queue"
        )
        world.note(f"{missing} of {measured['sent']} messages did not come back within 10 s; they {where}")
        return Exit.DEGRADED
    return Exit.DONE


def refuse_used(world: World, node: Node, queue: str) -> None:
    """A queue that somebody uses is no place for a measurement."""
    with open_admin(world, node) as session:
        for one in session.call("queues")["queues"]:
            if one["name"] == queue and (one["message_count"] or one["consumer_count"]):
                raise UsageError(
                    f"{node.name}: queue {queue} has {one['message_count']} messages and {one['consumer_count']} "
                    "consumers; nothing was sent",
                    "the same command without --queue, or with --yes",
                )


def _login(world: World, options: Options, node: Node) -> dict[str, str]:
    """Who logs in, and where the broker's options say that it listens."""
    if node.access is None:
        folder = state.folder(world.environ, options.directory)
        password = (folder / "password").read_text().strip()
        return {"user": state.USER, "password": password, "options_file": str(Path(node.socket).parent / "broker.toml")}
    users = inventory.load(world, options).host(node.host).variables.get("mq_users") or []
    for one in users:
        if options.user in ("", one.get("name")):
            path = f"/etc/mq/{node.instance}/broker.toml"
            return {"user": str(one["name"]), "password": str(one["password"]), "options_file": path}
    known = ", ".join(str(one.get("name")) for one in users) or "none"
    raise UsageError(f"--user {options.user}: the inventory has no such user (mq_users: {known})")


def _run(world: World, node: Node, request: Mapping[str, Any], time_s: float) -> dict[str, Any]:
    line = json.dumps(request).encode() + b"\n"
    if node.access is None:
        command, program = command_of(sys.executable, "perf.py")
        try:
            done = subprocess.run(command, input=program + line, capture_output=True, timeout=time_s, check=False)
        except subprocess.TimeoutExpired:
            raise CommandError(f"{node.name}: no answer within {time_s:g} s", "mqctl dev status") from None
        result = remote.CommandResult(done.returncode, done.stdout, done.stderr)
    else:
        command, program = command_of(PYTHON, "perf.py")
        result = remote.run(shell(world, node.access), command, program + line, time_s)
    if result.code != 0:
        raise CommandError(f"{node.name}: the measurement failed: {result.complaint}", "mqctl status")
    measured: dict[str, Any] = json.loads(result.out)
    return measured


def row_of(node: Node, what: str, per_s: float, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one kind of time: rate per second, and percentiles in ms."""
    times = {f"{name}_ms": summary.get(name) for name in ("p50", "p90", "p99", "p99.9", "max")}
    place = {"host": node.host, "instance": node.instance}
    return {**place, "what": what, "messages": summary["count"], "per_s": per_s, **times}


def drawn(histogram: list[dict[str, Any]]) -> list[str]:
    """A line for each bound, its bar as long as its share of the longest."""
    most = max((one["count"] for one in histogram), default=0)
    lines = []
    for one in histogram:
        bar = "#" * round(BAR_CHARACTERS * one["count"] / most)
        lines.append(f"{one['ms_max']:>11g} ms {one['count']:>8} {bar}".rstrip())
    return lines
