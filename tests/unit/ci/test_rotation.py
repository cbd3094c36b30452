"""What is taken on one day of three: by a run of all alone, and within three days all of it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.rotation import EACH_DAY, SHARED_BY_NAME

ROOT = Path(__file__).resolve().parents[3]
STORIES = """
import pytest
def test_each_day(): pass
@pytest.mark.one_day_in_three(0)
def test_zero(): pass
@pytest.mark.one_day_in_three(1)
def test_one(): pass
@pytest.mark.one_day_in_three(2)
def test_two(): pass
"""
# Slow tests need no mark: a third of them by their names.
ROWS = """
import pytest
def test_quick(): pass
@pytest.mark.slow
@pytest.mark.parametrize("row", range(60))
def test_row(row): pass
@pytest.mark.slow
@pytest.mark.one_day_in_three(2)
def test_marked(): pass
"""


def taken(place: Path, today: str, text: str, file: str = "test_it.py") -> list[str]:
    """Names of the tests of the file that passed on that day."""
    return taken_of(place, today, text, [file])[file]


def taken_of(place: Path, today: str, text: str, files: list[str]) -> dict[str, list[str]]:
    """File -> names of its tests that passed on that day. What is left out is not skipped, which fails a run that
    counts."""
    for file in files:
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(text)
    (place / "conftest.py").write_text("from tests.support.rotation import pytest_collection_modifyitems\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-c", ROOT / "pyproject.toml", "--rootdir", place,
         "-p", "no:cacheprovider", f"--override-ini=pythonpath={ROOT}", *(place / file for file in files)],
        env={**os.environ, "CI": "true", "CHECKS_DAY": today, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True,
        timeout=5 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    passed = re.findall(r"^(\S+)::test_(\S+) PASSED", done.stdout, re.MULTILINE)
    return {file: [name for where, name in passed if where.endswith(file)] for file in files}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("today", "names"),
    [("", ["each_day", "zero", "one", "two"]), ("20784", ["each_day", "zero"]), ("7", ["each_day", "one"]),
     ("8", ["each_day", "two"])],
)  # fmt: skip
def test_each_day_has_its_own(tmp_path: Path, today: str, names: list[str]) -> None:
    assert taken(tmp_path, today, STORIES) == names


@pytest.mark.slow
def test_of_slow_tests_each_day_has_a_third_and_three_days_have_all(tmp_path: Path) -> None:
    file = "tests/unit/node/test_it.py"
    whole = taken(tmp_path, "", ROWS, file)
    assert len(whole) == 62
    days = [taken(tmp_path, today, ROWS, file) for today in ("20784", "20785", "20786")]
    counts = Counter(name for names in days for name in names)
    assert counts.pop("quick") == 3
    assert counts == Counter(name for name in whole if name != "quick")
    assert all(len(names) > 10 for names in days)
    assert ["marked" in names for names in days] == [False, False, True]
    elsewhere = taken(tmp_path, "20784", ROWS, "tests/foreign/test_it.py")
    assert len(elsewhere) == 61


@pytest.mark.slow
def test_of_files_that_run_processes_each_day_has_a_third_and_what_has_a_mark_has_its_own(tmp_path: Path) -> None:
    shared = [f"tests/system/broker/test_file_{number}.py" for number in range(6)]
    apart = ["tests/system/mqctl/test_rack.py", "tests/system/rack/test_image.py"]
    days = [taken_of(tmp_path, today, STORIES, [*shared, *apart]) for today in ("20784", "20785", "20786")]
    for number, day in enumerate(days):
        marked = ("zero", "one", "two")[number]
        assert all(marked in names and len(names) == (2 if "each_day" in names else 1) for names in day.values())
        assert [day[file] for file in apart] == [["each_day", marked]] * 2
        assert 0 < sum("each_day" in day[file] for file in shared) < 6
    assert [sum("each_day" in day[file] for day in days) for file in shared] == [1] * 6


def test_what_is_run_each_day_is_there_and_has_its_reason() -> None:
    """Else a file that is renamed would be in the third of a day unseen, or its tables go by two rotations at once."""
    files = {str(file.relative_to(ROOT)): file.read_text() for file in (ROOT / "tests/system").rglob("test_*.py")}
    each_day = {name for name in files if EACH_DAY.fullmatch(name)}
    tables = {name for name, text in files.items() if "share_of_today" in text or "share_of_floods" in text}
    assert each_day >= tables
    assert len(tables) == 5
    on_hosts = {name for name in files if "rack" in name}
    assert each_day == tables | on_hosts | {"tests/system/broker/test_native.py"}


def test_each_day_has_stories_of_its_own() -> None:
    """So that no day has all of them, which take longest, and none has a number that no day has."""
    marked = {
        str(file.relative_to(ROOT)): re.findall(r"one_day_in_three\((.*?)\)", file.read_text())
        for file in sorted((ROOT / "tests/system").rglob("test_*.py"))
    }
    days = Counter(day for found in marked.values() for day in found)
    assert set(days) == {"0", "1", "2"}, {name: found for name, found in marked.items() if found}
    assert min(days.values()) >= 3


def test_what_is_taken_on_one_day_of_three_goes_through_its_table_by_its_turns() -> None:
    """By days it would have the same third of the rows each time, and the others never."""
    seen = set[str]()
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text, is_shared = file.read_text(), str(file.relative_to(ROOT)).startswith(SHARED_BY_NAME)
        if "one_day_in_three" not in text and not is_shared:
            continue
        for one in ast.parse(text).body:
            if not isinstance(one, ast.FunctionDef):
                continue
            marks = "".join(map(ast.unparse, one.decorator_list))
            is_rare = "one_day_in_three" in marks or (is_shared and "mark.slow" in marks)
            for call in (each for each in ast.walk(one) if is_rare and isinstance(each, ast.Call)):
                if ast.unparse(call.func) in ("share_of_today", "of_today", "of_day"):
                    words = ast.unparse(call)
                    assert "TURN" in words or "// SHARES" in words, (file.name, one.name, words)
                    seen.add(one.name)
    assert len(seen) >= 2
