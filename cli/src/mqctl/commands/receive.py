"""`mqctl receive`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from mqbroker.base.text import printable

from mqctl import messages
from mqctl.admin import AdminClient, AdminError
from mqctl.declare import ReaderOptions
from mqctl.errors import UsageError
from mqctl.exits import Exit
from mqctl.nodes import NodeCommandOptions, choose, nodes_of, open_admin
from mqctl.output import Format, OutputShape, cell_text
from mqctl.progress import counting
from mqctl.world import World

SCHEMA = "mqctl.message/1"
BATCH_COUNT_MAX = 500
WAIT_MS_MAX = 2000
NOT_FOUND = "amqp:not-found"
CSV_COLUMNS = ("message_id_in_queue", "message_id", "durable", "delivery_count", "size_bytes", "body")


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, NodeCommandOptions):
    """What to receive, from which node, and when to stop."""

    address: Annotated[str, typer.Argument(help="Address to receive from.")]
    count: Annotated[int, typer.Option(help="Stop after so many; 0: when nothing comes any more.", min=0)] = 0
    timeout: Annotated[float, typer.Option(help="Seconds without a message after which to stop.", min=0)] = 2.0
    selector: Annotated[str, typer.Option(help="Only messages that this selector matches: \"color = 'red'\".")] = ""
    host: Annotated[
        str,
        typer.Option("--host", "--from", help="Node to receive from: a host, or host/instance. [default: the first]"),
    ] = ""


def run(world: World, options: Options) -> int:
    """Receive messages of an address from one node, bodies one a line, -o json as JSON lines with everything.

    A message leaves its queue only after it was written to standard output; whatever ends the command before puts it
    back. Exit code 3 if fewer came than --count asked for.
    """
    nodes = nodes_of(world, options)
    node = choose(nodes, options.host)
    if not options.host and len(nodes) > 1:
        world.note(f"from {node.name}, the first of {len(nodes)} nodes (--host chooses another)")
    emit = writer_of(world, options.shape)
    with (
        counting(world, f"receiving from {options.address}", options.count or None) as advance,
        open_admin(world, node) as session,
    ):
        received = drain(world, session, options, lambda batch: _deliver(world, batch, emit, advance))
    world.note(f"{received} received from {options.address} on {node.name}")
    return Exit.DEGRADED if received < options.count else Exit.DONE


def _deliver(
    world: World, batch: list[dict[str, Any]], emit: Callable[[dict[str, Any]], None], advance: Callable[[int], None]
) -> None:
    for message in batch:
        emit(message)
    world.out.flush()
    advance(len(batch))


def drain(world: World, session: AdminClient, options: Options, deliver: Callable[[list[dict[str, Any]]], None]) -> int:
    """Receive, deliver, settle, until there are enough or nothing has come for long enough."""
    received = 0
    quiet_since_s = world.monotonic_s()
    while not options.count or received < options.count:
        left_s = max(0.0, options.timeout - (world.monotonic_s() - quiet_since_s))
        wanted = min(BATCH_COUNT_MAX, options.count - received) if options.count else BATCH_COUNT_MAX
        wait_ms = round(min(WAIT_MS_MAX, left_s * 1000))  # the time may be infinite
        try:
            answer = session.call(
                "receive", wait_ms / 1000, address=options.address, count_max=wanted, wait_ms=wait_ms,
                selector=options.selector,
            )  # fmt: skip
        except AdminError as error:
            if received and error.condition == NOT_FOUND:
                break  # a queue that nobody made by hand goes when it is empty
            raise
        batch = answer.get("messages") or []
        if batch:
            deliver(batch)
            session.call("settle", tag=answer["tag"], outcome="accepted")
            received += len(batch)
            quiet_since_s = world.monotonic_s()
        elif left_s <= 0 or wait_ms >= left_s * 1000:
            break
    return received


def writer_of(world: World, shape: OutputShape) -> Callable[[dict[str, Any]], None]:
    """How one message is written: a line of JSON, a row of CSV, or the body."""
    out = world.out
    if shape.format is Format.JSON:
        return lambda message: _write_json(out, message, shape.columns)
    if shape.format is Format.CSV:
        names = shape.columns or CSV_COLUMNS
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(names)
        return lambda message: rows.writerow([cell_text(flat(message).get(name)) for name in names])
    if shape.columns:
        raise UsageError("--columns goes with -o json or -o csv here", "mqctl receive ADDRESS -o csv --columns body")
    if out.isatty():
        return lambda message: _print_text(world, messages.body_of(message).decode(errors="replace"))
    return lambda message: _write_raw(world, messages.body_of(message))


def flat(message: dict[str, Any]) -> dict[str, Any]:
    """A message with header, properties and body side by side, for CSV."""
    rest = {name: value for name, value in message.items() if not isinstance(value, dict)}
    for part in ("header", "properties"):
        rest |= {name.replace("-", "_"): value for name, value in (message.get(part) or {}).items()}
    return rest | {"body": messages.body_of(message).decode(errors="replace")}


def _write_json(out: Any, message: dict[str, Any], columns: tuple[str, ...]) -> None:
    kept = {name: flat(message).get(name) for name in columns} if columns else message
    out.write(json.dumps({"schema": SCHEMA, **kept}, ensure_ascii=False) + "\n")


def _print_text(world: World, text: str) -> None:
    world.data.print(printable(text), soft_wrap=True)


def _write_raw(world: World, body: bytes) -> None:
    """Bytes as they are, so that what is piped on is what was sent."""
    raw = getattr(world.out, "buffer", None)
    if raw is None:
        world.out.write(body.decode(errors="replace") + "\n")
        return
    world.out.flush()
    raw.write(body + b"\n")
