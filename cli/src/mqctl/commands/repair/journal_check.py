"""`mqctl journal check`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mqctl.brokers import journals
from mqctl.brokers.requests import PLACE, AskOptions
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (
    Column("good"),
    Column("messages", is_number=True),
    Column("file"),
    Column("offset", is_number=True),
    Column("remedy", wide_only=True),
    Column("findings", wide_only=True),
    Column("why"),
)


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes."""


def run(world: World, options: Options) -> int:
    """Read all of the journals of brokers that do not run; nothing is changed.

    Exit code 3 if one is damaged, or if a node is missing because its broker runs or its host does not answer; 1 if
    all are missing. What a start would cut off, because a power cut tore it, is no damage: it is in `findings`.
    """
    rows = Rows("mqctl.journal-check/1", (*PLACE, *COLUMNS))
    shown = journals.show(world, options, "check", rows, row_of)
    return journals.code_of(rows, is_good=all(row["good"] for row in shown))


def row_of(journal: Mapping[str, Any]) -> dict[str, Any]:
    """What a host says; findings as text."""
    said = {name: journal.get(name) for name in (one.name for one in COLUMNS)}
    findings = journal.get("findings") or []
    return said | {"findings": [" ".join(f"{name}={value}" for name, value in one.items()) for one in findings]}
