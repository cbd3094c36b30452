"""`mqctl journal info`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mqctl.brokers import journals
from mqctl.brokers.requests import PLACE, AskOptions
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("was_clean"),
    Column("queues", is_number=True),
    Column("messages", is_number=True),
    Column("files", is_number=True),
    Column("used_bytes", is_number=True),
    Column("format", is_number=True, wide_only=True),
    Column("boot", is_number=True, wide_only=True),
    Column("next_id", is_number=True, wide_only=True),
    Column("position", is_number=True, wide_only=True),
    Column("node_id", wide_only=True),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes."""


def run(world: World, options: Options) -> int:
    """Show what is in the journals of brokers that do not run; nothing is changed.

    With -o json each row lists the queues and their messages as `contents`. Exit code 3 if a node is missing, because
    its broker runs or its host does not answer; 1 if all are.
    """
    rows = Rows("mqctl.journal-info/1", (*PLACE, *COLUMNS))
    journals.show(world, options, "info", rows, row_of)
    return journals.code_of(rows)


def row_of(journal: Mapping[str, Any]) -> dict[str, Any]:
    """What a host says, with the number of queues in the place of their list."""
    said = {name: journal.get(name) for name in (one.name for one in COLUMNS)}
    contents = journal.get("queues") or []
    return said | {"queues": len(contents), "contents": contents}
