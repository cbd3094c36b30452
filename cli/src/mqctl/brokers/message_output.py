"""Messages as commands write them: as bodies, as lines of JSON, or as rows of CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import Any

from mqbroker.base.text import printable

from mqctl.brokers import messages
from mqctl.errors import UsageError
from mqctl.output import Format, OutputShape, cell_text
from mqctl.world import World

SCHEMA = "mqctl.message/1"
CSV_COLUMNS = ("message_id_in_queue", "message_id", "durable", "delivery_count", "size_bytes", "body")


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
