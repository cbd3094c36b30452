"""What several commands of mqctl share is no part of one of them: no command takes anything of another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

COMMANDS = Path(__file__).resolve().parents[2] / "cli/src/mqctl/commands"
PACKAGE = "mqctl.commands"
FILES = sorted(file for file in COMMANDS.rglob("*.py") if file.stem != "__init__")


def taken_by(source: str) -> Iterator[str]:
    """Names of commands of which a module takes something."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or not f"{node.module}.".startswith(f"{PACKAGE}."):
            continue
        _, *command = f"{node.module}".removeprefix(PACKAGE).strip(".").split(".")  # after its group
        yield from command or (each.name for each in node.names)


def test_commands_take_nothing_of_each_other() -> None:
    taking = {(file.stem, taken) for file in FILES for taken in taken_by(file.read_text())}
    assert len(FILES) > 70
    assert sorted(taking) == []


def test_what_is_taken_is_seen() -> None:
    source = (
        "from mqctl.commands.rollout import plan as planning, upgrade\nfrom mqctl.commands import look\n"
        "def f():\n    from mqctl.commands.look.check import run\n"
    )
    assert list(taken_by(source)) == ["plan", "upgrade", "look", "check"]
