"""Fragments of the changelog are ones that antsibull-changelog makes a changelog of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = Path(sys.executable).parent / "antsibull-changelog"


@pytest.mark.slow
def test_fragments_and_changelog_are_well_formed() -> None:
    for action in ("lint", "lint-changelog-yaml"):
        arguments = [str(ROOT / "changelogs" / "changelog.yaml")] if action == "lint-changelog-yaml" else []
        done = subprocess.run(
            [str(TOOL), action, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=290, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_lines_are_not_longer_than_the_collections_linter_allows() -> None:
    long = [
        f"{file.name}:{number}"
        for file in sorted((ROOT / "changelogs" / "fragments").glob("*.yml"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert long == []
