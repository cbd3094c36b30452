"""A docstring of something public says what, of whom and in which unit; a few words that only its caller reads do not.

Names with nothing to say have no docstring at all. What is too short still stands in SHORT, which may only shrink.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "broker/src/mqbroker", ROOT / "cli/src/mqctl")
CHARACTERS_MIN = 25
# `See World.`: a class may leave it to its module, and nothing else to another place alone.
POINTER = re.compile(r"See (?!the module's docstring\b)[^ ]+( [^ ]+)?\.")
# Of what another file is the source of: tables of options, and programs that the collection takes to hosts.
GENERATED = (
    "broker/src/mqbroker/config/slices.py",
    "cli/src/mqctl/brokers/multicast_matrix.py",
    "cli/src/mqctl/remote/",
)
# The fields of a command, whose help is the docstring of its `run`.
FORM = "Options"
SHORT = frozenset(
    (
        "broker/src/mqbroker/admin/moves.py:Purge.abandon",
        "broker/src/mqbroker/admin/moves.py:Purge.fail",
        "broker/src/mqbroker/admin/moves.py:Purge.is_waiting",
        "broker/src/mqbroker/admin/moves.py:Purge.result",
        "broker/src/mqbroker/admin/moves.py:Purge.run",
        "broker/src/mqbroker/admin/status.py:stop",
        "broker/src/mqbroker/amqp/links.py:Partial.add",
        "broker/src/mqbroker/amqp/links.py:Partial.held_bytes",
        "broker/src/mqbroker/config/declarations/options.py:BrokerFile",
    )
)


def short_ones(source: str) -> Iterator[str]:
    """Names of what is public, has a docstring, and says too little in it."""
    yield from _short(ast.parse(source), "")


def _short(node: ast.AST, within: str) -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or each.name.startswith("_"):
            continue
        said = ast.get_docstring(each)
        if said is not None and each.name != FORM and (len(said) < CHARACTERS_MIN or POINTER.fullmatch(said)):
            yield within + each.name
        if isinstance(each, ast.ClassDef):
            yield from _short(each, f"{within}{each.name}.")


def all_of_them() -> set[str]:
    paths = {path.relative_to(ROOT).as_posix(): path for base in SOURCES for path in base.rglob("*.py")}
    read = {name: path.read_text() for name, path in paths.items() if not name.startswith(GENERATED)}
    return {f"{name}:{each}" for name, source in read.items() for each in short_ones(source)}


def test_no_public_docstring_says_too_little() -> None:
    found = all_of_them()
    assert found - SHORT == set(), "say what, of whom, in which unit"
    assert set(SHORT) - found == set(), "no longer too short: take them out of SHORT"


def test_a_short_one_and_a_mere_pointer_are_found() -> None:
    for said in ("All of them.", "See World.", "See `node.values.jobs.Job`.", "See the class of this long name there."):
        is_short = said != "See the class of this long name there."
        for head in ("def all(): ", "async def all(): ", "class all: "):
            assert list(short_ones(f'{head}"""{said}"""')) == ["all"] * is_short
        assert list(short_ones(f'def _all(): """{said}"""')) == []
    assert list(short_ones('class Of:\n  """See the module\'s docstring."""\n  def it(self): "Short."\n')) == ["Of.it"]
