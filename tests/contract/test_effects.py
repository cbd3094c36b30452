"""Whoever carries effects out has a handler for each of them: `io/`, and the three worlds that stand in its place.

Read from the syntax tree: a row of a table, or a case without a condition. What a world never has to carry out has a
row all the same, which says so loudly; one that was forgotten would be passed over, and its completion waited for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from mqbroker.node.values import effects

ROOT = Path(__file__).resolve().parents[2]
IO = ROOT / "broker" / "src" / "mqbroker" / "io"
EFFECTS = frozenset(each.__name__ for each in get_args(effects.Effect))
PLACES = {
    "io": ((IO / "server.py", "_handlers"), (IO / "loop/loop.py", "start")),
    "stage": ((ROOT / "tests" / "support" / "stage.py", "_carry_out"),),
    "simulation": ((ROOT / "tests" / "sim" / "world.py", "_carry_out"),),
    "training": ((ROOT / "broker" / "native_world.py", "_start"), (IO / "loop/loop.py", "start")),
}


def _named(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id


def _of_pattern(pattern: ast.pattern) -> Iterator[str]:
    """Classes of which each value matches. A place in a pattern that is no name leaves some out."""
    if isinstance(pattern, ast.MatchOr):
        for each in pattern.patterns:
            yield from _of_pattern(each)
    elif isinstance(pattern, ast.MatchClass):
        inside = (*pattern.patterns, *pattern.kwd_patterns)
        if all(isinstance(each, ast.MatchAs) and each.pattern is None for each in inside):
            yield from _named(pattern.cls)


def _handled_in(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.match_case) and node.guard is None:
            yield from _of_pattern(node.pattern)
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                yield from _named(key)
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            for each in node.iter.elts:
                yield from _named(each)


def unhandled(sources: list[tuple[str, str]], wanted: frozenset[str]) -> set[str]:
    """Effects that none of these functions handles. `sources`: text and name of the function."""
    functions = [
        node for text, name in sources for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]  # fmt: skip
    assert len(functions) == len(sources)
    return wanted - {name for function in functions for name in _handled_in(function)}


@pytest.mark.parametrize("place", PLACES)
def test_each_effect_is_carried_out(place: str) -> None:
    sources = [(file.read_text(encoding="utf-8"), function) for file, function in PLACES[place]]
    assert unhandled(sources, EFFECTS) == set()
    assert unhandled(sources, EFFECTS | {"Promote"}) == {"Promote"}, "and one more would be missed"


def test_each_class_of_the_module_is_an_effect() -> None:
    classes = {
        name for name, each in vars(effects).items() if isinstance(each, type) and each.__module__ == effects.__name__
    }
    assert classes <= EFFECTS
    assert EFFECTS - classes == {"Send"}, "which is compiled elsewhere"


@pytest.mark.parametrize(
    ("text", "missed"),
    [
        ("def f(e):\n match e:\n  case Send(c) | Halt():\n   pass", set()),
        ("def f(e):\n match e:\n  case Send(c) if c:\n   pass\n  case Halt():\n   pass", {"Send"}),
        ("def f(e):\n match e:\n  case Send(3):\n   pass\n  case Halt(code=_):\n   pass", {"Send"}),
        ("def f(e):\n match e:\n  case Send():\n   pass\n  case _:\n   Halt()", {"Halt"}),
        ("def f():\n return {Send: 1, **more, Halt: 2}", set()),
        ("def f(h):\n for kind in (Halt,):\n  h[kind] = 1", {"Send"}),
    ],
)
def test_what_counts_as_a_handler(text: str, missed: set[str]) -> None:
    assert unhandled([(text, "f")], frozenset({"Send", "Halt"})) == missed
