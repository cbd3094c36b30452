"""A word means one thing: no public type has the name of another, or a word of the glossary for something else."""

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
TOO_SHORT = ("Key", "Kind", "Part", "Place", "Rival", "State")
# Words that come to mind for several things: a type that is called by one of them stands here with its term.
MEANT = {
    "Segment": "Segment",
    "RetiredSegment": "Segment",
    "JournalSegment": "journal segment",
    "OpenJournalSegment": "journal segment",
    "JournalSegmentPool": "journal segment",
    "JournalSegmentStock": "journal segment",
    "JournalSegmentUse": "journal segment",
    "DeleteJournalSegment": "journal segment",
    "Notice": "Notice",
    "ClusterNotice": "cluster notice",
    "BindingClusterNotice": "cluster notice",
    "GroupClusterNotice": "cluster notice",
    "ClusterNoticeEnd": "cluster notice",
    "ClusterNoticeFeed": "cluster notice",
    "Run": "Run",
    "RunRecord": "Run",
    "RunShape": "Run",
    "RecoveredRun": "Run",
    "Turns": "turn",
    "Target": "Target",
    "OptTarget": "Target",
    "TargetName": "Target",
    "FullTargetName": "Target",
    "PostTarget": "post target",
    "MoveTarget": "move target",
    "RoutingTarget": "routing target",
    "RoutingTargets": "routing target",
    "BackupTarget": "backup target",
    "BundleTarget": "bundle target",
}
WORDS = ("segment", "notice", "run", "turn", "target")


def types_in(source: str) -> Iterator[str]:
    """Public classes, and other names for types, of a module, also those that only the checker of types sees."""
    for node in statements_of(ast.parse(source).body):
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        else:
            continue
        if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name):
            yield name


def statements_of(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from statements_of([*node.body, *node.orelse])


def words_of(name: str) -> list[str]:
    """`OpenJournalSegment`, `journal segments`: open, journal, segment; one is as good as several."""
    return [word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def meant(name: str, terms: list[str]) -> str:
    """The longest of the terms that the name has in it, word by word; empty: none."""
    own = " ".join(words_of(name))
    held = [term for term in terms if f" {' '.join(words_of(term))} " in f" {own} "]
    return max(held, key=lambda term: len(words_of(term)), default="")


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
    sources = [("a.py", "class Verdict: ..."), ("b.py", "Verdict = int"), ("c.py", "class _Verdict: ...\nVERDICT = 1"),
               ("d.py", "Verdict: TypeAlias = int"), ("e.py", "if SEEN:\n    Verdict: TypeAlias = int")]  # fmt: skip
    assert twice(iter(sources)) == {"Verdict": ["a.py", "b.py", "d.py", "e.py"]}


def test_nothing_is_called_by_its_last_word_alone() -> None:
    short = [(path, name) for path, source in modules() for name in types_in(source) if name in TOO_SHORT]
    assert short == []


def test_a_word_that_comes_to_mind_for_several_things_is_used_as_the_glossary_says() -> None:
    named = {name for _, source in modules() for name in types_in(source) if set(words_of(name)) & set(WORDS)}
    assert named == set(MEANT), "name it by another word, or say here which term of the glossary it means"
    terms = [term for term, _, _ in TERM.findall((ROOT / GLOSSARY).read_text())]
    assert {name: meant(name, [term for term in terms if set(words_of(term)) & set(WORDS)]) for name in named} == MEANT


def test_the_longest_term_in_a_name_is_meant() -> None:
    terms = ["Segment", "journal segment", "turn"]
    names = {"Segment": "Segment", "OpenJournalSegment": "journal segment", "Turns": "turn", "SegmentPool": "Segment",
             "Returned": ""}  # fmt: skip
    assert {name: meant(name, terms) for name in names} == names


def test_each_term_has_one_line_and_a_place() -> None:
    text = (ROOT / GLOSSARY).read_text()
    terms = [term.lower() for term, _, _ in TERM.findall(text)]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(terms) == len(rows) - 1 > 40, "a line has another form"
    assert sorted(set(terms)) == sorted(terms)
    assert named_faults(text) == []
