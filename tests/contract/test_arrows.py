"""The arrows between rooms, by import-linter with the contracts of pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]


def test_rooms_point_one_way() -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert len(contracts) >= 12
    assert f"Contracts: {len(contracts)} kept, 0 broken." in done.stdout
