"""A function whose name is a question (`is_…`, `has_…`, `may_…`, `can_…`, `was_…`) changes nothing by being asked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = [Path("broker/src/mqbroker"), Path("cli/src/mqctl")]
ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = frozenset(("is", "has", "may", "can", "was", "are"))
CHANGING = frozenset(
    ("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
     "setdefault", "update")
)  # fmt: skip
# With the reason why nobody else sees what they keep.
EXEMPT = {
    "core/cluster/cluster_bindings.py:is_choosy": "remembers its answer",
    "core/address/diverts.py:may_page": "what it goes through, of its own",
}


def changes(function: ast.FunctionDef) -> Iterator[str]:
    """What it sets, deletes, or calls to change something, but for names of its own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
            yield from (ast.unparse(part) for part in parts if isinstance(part, ast.Attribute | ast.Subscript))
        elif isinstance(node, ast.Delete):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            yield ast.unparse(node.func)


def changing_questions(source: str) -> dict[str, list[str]]:
    """Name → what it changes, of the functions of a module."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    asked = [each for each in functions if each.name.lstrip("_").partition("_")[0] in QUESTIONS and "_" in each.name]
    return {each.name: found for each in asked if (found := list(changes(each)))}


def all_of_them() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for root in SOURCES:
        for path in sorted((ROOT / root).rglob("*.py")):
            place = path.relative_to(ROOT / root)
            found |= {f"{place}:{name}": what for name, what in changing_questions(path.read_text()).items()}
    return found


@pytest.mark.slow
def test_who_asks_changes_nothing() -> None:
    found = all_of_them()
    assert {name: what for name, what in found.items() if name not in EXEMPT} == {}
    assert set(EXEMPT) <= set(found), "an exemption that nothing needs"


@pytest.mark.parametrize("line", ["self.state = 1", "self.seen[key] = 1", "del self.seen[key]", "self.seen.pop(key)",
                                  "self.count += 1", "self.one, other = 1, 2"])  # fmt: skip
def test_a_change_is_found(line: str) -> None:
    assert changing_questions(f"class A:\n    def _is_new(self, key):\n        {line}\n        return True\n")
    assert not changing_questions(f"class A:\n    def note(self, key):\n        {line}\n        return True\n")
