"""Each declared option has a test that changes behaviour by it: `@pytest.mark.option("limits.link-credit")`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from mqbroker.config.declarations import catalogue

TESTS = Path(__file__).resolve().parents[1]
DECLARED = sorted(entry.path for entry in catalogue.entries())


@cache
def marked() -> dict[str, list[str]]:
    """Option paths in marks of all test files -> the files."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "mark.option(" in source else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.option":
                for argument in node.args:
                    found.setdefault(ast.literal_eval(argument), []).append(file.name)
    return found


def test_each_option_has_a_test() -> None:
    assert [f"no test is marked with pytest.mark.option({path!r})" for path in DECLARED if path not in marked()] == []


def test_marks_name_declared_options() -> None:
    assert sorted(set(marked()) - set(DECLARED)) == []
