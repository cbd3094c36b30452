"""The runner of the checks: it counts right, goes on after a failure, and never takes nothing for success."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.patience import PATIENCE_S, wait_until
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
    part = checks.Part("both", (python("raise SystemExit(3)"), python("open('there', 'w')")))
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
    outcome = checks.run(checks.Part("some", (command,)), {**os.environ, "CI": "", "PYTEST_ADDOPTS": ""})
    assert (outcome.passed, outcome.failed) == (1, 2)


@pytest.mark.slow
def test_a_pytest_that_runs_nothing_failed(checks: ModuleType, scratch: Path) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "--rootdir", str(scratch), "no_such_folder")
    outcome = checks.run(checks.Part("none", (command,)), os.environ)
    assert (outcome.passed, outcome.failed) == (0, 1)


def test_a_missing_program_failed(checks: ModuleType, scratch: Path) -> None:
    outcome = checks.run(checks.Part("none", (("/no/such/program",),)), os.environ)
    assert (outcome.passed, outcome.failed) == (0, 1)
    assert outcome.complaints == ["/no/such/program: No such file or directory"]


@pytest.mark.slow
def test_nothing_of_a_part_that_hangs_outlives_it(checks: ModuleType, scratch: Path) -> None:
    """The command ignores being asked, and has a child."""
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "open('child', 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); time.sleep(600)"
    )
    started_s = time.monotonic()
    outcome = checks.run(checks.Part("slow", (python(stubborn),), silence_s_max=5), os.environ)
    assert time.monotonic() - started_s < PATIENCE_S, "it waited for the end of what hangs"
    assert outcome.failed == 1
    assert "nothing was heard of it for" in outcome.complaints[0]
    if (scratch / "child").exists():
        child = Path("/proc", (scratch / "child").read_text(), "cmdline")
        # Killed with its group, it still needs a moment of processor time to be gone.
        wait_until(lambda: not _is_sleeping(child))


class Leaps:
    """A clock that is so many seconds further whenever something is heard of a part, and says so in a file."""

    def __init__(self, checks: ModuleType, leap_s: float, folder: Path) -> None:
        self._relay, self._leap_s, self._heard = checks.Relay, leap_s, folder / "heard"
        self._leaps = 0

    def monotonic(self) -> float:
        if isinstance(threading.current_thread(), self._relay):
            self._leaps += 1
            self._heard.write_text(str(self._leaps))
        return time.monotonic() + self._leaps * self._leap_s


# Says a line, and the next one once that was heard.
SAYS = """
import itertools, pathlib, sys, time
heard = pathlib.Path("heard")
for number in itertools.count() if len(sys.argv) < 2 else range(int(sys.argv[1])):
    print("still", number, flush=True)
    while not heard.exists() or heard.read_text() in ("", str(number)):
        time.sleep(0.01)
"""


def test_what_is_slow_but_heard_of_is_left_alone(
    checks: ModuleType, scratch: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """However long it takes in all; what hangs is told by its silence, and what it said until then is shown."""
    monkeypatch.setattr(checks, "time", Leaps(checks, 900, scratch))
    outcome = checks.run(checks.Part("slow", ((*python(SAYS), "3"),), silence_s_max=1800), os.environ)
    assert (outcome.passed, outcome.failed) == (1, 0)
    assert outcome.took_s > 1800
    assert capfd.readouterr().out.splitlines()[-3:] == [f"still {number}" for number in range(3)]


@pytest.mark.slow
def test_what_talks_without_end_is_ended(checks: ModuleType, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "time", Leaps(checks, 100, scratch))
    outcome = checks.run(checks.Part("endless", (python(SAYS),), silence_s_max=1800), os.environ)
    assert outcome.failed == 1
    assert re.search(r"because it was not done after \d{4} s", outcome.complaints[0])


@pytest.mark.slow
def test_what_a_command_leaves_behind_with_its_output_holds_nothing_up(
    checks: ModuleType, scratch: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    leaves = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)"
    started_s = time.monotonic()
    outcome = checks.run(checks.Part("quick", (python(leaves),)), os.environ)
    took_s = time.monotonic() - started_s
    os.kill(int(capfd.readouterr().out.split()[-1]), signal.SIGKILL)
    assert outcome.passed == 1
    assert took_s < PATIENCE_S, "it waited for what was left behind"


def test_a_part_is_silent_for_longer_than_any_test_of_it_may_take(checks: ModuleType) -> None:
    """Else the limit of the part ends what the limit of the test leaves alone, without saying which test it was."""
    default_s = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["timeout"]
    for part in checks.PARTS:
        assert part.silence_s_max >= 2 * default_s
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for found in re.findall(r"pytest\.mark\.timeout\((\d+)\)", file.read_text()):
            name = str(file.relative_to(ROOT))
            silence_s = 3600 if name in checks.STORIES else checks.SILENCE_S_MAX
            assert default_s < int(found) < silence_s, f"{name}: a limit of {found} s"


def _is_sleeping(command_line: Path) -> bool:
    """Whether the child runs. A zombie's command line is empty, and a process that got its number has another."""
    try:
        return command_line.read_bytes() == b"sleep\x00600\x00"
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
