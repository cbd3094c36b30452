"""What several commands of mqctl share is no part of one of them. Which still take something of another stands here.

The list only shrinks: an entry that is not needed any more is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

COMMANDS = Path(__file__).resolve().parents[2] / "cli/src/mqctl/commands"
PACKAGE = "mqctl.commands"
# Who takes, and of whom.
SHARED = frozenset((
    ("dev_down", "dev_up"), ("dev_status", "status"), ("dev_up", "dev_status"), ("health", "status"),
    ("init", "tls_init"), ("message_browse", "receive"), ("plan", "tls_issue"),
    ("rollout", "plan"), ("rollout", "status"), ("rollout", "tls_issue"),
    ("scale_up", "plan"), ("scale_up", "rollout"), ("scale_up", "tls_issue"),
    ("tls_issue", "tls_init"), ("tls_rotate", "tls_init"), ("tls_rotate", "tls_issue"), ("tls_show", "tls_init"),
    ("tls_show", "tls_issue"), ("uninstall", "rollout"),
))  # fmt: skip


def taken_by(source: str) -> Iterator[str]:
    """Names of commands of which a module takes something."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            yield (node.module or "").rpartition(".")[2]


def test_commands_take_nothing_more_of_each_other() -> None:
    found = {(file.stem, taken) for file in COMMANDS.glob("*.py") for taken in taken_by(file.read_text())}
    assert sorted(found - SHARED) == []
    assert sorted(SHARED - found) == []


def test_what_is_taken_is_seen() -> None:
    source = "from mqctl.commands import plan as planning, status\ndef f():\n    from mqctl.commands.check import run\n"
    assert list(taken_by(source)) == ["plan", "status", "check"]
