"""What several commands of mqctl share is no part of one of them: no command takes anything of another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

COMMANDS = Path(__file__).resolve().parents[2] / "cli/src/mqctl/commands"
PACKAGE = "mqctl.commands"


def taken_by(source: str) -> Iterator[str]:
    """Names of commands of which a module takes something."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            yield (node.module or "").rpartition(".")[2]


def test_commands_take_nothing_of_each_other() -> None:
    taking = {(file.stem, taken) for file in COMMANDS.glob("*.py") for taken in taken_by(file.read_text())}
    assert sorted(taking) == []


def test_what_is_taken_is_seen() -> None:
    source = "from mqctl.commands import plan as planning, status\ndef f():\n    from mqctl.commands.check import run\n"
    assert list(taken_by(source)) == ["plan", "status", "check"]
