"""Which functions of the broker change something that outlives a connection, read from the syntax tree.

A mutation is an assignment to, or a deletion of, an attribute or an item, or a call of a method by which containers
change, unless what changes was made in the same function. A function answers for it if `LOOK.has_touched = True` stands
before it, in its block or in one around it. It need not where all that name the function answer for it, at each place:
so a private step of a mutator costs nothing, and one that somebody else begins to call is found. Names are taken as
they are, whatever object they are asked of, so two methods of one name answer for each other's callers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "broker" / "src" / "mqbroker"
ROOMS = ("journal", "core", "cluster", "node", "amqp/unsettled.py")
CHANGING = frozenset((
    "append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "remove", "clear", "update",
    "setdefault", "add", "discard", "sort", "reverse", "rotate", "move_to_end", "difference_update",
    "intersection_update", "symmetric_difference_update",
))  # fmt: skip
CHANGING_FUNCTIONS = frozenset(("heappush", "heappop", "heapify", "heapreplace", "setattr", "delattr", "__setattr__"))
MAKING = frozenset(("dict", "list", "set", "deque", "OrderedDict", "bytearray", "sorted", "defaultdict"))
SUPER = "super()."
FLAG = "LOOK.has_touched = True"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Function:
    """`mutations`: (line, what) that it does not answer for itself; `names`: what it names before it answers."""

    key: str
    name: str
    file: Path
    node: ast.FunctionDef | ast.AsyncFunctionDef
    flags: list[ast.stmt] = field(default_factory=list)
    changes: list[tuple[int, str]] = field(default_factory=list)
    mutations: list[tuple[int, str]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def functions(files: list[Path]) -> list[Function]:
    return [function for file in files for function in _functions_of(file)]


def files_of(rooms: tuple[str, ...]) -> list[Path]:
    found = [SOURCE / room for room in rooms]
    return sorted(file for place in found for file in (place.rglob("*.py") if place.is_dir() else [place]))


def _functions_of(file: Path) -> Iterator[Function]:
    def walk(node: ast.AST, path: tuple[str, ...]) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTIONS):
                key = f"{file.relative_to(SOURCE)}:{'.'.join((*path, child.name))}"
                yield _read(Function(key, child.name, file, child))
                yield from walk(child, (*path, child.name))
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, (*path, child.name))
            else:
                yield from walk(child, path)

    yield from walk(ast.parse(file.read_text(encoding="utf-8")), ())


def _read(function: Function) -> Function:
    fresh = _made_here(function)
    _read_block(function, function.node.body, is_answered=False, fresh=fresh)
    return function


def _read_block(function: Function, block: list[ast.stmt], *, is_answered: bool, fresh: frozenset[str]) -> None:
    for statement in block:
        if ast.unparse(statement) == FLAG:
            function.flags.append(statement)
            is_answered = True
            continue
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            continue  # it runs at another time
        blocks = list(_blocks(statement))
        inner = {id(each) for found in blocks for each in found}
        for part in _own_parts(statement, inner):
            for line, what in _changes(part, fresh):
                function.changes.append((line, what))
                if not is_answered:
                    function.mutations.append((line, what))
            if not is_answered:
                function.names |= _named(part)
        if is_answered:
            # What is kept to be called later is called when something else is looked at.
            function.names |= _kept(statement, inner)
        for found in blocks:
            _read_block(function, found, is_answered=is_answered, fresh=fresh)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        value: Any = getattr(statement, name, None)
        if value:
            yield value
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def _own_parts(statement: ast.stmt, inner: set[int]) -> Iterator[ast.AST]:
    """All of a statement but the blocks in it."""
    yield from _walk(statement, inner)


def _walk(node: ast.AST, inner: set[int]) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if id(child) not in inner and not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield from _walk(child, inner)


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        return node.targets
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        return [node.target]
    if isinstance(node, ast.For):
        return [node.target]
    return []


def _changes(node: ast.AST, fresh: frozenset[str]) -> Iterator[tuple[int, str]]:
    for target in _targets(node):
        for each in ast.walk(target):
            is_place = isinstance(each, ast.Attribute | ast.Subscript) and isinstance(each.ctx, ast.Store | ast.Del)
            if is_place and _root(each) not in fresh and ast.unparse(each) != "LOOK.has_touched":
                yield getattr(node, "lineno", 0), ast.unparse(each)
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in CHANGING and _root(called.value) not in fresh:
            yield node.lineno, ast.unparse(called)
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name in CHANGING_FUNCTIONS and not (node.args and _root(node.args[0]) in fresh):
            yield node.lineno, ast.unparse(called)


def _named(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Attribute):
        # What a class has from its base is another module's, though it may define one of that name.
        is_of_base = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
        return {f"{SUPER}{node.attr}"} if is_of_base else {node.attr}
    return {node.id} if isinstance(node, ast.Name) else set()


def _kept(statement: ast.stmt, inner: set[int]) -> set[str]:
    """What a statement names without calling it there and then."""
    called = {id(node.func) for node in _walk(statement, inner) if isinstance(node, ast.Call)}
    lambdas = [node for node in _walk(statement, inner) if isinstance(node, ast.Lambda)]
    names = {name for found in lambdas for node in ast.walk(found) for name in _named(node)}
    for node in _walk(statement, inner):
        if id(node) not in called:
            names |= _named(node)
    return names


def _root(node: ast.AST) -> str:
    """The variable that a place begins with; a place in an object of another object does not count as made here."""
    depth = 0
    while isinstance(node, ast.Attribute | ast.Subscript):
        depth += isinstance(node, ast.Attribute)
        node = node.value
    return node.id if isinstance(node, ast.Name) and depth <= 1 else ""


def _made_here(function: Function) -> frozenset[str]:
    """Variables that only ever hold what was made here: displays, comprehensions, calls that make containers."""
    made: dict[str, bool] = {}
    arguments = function.node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        made[argument.arg] = False
    if function.name == "__init__":
        made["self"] = True
    for node in ast.walk(function.node):
        pairs: list[tuple[ast.expr, ast.expr | None]] = []
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs += list(zip(target.elts, node.value.elts, strict=False))
                else:
                    pairs.append((target, node.value))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            pairs.append((node.target, node.value))
        elif isinstance(node, ast.For | ast.comprehension):
            pairs += [(each, None) for each in ast.walk(node.target) if isinstance(each, ast.Name)]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            pairs.append((node.optional_vars, None))
        for target, value in pairs:
            names = [
                each.id for each in ast.walk(target) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            ]
            for name in names:
                is_whole = isinstance(target, ast.Name)
                made[name] = made.get(name, True) and is_whole and value is not None and _is_made(value)
    return frozenset(name for name, is_made in made.items() if is_made)


def _is_made(value: ast.AST) -> bool:
    if isinstance(value, ast.Dict | ast.List | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.Constant):
        return True
    if isinstance(value, ast.Call):
        called = value.func.value if isinstance(value.func, ast.Subscript) else value.func
        return isinstance(called, ast.Name) and (called.id in MAKING or called.id[:1].isupper())
    return False


def unanswered(found: list[Function], outside: frozenset[str]) -> list[Function]:
    """Functions with a mutation that neither they nor all that name them answer for.

    `outside`: keys of functions that are only called where no bytes are looked at, so all that they do is answered for.
    """
    scopes = _Scopes(found)
    is_open = {function.key: function.key not in outside for function in found}
    at_once = {name for file in scopes.files for name in scopes.of(file, _module_names(file))}
    while True:
        exposed = set(at_once)
        for function in found:
            if is_open[function.key]:
                exposed |= scopes.of(function.file, function.names - {function.name})
        still = {each.key: each.key not in outside and scopes.is_in(each, exposed) for each in found}
        if still == is_open:
            return [function for function in found if function.mutations and is_open[function.key]]
        is_open = still


class _Scopes:
    """Whom a name means. A private one means what its own module defines, else what any does."""

    def __init__(self, found: list[Function]) -> None:
        self.files = sorted({function.file for function in found})
        self._defined = {(function.file, function.name) for function in found}

    def of(self, file: Path, names: set[str]) -> set[tuple[Path | None, str]]:
        return {
            (file if name.startswith("_") and (file, name) in self._defined else None, name.removeprefix(SUPER))
            for name in names
        }

    def is_in(self, function: Function, exposed: set[tuple[Path | None, str]]) -> bool:
        return (None, function.name) in exposed or (function.file, function.name) in exposed


def _module_names(file: Path) -> set[str]:
    """What is named outside of functions, as in tables of handlers."""
    names: set[str] = set()

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (*FUNCTIONS, ast.Import, ast.ImportFrom)):
                names.update(_named(child))
                walk(child)

    walk(ast.parse(file.read_text(encoding="utf-8")))
    return names
