"""With CI=true a skipped test fails the run, however it was skipped; without it a skip is a skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = ROOT / "tests" / "conftest.py"
WAYS = {
    "mark": "import pytest\n@pytest.mark.skip(reason='no disk')\ndef test_a(): pass\n",
    "condition": "import pytest\n@pytest.mark.skipif(True, reason='no disk')\ndef test_a(): pass\n",
    "call": "import pytest\ndef test_a(): pytest.skip('no disk')\n",
    "fixture": "import pytest\n@pytest.fixture\ndef disk(): pytest.skip('no disk')\ndef test_a(disk): pass\n",
    "module": "import pytest\npytest.skip('no disk', allow_module_level=True)\ndef test_a(): pass\n",
    "import": "import pytest\npytest.importorskip('no_disk')\ndef test_a(): pass\n",
    "expected": "import pytest\n@pytest.mark.xfail(reason='no disk')\ndef test_a(): assert False\n",
}


def run(folder: Path, ci: str) -> str:
    """All ways in one run, a file each; what pytest said."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    for way, source in WAYS.items():
        (folder / f"test_{way}.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    command.append("--continue-on-collection-errors")
    environment = {**os.environ, "CI": ci, "PYTEST_ADDOPTS": "", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    ).stdout


def test_a_skip_fails_a_run_that_counts(tmp_path: Path) -> None:
    said = run(tmp_path, "true")
    summary = said.partition("short test summary")[2]
    refused = {way for way in WAYS if f"test_{way}.py" in summary}
    assert refused == set(WAYS), said
    assert said.count("With CI=true nothing may be skipped.") >= len(WAYS)
    assert "skipped" not in said.splitlines()[-1]
    assert "passed" not in said.splitlines()[-1]


def test_a_skip_is_a_skip_elsewhere(tmp_path: Path) -> None:
    said = run(tmp_path, "")
    assert "With CI=true" not in said
    assert "6 skipped, 1 xfailed" in said.splitlines()[-1]
