"""A local says what it holds: `found` says only that somebody looked for it, and may be in no more functions than here.

Whoever gives some of them a name lowers the number of their room.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BROKER, CLI = ROOT / "broker/src/mqbroker", ROOT / "cli/src/mqctl"
NAME = "found"
# room -> functions in which something is called so
LEFT = {"admin": 1, "mqctl": 44, "node": 3}


def functions_with(source: str) -> list[str]:
    """The functions of a module, or methods, that have a local or a parameter of this name, also in one within."""
    return [each.name for each in _outer(ast.parse(source)) if any(map(_is_it, ast.walk(each)))]


def _outer(node: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    outer: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            outer.append(each)
        else:
            outer += _outer(each)
    return outer


def _is_it(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == NAME) or (isinstance(node, ast.arg) and node.arg == NAME)


def counted() -> Counter[str]:
    rooms = {path: path.relative_to(BROKER).parts[0] for path in BROKER.rglob("*.py")}
    rooms |= dict.fromkeys(CLI.rglob("*.py"), "mqctl")
    return sum((Counter({room: len(functions_with(path.read_text()))}) for path, room in rooms.items()), Counter())


def test_no_more_locals_are_called_by_their_having_been_looked_for() -> None:
    more = {room: count for room, count in counted().items() if count > LEFT.get(room, 0)}
    assert more == {}, "name them by what they hold"


def test_a_local_a_parameter_and_one_within_are_seen() -> None:
    for body in ("found = 1", "return [found for found in ()]", "return lambda found: 1", "def inner(found): ..."):
        assert functions_with(f"class A:\n    def look(self):\n        {body}\n    def other(self): ...\n") == ["look"]
    assert functions_with("async def look(found): ...") == ["look"]
    assert not functions_with('def found(): return "found", self.found')
