"""Sizes of functions, modules and parameter lists, names of modules, and headings: what style asks for in numbers.

Tests and generated files are exempt. Anything else that is over a bound stands in OVER with its reason; an entry that
is not needed any more is an error, so the list only shrinks.
"""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500
EXEMPT_LINES_MAX = 700  # also of a module whose cap would turn methods inside out
PARAMETERS_MAX = 5
FOLDER_MODULES_MAX = 25  # of the broker and of mqctl, without __init__.py
BANNED_NAMES = ("util", "utils", "helper", "helpers", "manager", "managers", "common", "misc")

# path, or path::function: why it may be over its bound
OVER: dict[str, str] = {
    "broker/src/mqbroker/config/slices.py": "generated: what all tables hold, one below the other",
    "broker/src/mqbroker/core/store/store.py": "what changes queues and the journal together is one class",
    "broker/src/mqbroker/amqp/connection.py": "every frame of a connection comes by here; its parts are modules",
}


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    files = [ROOT / name for name in listed.stdout.splitlines()]
    return [file for file in files if file.exists() and not is_exempt(file.relative_to(ROOT))]


def is_exempt(path: Path) -> bool:
    """Tests are exempt, and what other tools write."""
    return path.parts[0] == "tests" or ("molecule" in path.parts and path.name.startswith("test_"))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All but those that make a value of its fields, which are no more to think of than those of a NamedTuple."""
    values = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and is_value(node)]
    makers = {each for value in values for each in value.body if isinstance(each, ast.FunctionDef)}
    makers = {each for each in makers if each.name == "__init__"}
    for node in ast.walk(tree):
        if node in makers:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def is_value(node: ast.ClassDef) -> bool:
    return [ast.unparse(base) for base in node.bases] == ["Value"]


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """What a caller has to think of: `self` and options that typer declares are not counted."""
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A typer function: its parameters are the command line."""
    declared = ast.unparse(function.args) + "".join(ast.unparse(each) for each in function.decorator_list)
    return any(word in declared for word in ("Annotated[", "Option(", "Argument(", "command("))


def faults(file: Path, tree: ast.Module) -> list[str]:
    """`path` or `path::function`, with what is over its bound."""
    name = str(file.relative_to(ROOT))
    text = file.read_text(encoding="utf-8")
    found = []
    if len(text.splitlines()) > MODULE_LINES_MAX:
        found.append(f"{name} has {len(text.splitlines())} lines")
    for function in functions(tree):
        if lines_of(function) > FUNCTION_LINES_MAX:
            found.append(f"{name}::{function.name} has {lines_of(function)} lines")
        if parameters_of(function) > PARAMETERS_MAX and not is_command(function):
            found.append(f"{name}::{function.name} has {parameters_of(function)} parameters")
    return found


FILES = tracked()


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


def test_sizes_and_exemptions_that_are_needed_and_have_reasons(trees: dict[Path, ast.Module]) -> None:
    found = [fault for file, tree in trees.items() for fault in faults(file, tree)]
    assert [fault for fault in found if fault.split(" has ")[0] not in OVER] == []
    over = {fault.split(" has ")[0] for fault in found}
    assert sorted(set(OVER) - over) == []
    assert all(len(reason) > 10 for reason in OVER.values())
    assert [
        name for name in OVER if len((ROOT / name.split("::")[0]).read_text().splitlines()) > EXEMPT_LINES_MAX
    ] == []


def crowded(files: list[Path]) -> dict[str, int]:
    """Folders that hold more modules than a reader takes in, and how many."""
    held = Counter(str(file.parent.relative_to(ROOT)) for file in files if file.name != "__init__.py")
    return {folder: count for folder, count in held.items() if count > FOLDER_MODULES_MAX}


def test_no_folder_holds_more_modules_than_a_reader_takes_in() -> None:
    products = [
        file for file in FILES if file.is_relative_to(ROOT / "broker/src") or file.is_relative_to(ROOT / "cli/src")
    ]
    assert len(products) > 500
    assert crowded(products) == {}
    added = [*products, *(ROOT / "broker/src/mqbroker/wire" / f"{number}.py" for number in range(FOLDER_MODULES_MAX))]
    assert list(crowded(added)) == ["broker/src/mqbroker/wire"]


def test_modules_are_named_after_what_they_hold() -> None:
    assert [str(file) for file in FILES if file.stem.strip("_") in BANNED_NAMES] == []


def test_modules_open_with_their_theory(trees: dict[Path, ast.Module]) -> None:
    """A module says first what it owns; a plugin of Ansible does so in its DOCUMENTATION."""
    silent = [
        str(file.relative_to(ROOT)) for file, tree in trees.items()
        if tree.body and not ast.get_docstring(tree) and "DOCUMENTATION" not in file.read_text(encoding="utf-8")
    ]  # fmt: skip
    assert silent == []


def test_the_measures_measure() -> None:
    long = ast.parse("def f(a, b, *, c, d, e, f):\n" + "    x = 1\n" * 60).body[0]
    assert isinstance(long, ast.FunctionDef)
    assert (lines_of(long), parameters_of(long)) == (61, 6)
    classes = (
        "class A(Value):\n    def __init__(self): ...\n    def f(self): ...\nclass B:\n    def __init__(self): ...\n"
    )
    assert [each.name for each in functions(ast.parse(classes))] == ["f", "__init__"]
    assert len(FILES) > 150
