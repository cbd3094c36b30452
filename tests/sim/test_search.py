"""What says which histories a run takes, and what searches ordinary ones for planted bugs."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sim import days, search, test_clusters, test_simulation
from tests.sim.directed import DIRECTED
from tests.sim.directed_clusters import DIRECTED as DIRECTED_CLUSTERS
from tests.sim.histories import CHANGES_FROM, FULL_FROM, Simulation
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


def test_each_day_has_its_seeds_and_all_have_their_day() -> None:
    seeds = range(100, 350)
    taken = [days.of_today(seeds, 50, today) for today in range(1000, 1005)]
    assert sorted(seed for some in taken for seed in some) == list(seeds)
    assert [len(some) for some in taken] == [50] * 5
    assert days.of_today(seeds, 50, 1005) == taken[0]
    assert days.of_today([1, 2, 3, 4, 5], 2, 1) == [3, 4]
    assert days.of_today([1, 2, 3, 4, 5], 2, 2) == [1, 2], "a day never has fewer than it should"


def test_of_a_table_each_day_has_a_third_and_three_days_have_all() -> None:
    for count in range(1, 12):
        days_of = [days.share_of_today(range(count), today) for today in range(1000, 1003)]
        assert {row for rows in days_of for row in rows} == set(range(count))
        assert all(len(rows) in (count // 3, count // 3 + 1, 1) for rows in days_of)
        assert min(map(len, days_of)) > 0
    assert days.share_of_today({"a": 1, "b": 2, "c": 3, "d": 4}, None) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("setting", "taken"), [({}, "abcd"), ({"CHECKS_DAY": "1000"}, "b"), ({"CHECKS_DAY": "1000", "SOAK": "1"}, "abcd")]
)
def test_all_of_a_table_is_taken_but_by_a_run_that_says_its_day(setting: dict[str, str], taken: str) -> None:
    """So a part that is called by its name is whole, and whatever runs tests by itself."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CHECKS_DAY", "SOAK", "SIM_DAY")}
    program = "from tests.sim.days import share_of_today; print(*share_of_today('abcd'), sep='')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**kept, **setting}, capture_output=True, text=True, check=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stdout == f"{taken}\n"


def test_each_day_all_histories_that_are_made_for_bugs_are_good_without() -> None:
    """They are what a true bug of that kind shows in; where it is planted any violation will do, its own too."""
    for module, whole in ((test_clusters, set(DIRECTED_CLUSTERS.values())), (test_simulation, set(DIRECTED))):
        (mark,) = module.test_histories_that_are_made_for_bugs_are_good_without.pytestmark
        assert set(mark.args[1]) == whole, module


def test_the_day_is_that_of_the_newest_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIM_DAY", raising=False)
    monkeypatch.setattr(days, "__file__", str(tmp_path / "days.py"))
    assert days.day() == 0, "there is no repository"
    who = ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "one"]):
        dated = {"GIT_COMMITTER_DATE": "@86400000 +0000", "PATH": "/usr/local/bin:/usr/bin:/bin"}
        subprocess.run(["git", *words], cwd=tmp_path, env=dated, check=True, timeout=PATIENCE_S)
    assert days.day() == 1000
    monkeypatch.setenv("SIM_DAY", "7")
    assert days.day() == 7


def test_what_was_directed_is_a_bug_that_is_searched_for() -> None:
    names = [bug.name for bug in search.planted()]
    assert len(names) == len(set(names))
    assert set(DIRECTED) | set(DIRECTED_CLUSTERS) <= set(names)


def test_a_bug_that_shows_nearly_everywhere_is_found_in_one_of_the_first_histories() -> None:
    (bug,) = [each for each in search.planted() if each.name == "returned messages lose their place"]
    assert search.search(bug, FULL_FROM, math.inf) in (1, 2, 3)
    assert search.search(bug, FULL_FROM, time.monotonic() - 1) is None, "there was no time"


def test_a_bug_that_nothing_shows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "HISTORIES_MAX", 3)
    nothing = search.PlantedBug("nothing", contextlib.nullcontext, Simulation, lambda seed: True)
    with pytest.raises(AssertionError, match="3 histories from seed 4000 did not show the bug: nothing"):
        search.search(nothing, CHANGES_FROM, math.inf)


def test_a_turn_of_the_soak_says_what_it_found() -> None:
    command = [sys.executable, "-m", "tests.sim.search", "--seconds", "0", "--from", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("planted bugs were found in ordinary histories, 0 were not\n")
    assert done.stdout.startswith("0 of ")
