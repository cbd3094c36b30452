"""`mqctl message show`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Format, Rows
from mqctl.world import World

COLUMNS = (Column("field"), Column("value"))


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """Which message."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]
    message: Annotated[int, typer.Argument(help="Id in the queue, as `message browse -o json` has it.", min=1)]


def run(world: World, options: Options) -> int:
    """Show one message of a queue with everything that is known of it, wherever in the queue it is."""
    node = the_node(world, options)
    answer = act(world, node, "message-show", queue=options.queue, id=options.message)
    is_text = options.shape.format is not Format.JSON
    rows = [{"field": name, "value": value_of(value) if is_text else value} for name, value in answer.items()]
    return report(world, options, node, Rows("mqctl.message-show/1", COLUMNS, rows))


def value_of(value: Any) -> Any:
    """Sections as JSON, where a cell is text."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
