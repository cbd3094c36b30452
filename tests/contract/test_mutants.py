"""The breaks of `tests.mutants` are of modules, lines and tests that there are: else nobody would look for them."""

from __future__ import annotations

import tomllib

import pytest

from tests.mutants import modules
from tests.mutants.modules import KNOWN, MODULES, ROOT, SOURCES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_and_the_tests_that_are_to_notice_are_there(module: str) -> None:
    assert (SOURCES / f"{module}.py").is_file()
    missing = [each for tests in modules.tests_of(module) for each in tests if not (ROOT / each).exists()]
    assert missing == []


def test_a_module_is_looked_at_by_its_own_tests_first() -> None:
    assert modules.tests_of("core/cluster/marks")[0] == ("tests/unit/core/cluster/test_marks.py",)
    assert modules.tests_of("io/disk/disk")[0] == ("tests/unit/io/disk/test_disk.py",)


def test_breaks_that_change_nothing_are_of_lines_that_there_are() -> None:
    gone = []
    for one in tomllib.loads(KNOWN.read_text(encoding="utf-8"))["equivalent"]:
        lines = {line.strip() for line in (SOURCES / f"{one['module']}.py").read_text(encoding="utf-8").splitlines()}
        gone += [] if one["before"] in lines else [(one["module"], one["before"])]
    assert gone == []
