"""Journal files of format 2, which earlier releases refuse, are written by nobody: no caller gives a directory a term.

That alone keeps each release such that it can be taken back. Whoever adds a caller asks first what all members read
(`cluster/journal_formats.py:read_by_all`), and puts the test of that in the place of this one. Source:
docs/adr/0029-upgrade.md.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.journal.format import encode_file_header

SOURCES = Path(__file__).resolve().parents[2] / "broker/src/mqbroker"


def place_of_term(taker: Callable[..., object]) -> int:
    return list(inspect.signature(taker).parameters).index("term")


# What takes a term -> its place among the arguments, and files that may pass one on.
TAKERS: dict[str, tuple[int, tuple[str, ...]]] = {
    "JournalDirectory": (place_of_term(JournalDirectory), ()),
    "encode_file_header": (place_of_term(encode_file_header), ("io/disk/journal_directory.py",)),
}
KEPT = "_term"  # where a directory has it


def with_terms(tree: ast.AST) -> list[tuple[str, int]]:
    """What is called with a term, or may be for all that can be seen, or is handed on for somebody to call; lines."""
    called = {call.func: call for call in ast.walk(tree) if isinstance(call, ast.Call)}
    types = {part for each in types_of(tree) for part in ast.walk(each)}
    found = list(around(tree))
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if not isinstance(node, ast.expr) or name not in TAKERS or node in types:
            continue
        if node not in called or gives(called[node], TAKERS[name][0]):
            found.append((name, node.lineno))
    return sorted(found, key=lambda each: each[1])


def around(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """What goes by another name, which is not looked for, or is set in an object that is there already."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((each.name, each.lineno) for each in node.names if each.name in TAKERS and each.asname)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [(KEPT, node.lineno)] if node.attr == KEPT and ast.unparse(node.value) != "self" else ()
        elif isinstance(node, ast.Call):
            said = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield from ((str(each), node.lineno) for each in said if each in (KEPT, *TAKERS))


def types_of(tree: ast.AST) -> list[ast.expr]:
    found = [getattr(node, field, None) for node in ast.walk(tree) for field in ("annotation", "returns")]
    return [each for each in found if isinstance(each, ast.expr)]


def gives(call: ast.Call, place: int) -> bool:
    """Also where it is hidden in something that is unpacked."""
    is_hidden = any(isinstance(each, ast.Starred) for each in call.args) or None in {each.arg for each in call.keywords}
    return is_hidden or len(call.args) > place or "term" in {each.arg for each in call.keywords}


def test_nobody_begins_a_file_in_a_term() -> None:
    files = {path.relative_to(SOURCES).as_posix(): ast.parse(path.read_text()) for path in SOURCES.rglob("*.py")}
    names = {node.id for tree in files.values() for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(TAKERS) <= names
    assert KEPT in inspect.getsource(JournalDirectory)
    found = [(file, *each) for file, tree in files.items() for each in with_terms(tree)]
    assert [each for each in found if each[1] == KEPT or each[0] not in TAKERS[each[1]][1]] == []


WRONG = """
JournalDirectory(path, node_id, options, files, 7)
JournalDirectory(path, node_id, options, term=None)
journal_directory.JournalDirectory(path, node_id, options, **more)
JournalDirectory(*given)
make = partial(JournalDirectory, path)
from mqbroker.io.disk.journal_directory import JournalDirectory as D
directory._term = 7
directory._term += 1
setattr(directory, "_term", 7)
getattr(journal_directory, "JournalDirectory")(path, node_id, options, files, 7)
"""
RIGHT = """
from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.journal import format as layout
def opened(path: Path, journal: JournalDirectory) -> JournalDirectory:
    self._term = directory._term
    return JournalDirectory(path, node_id, options, files)
"""


def test_what_is_wrong_is_found() -> None:
    assert [line for _, line in with_terms(ast.parse(WRONG))] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert with_terms(ast.parse(RIGHT)) == []
