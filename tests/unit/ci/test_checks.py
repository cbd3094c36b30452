"""The runner of the checks: it counts right, goes on after a failure, and never takes nothing for success."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.programs import program

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    """The program, which is no package."""
    return program("checks")


@pytest.fixture
def scratch(checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checks, "RESULTS", tmp_path)
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "END_TIME_S", 1.0)
    return tmp_path


def python(source: str) -> tuple[str, ...]:
    return (sys.executable, "-c", source)


def test_a_failing_command_does_not_stop_the_next(checks: ModuleType, scratch: Path) -> None:
    part = checks.Part("both", (python("raise SystemExit(3)"), python("open('there', 'w')")), 30)
    outcome = checks.run(part, os.environ)
    assert (outcome.passed, outcome.failed) == (1, 1)
    assert (scratch / "there").exists()
    assert outcome.complaints[0].endswith("exit code 3")


@pytest.mark.slow
def test_tests_are_counted(checks: ModuleType, scratch: Path) -> None:
    (scratch / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\n"
        "@pytest.fixture\ndef broken(): assert 0\ndef test_c(broken): pass\ndef test_d(): pytest.skip('no')\n"
    )
    command = (sys.executable, "-m", "pytest", "-q", "--rootdir", str(scratch), str(scratch / "test_it.py"))
    outcome = checks.run(checks.Part("some", (command,), 60), {**os.environ, "CI": "", "PYTEST_ADDOPTS": ""})
    assert (outcome.passed, outcome.failed) == (1, 2)


@pytest.mark.slow
def test_a_pytest_that_runs_nothing_failed(checks: ModuleType, scratch: Path) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "--rootdir", str(scratch), "no_such_folder")
    outcome = checks.run(checks.Part("none", (command,), 60), os.environ)
    assert (outcome.passed, outcome.failed) == (0, 1)


def test_a_missing_program_failed(checks: ModuleType, scratch: Path) -> None:
    outcome = checks.run(checks.Part("none", (("/no/such/program",),), 60), os.environ)
    assert (outcome.passed, outcome.failed) == (0, 1)
    assert outcome.complaints == ["/no/such/program: No such file or directory"]


@pytest.mark.slow
def test_nothing_of_a_part_outlives_its_time(checks: ModuleType, scratch: Path) -> None:
    """The command ignores being asked, and has a child."""
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "open('child', 'w').write(str(subprocess.Popen(['sleep', '60']).pid)); time.sleep(60)"
    )
    started_s = time.monotonic()
    outcome = checks.run(checks.Part("slow", (python(stubborn),), 0), os.environ)
    assert time.monotonic() - started_s < 30
    assert outcome.failed == 1
    assert "not done when the part's time was over" in outcome.complaints[0]
    if (scratch / "child").exists():
        child = Path("/proc", (scratch / "child").read_text(), "cmdline")
        # Killed with its group, it still needs a moment of processor time to be gone.
        deadline_s = time.monotonic() + 10
        while _is_sleeping(child) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert not _is_sleeping(child)


def _is_sleeping(command_line: Path) -> bool:
    """Whether the child runs. A zombie's command line is empty, and a process that got its number has another."""
    try:
        return command_line.read_bytes() == b"sleep\x0060\x00"
    except OSError:
        return False


def test_the_last_line_is_the_sum(checks: ModuleType) -> None:
    outcomes = [checks.Outcome("lint", 2, 0, 1.5), checks.Outcome("rack", 9, 1, 60.0, ["rack: exit code 1"])]
    lines = checks.table(outcomes).splitlines()
    assert lines[-1] == "11 passed, 1 failed"
    assert lines[-2] == "failed: rack: exit code 1"
    assert lines[-3].split() == ["all", "61.5", "11", "1"]


def test_parts_are_chosen_by_name(checks: ModuleType) -> None:
    extra = [part for part in checks.PARTS if part.is_extra]
    assert [part.name for part in extra] == ["molecule cluster3", "molecule chain", "stories on hosts"]
    assert checks.chosen(["test"]) == [part for part in checks.PARTS if part not in extra]
    assert checks.chosen([part.name for part in extra]) == extra
    fast = checks.chosen(["check"])
    assert {part.name for part in fast} < {part.name for part in checks.PARTS}
    assert all(part.is_fast for part in fast)
    assert [part.name for part in checks.chosen(["rack", "lint"])] == ["rack", "lint"]
    with pytest.raises(ValueError, match="racks is no part; there are: check, test, lint"):
        checks.chosen(["racks"])
    with pytest.raises(ValueError, match="nothing is no part"):
        checks.chosen([])


def test_every_folder_of_tests_is_in_a_part(checks: ModuleType) -> None:
    """The fast part takes every folder that is not named as slow, so each slow one needs a part of its own."""
    words = {word for part in checks.PARTS for command in part.commands for word in command}
    for folder in checks.SLOW_FOLDERS:
        inside = {f"tests/{folder}", *(f"tests/{folder}/{path.name}" for path in (ROOT / "tests" / folder).iterdir())}
        assert words & inside, f"tests/{folder} is run by no part"


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["check", "test"]])
def test_prerequisites_refuse_what_they_do_not_know(arguments: list[str]) -> None:
    command = ["/usr/bin/python3", str(ROOT / ".ci" / "prerequisites.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "prerequisites: usage: .ci/prerequisites.py check|demo|test|bench\n"
