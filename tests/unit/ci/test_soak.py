"""The soak: so many histories are all of them, and whatever fails is named with the command that runs it again."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.sim.__main__ import KINDS
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
    assert turns["rooms"].again == "python -m tests.fuzz.fuzz_rooms --seconds 60 --seed 1007"
    assert turns["bugs"].again == "python -m tests.sim --bugs --soak 60 --from 1008000"
    assert turns["old copies"].again == "python -m tests.sim --old-copies --soak 60 --from 1006000"
    assert turns["planted bugs"].again == "python -m tests.sim.search --seconds 100 --from 1013000"
    assert turns["leaving"].again == "python -m tests.sim --leaving --soak 60 --from 1018000"
    assert turns["mutants"].again == "python -m tests.mutants --seconds 100 --seed 1009"
    assert soak.turn_of(len(soak.TURNS) + 7, 7, 5.0).again == "python -m tests.fuzz.fuzz_rooms --seconds 5 --seed 7"


def test_each_kind_of_history_has_its_turn(soak: ModuleType) -> None:
    """Else nobody looks at seeds of it beside those that tests take."""
    turns = (soak.turn_of(number, 1, 1.0) for number in range(len(soak.TURNS)))
    options = {turn.command[3] for turn in turns if turn.command[2] == "tests.sim"}
    assert options == {f"--{name.replace('_', '-')}" for name in KINDS}


@pytest.mark.slow
def test_a_turn_that_is_cut_off_says_so(
    soak: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "LOGS", tmp_path)
    monkeypatch.setattr(soak, "OVERTIME_S_MAX", 0.0)
    assert soak.take(soak.Turn("long", (sys.executable, "-c", "import time; time.sleep(600)")), 1.0)
    assert "s: cut off as the time is over" in capsys.readouterr().out


def test_the_tables_are_all_of_which_a_run_takes_a_share(soak: ModuleType) -> None:
    found = set[str]()
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if "share_of_today" not in (text := file.read_text()) or file.name == "test_search.py":
            continue
        for one in ast.parse(text).body:
            names = {each.id for each in ast.walk(one) if isinstance(each, ast.Name)}
            if (
                isinstance(one, ast.FunctionDef)
                and one.name.startswith("test_")
                and names & {"share_of_today", "share_of_floods"}
            ):
                found.add(f"{file.relative_to(ROOT)}::{one.name}")
    own = "tests/system/broker/test_floods.py::test_each_day_has_a_flood_by_many_and_three_days_have_all"
    assert found - {own} == set(soak.TABLES)
    assert len(found) > 20


def test_counts_below_zero_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "soak.py", "--histories", "-1"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "not below 0" in done.stderr
