"""What ansible-test asks of every plugin and is seen without it, so that it shows before the slow part that runs it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
IGNORED = ROOT / "tests" / "sanity" / "ignore-2.19.txt"


def test_every_module_says_that_its_license_is_another() -> None:
    lines = IGNORED.read_text(encoding="utf-8").splitlines()
    said = [line.split()[0] for line in lines if "validate-modules:missing-gplv3-license" in line]
    assert said == sorted(f"plugins/modules/{path.name}" for path in (PLUGINS / "modules").glob("*.py"))


@pytest.mark.parametrize("path", sorted(PLUGINS.rglob("*.py")), ids=lambda path: str(path.relative_to(PLUGINS)))
def test_what_is_not_used_has_a_name_that_is_allowed(path: Path) -> None:
    names = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Name)]
    assert [node.lineno for node in names if node.id == "_"] == []


@pytest.mark.parametrize("path", sorted(PLUGINS.rglob("*.py")), ids=lambda path: str(path.relative_to(PLUGINS)))
def test_nothing_is_printed(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
    assert [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"] == []
