"""Knots of imports: modules of a room each of which needs, by way of others, all the rest. Type-only imports count.

Who reads one module of a knot has to read them all, and none of them can be moved alone. The largest one may only
shrink: whoever makes it smaller lowers its cap here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

BROKER = Path(__file__).resolve().parents[2] / "broker/src"

# room -> modules of the largest knot in it
CAPS = {"core": 5, "node": 9}

Graph = dict[str, set[str]]


def imports_of(room: str) -> Graph:
    """Each module of a room, and what it imports of the same room."""
    files = {path.relative_to(BROKER).with_suffix("").as_posix().replace("/", "."): path for path in files_of(room)}
    return {name: set(imported(path, files)) - {name} for name, path in files.items()}


def files_of(room: str) -> list[Path]:
    return [path for path in (BROKER / "mqbroker" / room).rglob("*.py") if path.name != "__init__.py"]


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        yield from (name for name in names if name in known)


def reached_from(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def knots(graph: Graph) -> list[list[str]]:
    """Modules that reach each other, the largest knot first."""
    reached = {name: reached_from(graph, name) for name in graph}
    found = {frozenset({name, *(each for each in reached[name] if name in reached[each])}) for name in graph}
    return sorted((sorted(each) for each in found if len(each) > 1), key=lambda each: (-len(each), each))


@pytest.mark.parametrize("room", CAPS)
def test_the_largest_knot_does_not_grow(room: str) -> None:
    found = knots(imports_of(room))
    size = max(map(len, found), default=0)
    assert size <= CAPS[room], f"a knot of {size} modules: {', '.join(found[0])}"
    assert size == CAPS[room], f"the largest knot in {room} has {size} modules by now: lower its cap"


def test_a_knot_is_what_reaches_itself() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"}, "f": {"a"}, "g": set[str]()}
    assert knots(graph) == [["a", "b", "c"], ["d", "e"]]
