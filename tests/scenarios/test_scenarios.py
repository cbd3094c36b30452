"""Every scenario goes as it is written. `python -m tests.scenarios --rewrite` writes down what comes of it now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tests.scenarios
from tests.golden.conversation import DASHES
from tests.scenarios.cluster import play

FILES = sorted((Path(__file__).parent / "conversations").glob("*.txt"))
FOREIGN = Path(__file__).parents[1] / "foreign"
WITH_CLIENTS, OF_LEAVERS = FOREIGN / "test_cluster_scenarios.py", FOREIGN / "test_scale_down.py"


@pytest.mark.slow
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


def test_the_list_of_scenarios_is_that_of_their_files() -> None:
    listed = re.findall(r"(?<![\w.])(\d+) ([RL]?) ", tests.scenarios.__doc__ or "")
    numbers = {int(number) for number, mark in listed if mark != "L"}
    assert numbers == {int(file.stem[:2]) for file in FILES if file.stem[0].isdigit()}
    for file, kind in ((WITH_CLIENTS, "R"), (OF_LEAVERS, "L")):
        repeated = {int(number) for number in re.findall(r"def test_(\d+)_", file.read_text(encoding="utf-8"))}
        assert repeated == {int(number) for number, mark in listed if mark == kind}
