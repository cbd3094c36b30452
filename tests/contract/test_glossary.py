"""A word means one thing: no public type has the name of another, and each term of the glossary has one line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.contract.test_docs import named_faults

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "broker/src/mqbroker", ROOT / "cli/src/mqctl")
GLOSSARY = "docs/GLOSSARY.md"
TERM = re.compile(r"^\| \*\*(.+?)\*\* \| (.+?) \| `(.+?)` \|$", re.MULTILINE)
# mqctl finds the options of a command in its module, by this name (cli/src/mqctl/declare.py).
BY_CONVENTION = {"Options": "cli/src/mqctl/commands/"}
# What these mean is in their first words, which is why nothing is called by the last alone.
TOO_SHORT = ("Key", "Kind", "Place", "Rival", "State")


def types_in(source: str) -> Iterator[str]:
    """Public classes, and other names for types, of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        else:
            continue
        if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name):
            yield name


def modules() -> Iterator[tuple[str, str]]:
    """Path and source of all but the client library."""
    for base in SOURCES:
        for file in sorted(base.rglob("*.py")):
            if "client" not in file.relative_to(base).parts[:1]:
                yield str(file.relative_to(ROOT)), file.read_text()


def twice(sources: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that are declared in several modules."""
    places: dict[str, list[str]] = {}
    for path, source in sources:
        for name in types_in(source):
            if not path.startswith(BY_CONVENTION.get(name, "\0")):
                places.setdefault(name, []).append(path)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_public_type_has_the_name_of_another() -> None:
    assert twice(modules()) == {}


def test_two_types_of_one_name_are_found() -> None:
    sources = [("a.py", "class Verdict: ..."), ("b.py", "Verdict = int"), ("c.py", "class _Verdict: ...\nVERDICT = 1")]
    assert twice(iter(sources)) == {"Verdict": ["a.py", "b.py"]}


def test_nothing_is_called_by_its_last_word_alone() -> None:
    short = [(path, name) for path, source in modules() for name in types_in(source) if name in TOO_SHORT]
    assert short == []


def test_each_term_has_one_line_and_a_place() -> None:
    text = (ROOT / GLOSSARY).read_text()
    terms = [term.lower() for term, _, _ in TERM.findall(text)]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(terms) == len(rows) - 1 > 40, "a line has another form"
    assert sorted(set(terms)) == sorted(terms)
    assert named_faults(text) == []
