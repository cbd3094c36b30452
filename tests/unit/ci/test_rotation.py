"""What is taken on every other day: by a run of all alone, and within two days all of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
STORIES = """
import pytest
def test_each_day(): pass
@pytest.mark.every_other_day(0)
def test_even(): pass
@pytest.mark.every_other_day(1)
def test_odd(): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("today", "taken"), [("", ["each_day", "even", "odd"]), ("20784", ["each_day", "even"]), ("7", ["each_day", "odd"])]
)
def test_each_day_has_its_own(tmp_path: Path, today: str, taken: list[str]) -> None:
    """What is left out is not skipped, which would be a failure in a run that counts."""
    (tmp_path / "conftest.py").write_text("from tests.support.rotation import pytest_collection_modifyitems\n")
    (tmp_path / "test_it.py").write_text(STORIES)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path,
         "-p", "no:cacheprovider", f"--override-ini=pythonpath={ROOT}", tmp_path / "test_it.py"],
        env={**os.environ, "CI": "true", "CHECKS_DAY": today, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True,
        timeout=5 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"::test_(\w+) PASSED", done.stdout) == taken
    assert "skipped" not in done.stdout


def test_days_of_both_kinds_have_stories_of_their_own() -> None:
    """So that no day has all of them, which take longest."""
    marked = {
        str(file.relative_to(ROOT)): re.findall(r"every_other_day\((.)\)", file.read_text())
        for folder in ("tests/system", "molecule")
        for file in sorted((ROOT / folder).rglob("test_*.py"))
    }
    days = [day for found in marked.values() for day in found]
    assert set(days) == {"0", "1"}, {name: found for name, found in marked.items() if found}
