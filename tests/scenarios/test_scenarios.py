"""Every scenario goes as it is written. `python -m tests.scenarios --rewrite` writes down what comes of it now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.conversation import DASHES
from tests.scenarios.cluster import play

FILES = sorted((Path(__file__).parent / "conversations").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert play(text) == text


def test_there_are_scenarios_and_each_says_what_it_shows() -> None:
    assert len(FILES) >= 12
    for file in FILES:
        blocks = file.read_text(encoding="utf-8").strip().split("\n\n")
        assert sum(DASHES in block for block in blocks) >= 1
        assert blocks[0].startswith("#"), "a scenario says first what it shows"
