"""A function whose name is a question (`is_…`, `has_…`, `may_…`, `must_…`, …) changes nothing by being asked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

SOURCES = [Path("broker/src/mqbroker"), Path("cli/src/mqctl")]
ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = frozenset(("is", "has", "may", "can", "was", "are", "must", "needs"))
DEEP = 4  # methods that one asks another of the same object, one behind the other
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
    """Name → what it changes, of the functions of a module, also by what else of its object it calls or reads."""
    nodes = list(ast.walk(ast.parse(source)))
    classes = [methods_of(node) for node in nodes if isinstance(node, ast.ClassDef)]
    methods = {id(each): of for of in classes for each in of.values()}
    asked = [node for node in nodes if isinstance(node, ast.FunctionDef) and is_question(node.name)]
    # In pairs: one that changes nothing must not hide one of the same name.
    changed = ((each.name, list(changes_behind(each, methods.get(id(each), {})))) for each in asked)
    return {name: what for name, what in changed if what}


def is_question(name: str) -> bool:
    first, underscore, _ = name.lstrip("_").partition("_")
    return first in QUESTIONS and bool(underscore)


def methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """By their names; of a property what reads it, not what sets it."""
    functions = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    return {each.name: each for each in functions if not any(is_setter(one) for one in each.decorator_list)}


def is_setter(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter")


def changes_behind(function: ast.FunctionDef, methods: dict[str, ast.FunctionDef]) -> Iterator[str]:
    """What it changes, and what methods do that it reaches as `self.method` or a property, DEEP of them at most."""
    seen, now = {function.name}, [function]
    for _ in range(DEEP + 1):
        for each in now:
            yield from changes(each)
        reached = {node.attr for each in now for node in ast.walk(each) if is_of_self(node)} - seen
        now = [methods[name] for name in sorted(reached & methods.keys())]
        seen |= reached


def is_of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


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


@pytest.mark.parametrize("name", ["_is_new", "has_one", "may_go", "can_go", "must_wait", "needs_one"])
def test_a_change_behind_a_method_of_the_same_object_is_found(name: str) -> None:
    way = "    def _look(self):\n        self._note()\n    def _note(self):\n        self.count += 1\n"
    assert changing_questions(f"class A:\n    def {name}(self):\n        return self._look()\n{way}")
    assert not changing_questions(f"class A:\n    def {name}(self):\n        return self._see()\n{way}")
    assert not changing_questions(f"class A:\n    def {name}(self):\n        return self._look()\nclass B:\n{way}")


def test_those_that_ask_each_other_in_a_circle_are_looked_at_once() -> None:
    one, two = (f"    def is_{a}(self):\n        return self.is_{b}()\n" for a, b in (("one", "two"), ("two", "one")))
    assert not changing_questions(f"class A:\n{one}{two}")


def test_one_whose_name_another_class_has_too_is_found() -> None:
    one, other = (f"class {name}:\n    def is_new(self):\n        {line}\n" for name, line in
                  (("A", "self.count += 1"), ("B", "return True")))  # fmt: skip
    assert changing_questions(one + other)
    assert changing_questions(other + one)


def test_a_change_behind_a_property_that_may_be_set_is_found() -> None:
    way = "    @property\n    def one(self):\n        self.count += 1\n"
    setter = "    @one.setter\n    def one(self, value):\n        pass\n"
    assert changing_questions(f"class A:\n    def is_new(self):\n        return self.one\n{way}{setter}")
