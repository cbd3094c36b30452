"""What mqctl, the collection and `mqbroker` ask of a broker is what the rows of its operations say that it takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqbroker.admin.operations import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("cli/src/mqctl", "plugins", "broker/src/mqbroker/app")
# Functions that send a request: of their arguments the first text is the operation, those by name are its own.
ASKING = frozenset(("act", "call", "ask"))
# Talks with the programs that probe multicast, not with brokers.
OTHER_TALK = "multicast.py"
OWN_OF_ASKING = frozenset(("executable",))  # of plugins/module_utils/node.py:ask


def asked(source: str) -> Iterator[tuple[str, frozenset[str], bool]]:
    """Operation, names of arguments, and whether these are all that are given, for each request in a source."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if name == "ListOperation":
            yield str(ast.literal_eval(node.args[1])), frozenset(), False
        elif name in ASKING and texts:
            names = frozenset(each.arg for each in node.keywords if each.arg) - OWN_OF_ASKING
            yield texts[0], names, all(each.arg for each in node.keywords)


def faults(source: str) -> list[str]:
    """Requests that every broker would refuse."""
    wrong = []
    for operation, names, is_all in asked(source):
        row = OPERATIONS.get(operation)
        if row is None:
            wrong.append(f"there is no {operation}")
            continue
        wrong += [f"{operation} has no {name}" for name in sorted(names - {each.name for each in row.arguments})]
        needed = {each.name for each in row.arguments if each.is_needed}
        wrong += [f"{operation} needs {name}" for name in sorted(needed - names if is_all else ())]
    return wrong


FILES = [
    file for base in SOURCES for file in sorted((ROOT / base).rglob("*.py"))
    if file.name != OTHER_TALK and any(asked(file.read_text()))
]  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_requests_are_such_as_operations_take(file: Path) -> None:
    assert faults(file.read_text()) == []


def test_most_operations_are_asked_for_somewhere() -> None:
    operations = {operation for file in FILES for operation, _, _ in asked(file.read_text())}
    assert len(operations) >= 30


def test_faulty_requests_are_found() -> None:
    source = 'act(w, n, "queue-pose", name=1)\nact(w, n, "queue-pause", nam=1)\nsession.call("browse", **these)'
    assert faults(source) == ["there is no queue-pose", "queue-pause has no nam", "queue-pause needs name"]
