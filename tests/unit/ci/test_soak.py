"""The soak: so many histories are all of them, and whatever fails is named with the command that runs it again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.programs import program

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    """The program, which is no package."""
    return program("soak")


def test_pieces_are_all_seeds_and_none_twice(soak: ModuleType) -> None:
    turns = soak.pieces("clusters", ("--cluster",), 7, 1200)
    parts = [(int(turn.command[turn.command.index("--from") + 1]), int(turn.command[-3])) for turn in turns]
    assert parts == [(7, 500), (507, 500), (1007, 200)]
    assert turns[2].again == "python -m tests.sim --cluster --count 200 --from 1007"
    assert soak.pieces("simulation", (), 7, 0) == []


@pytest.mark.slow
def test_histories_are_counted_and_what_fails_ends_with_one(
    soak: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "LOGS", tmp_path)
    good, bad = soak.pieces("simulation", (), 3, 2)[0], soak.Turn("simulation 9", (sys.executable, "-c", "exit(1)"))
    assert soak.take(good, float("inf"))
    assert not soak.take(bad, float("inf"))
    assert soak.told([]) == 0
    assert soak.told([bad]) == 1
    said = capsys.readouterr().out
    assert "2 histories from seed 3" in said
    assert "0 failed" in said
    assert "FOUND by simulation 9; again: python -c exit(1)\n" in said


def test_everything_has_its_turn_and_names_its_seed(soak: ModuleType) -> None:
    count = len(soak.TURNS)
    turns = {turn.name: turn for turn in (soak.turn_of(number, 1000 + number, 100.0) for number in range(count))}
    assert tuple(turns) == soak.TURNS
    assert turns["rooms"].again == "python -m tests.fuzz.fuzz_rooms --seconds 60 --seed 1006"
    assert turns["bugs"].again == "python -m tests.sim --bugs --soak 60 --from 1007000"
    assert turns["old copies"].again == "python -m tests.sim --old-copies --soak 60 --from 1005000"
    assert turns["planted bugs"].again == "python -m tests.sim.search --seconds 100 --from 1012000"
    assert turns["mutants"].again == "python -m tests.mutants --seconds 100 --seed 1008"
    assert soak.turn_of(len(soak.TURNS) + 6, 7, 5.0).again == "python -m tests.fuzz.fuzz_rooms --seconds 5 --seed 7"


def test_counts_below_zero_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "soak.py", "--histories", "-1"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "not below 0" in done.stderr
