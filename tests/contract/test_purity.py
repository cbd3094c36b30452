"""The rooms below `io/` are pure: same inputs, same outputs. Looked up in the syntax tree, so comments do not count.

Banned are modules that reach the world or its clocks, and built-ins that do. What a room may have all the same stands
in EXCEPTIONS with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "broker" / "src" / "mqbroker"
PURE = ("base", "config", "wire", "amqp", "journal", "core", "cluster", "node", "admin", "client")
# The shells of the client stand in its own room.
SHELLS = "client/io/"

MODULES = frozenset((
    "asyncio", "uvloop", "socket", "selectors", "select", "ssl", "signal", "subprocess", "multiprocessing",
    "threading", "concurrent", "queue", "sched", "time", "datetime", "calendar", "random", "secrets", "uuid",
    "tempfile", "shutil", "glob", "fileinput", "os", "io", "pathlib", "sys", "ctypes", "mmap", "fcntl",
    "resource", "logging", "getpass", "platform", "urllib", "http", "requests", "contextvars", "weakref",
    "gc", "atexit",
))  # fmt: skip
NAMES = frozenset({"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint", "id", "hash"})

# file: what it may use, and why
EXCEPTIONS: dict[str, dict[str, str]] = {
    "admin/certificates.py": {"datetime": "dates to seconds and back; what time it is comes in as an argument"},
    "admin/scale_down.py": {"datetime": "a time to its text; what time it is comes in as an argument"},
    "client/values.py": dict.fromkeys(("datetime", "uuid"), "types of an application's values; none is made there"),
    "core/paging/recorded_messages.py": {
        "id": "identity of records that are alive, as a key of a dictionary that keeps order"
    },
}


def pure_files() -> list[Path]:
    files = sorted(file for room in PURE for file in (SOURCE / room).rglob("*.py"))
    return [file for file in files if not str(file.relative_to(SOURCE)).startswith(SHELLS)]


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that is banned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in MODULES:
                    yield node.lineno, alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in MODULES:
            yield node.lineno, node.module.split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in NAMES:
            yield node.lineno, node.id
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno, "await"


def iterates_over_set(tree: ast.AST) -> Iterator[int]:
    """Lines of loops over a set that is written there: their order differs from process to process."""
    for node in ast.walk(tree):
        looped = node.iter if isinstance(node, ast.For | ast.comprehension) else None
        is_call = isinstance(looped, ast.Call) and isinstance(looped.func, ast.Name)
        if isinstance(looped, ast.Set | ast.SetComp) or (is_call and looped.func.id in ("set", "frozenset")):  # type: ignore[union-attr]
            yield looped.lineno  # type: ignore[union-attr]


def test_rooms_are_pure() -> None:
    found = []
    for file in pure_files():
        tree, path = ast.parse(file.read_text(encoding="utf-8")), str(file.relative_to(SOURCE))
        allowed = EXCEPTIONS.get(path, {})
        found += [f"{path}:{line}: {name}" for line, name in uses(tree) if name not in allowed]
        found += [f"{path}:{line}: a loop over a set" for line in iterates_over_set(tree)]
    assert found == []


def test_every_room_is_looked_at() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert rooms == {*PURE, "io", "app"}
    assert len(pure_files()) > 50


def test_exceptions_are_used() -> None:
    for name, allowed in EXCEPTIONS.items():
        used = {what for _, what in uses(ast.parse((SOURCE / name).read_text(encoding="utf-8")))}
        assert used >= set(allowed), name


@pytest.mark.parametrize(
    "code",
    ["import time", "from os import path", "import asyncio.events", "open('x')", "print(1)", "async def f(): pass",
     "from concurrent.futures import Future", "x = id(y)"],
)  # fmt: skip
def test_what_is_banned_is_found(code: str) -> None:
    assert list(uses(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["self.open()", "def open(self): ...", "peer.id", "'time'", "from mqbroker.base import time"]
)
def test_what_only_looks_like_it_is_not(code: str) -> None:
    assert not list(uses(ast.parse(code)))
