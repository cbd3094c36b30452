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


@pytest.mark.slow
def test_processor_time_is_told_of_all_that_a_part_waited_for(checks: ModuleType, scratch: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.4: pass"
    parent = f"{busy}\nimport subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    outcome = checks.run(checks.Part("busy", (python(parent), python("import time; time.sleep(0.3)"))), os.environ)
    assert outcome.passed == 2
    assert 0.75 < outcome.computed_s < outcome.took_s
    assert outcome.machine_s > 0.75


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


@pytest.mark.parametrize("code", [0, 3])
def test_nothing_of_the_group_of_a_command_outlives_it(checks: ModuleType, scratch: Path, code: int) -> None:
    leaves = "import subprocess, sys; open('child', 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    outcome = checks.run(checks.Part("quick", (python(f"{leaves}; sys.exit({code})"),)), os.environ)
    assert (outcome.passed, outcome.failed) == ((0, 1) if code else (1, 0))
    child = Path("/proc", (scratch / "child").read_text(), "cmdline")
    wait_until(lambda: not _is_sleeping(child))


def test_a_part_is_silent_for_longer_than_any_test_of_it_may_take(checks: ModuleType) -> None:
    """Else the limit of the part ends what the limit of the test leaves alone, without saying which test it was."""
    default_s = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["timeout"]
    for part in checks.PARTS:
        assert part.silence_s_max >= 2 * default_s
    named = {word: part.silence_s_max for part in checks.PARTS for command in part.commands for word in command}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for found in re.findall(r"pytest\.mark\.timeout\((\d+)\)", file.read_text()):
            name = str(file.relative_to(ROOT))
            silence_s = named.get(name, checks.SILENCE_S_MAX)
            assert default_s < int(found) < silence_s, f"{name}: a limit of {found} s"


def _is_sleeping(command_line: Path) -> bool:
    """Whether the child runs. A zombie's command line is empty, and a process that got its number has another."""
    try:
        return command_line.read_bytes() == b"sleep\x00600\x00"
    except OSError:
        return False


def test_what_check_leaves_out_is_in_the_test_of_everything(checks: ModuleType) -> None:
    """Where all is run, one part has the fast tests, the slow ones and those that need root."""
    names = {part.name for part in checks.chosen(["test"])}
    assert {part.name for part in checks.chosen(["check"])} - names == {"fast tests"}
    (fast,) = next(part for part in checks.PARTS if part.name == "fast tests").commands
    (whole,) = next(part for part in checks.PARTS if part.name == "tests in one process").commands
    assert set(fast) - set(whole) == {checks.FAST, *checks.CHANGED, *checks.BY_TEST}
    (landing,) = next(part for part in checks.PARTS if part.name == "tests of changes").commands
    assert set(landing) - set(whole) == {"not system", *checks.LANDING, *checks.BY_TEST}
    assert whole.count("-m") == 1, "of python -m pytest"


def test_the_last_line_is_the_sum(checks: ModuleType) -> None:
    outcomes = [
        checks.Outcome("lint", 2, 0, 1.5, 2.0, 2.5),
        checks.Outcome("rack", 9, 1, 60.0, 9.25, 70.0, ["rack: exit code 1"]),
    ]
    lines = checks.table(outcomes).splitlines()
    assert lines[-1] == "11 passed, 1 failed"
    assert lines[-2] == "failed: rack: exit code 1"
    assert lines[-3].split() == ["all", "61.5", "11.2", "72.5", "11", "1"]


def test_a_run_of_all_takes_the_share_of_its_day_and_says_so(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without history, or where nobody wants a share, it is all of it; and a part by its name is always whole."""
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    assert checks.environment({}, is_whole=True)["CHECKS_DAY"] == ""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), (*who, "commit", "-q", "--allow-empty", "-m", "one")):
        dated = {"GIT_COMMITTER_DATE": "@86400000 +0000", "PATH": "/usr/local/bin:/usr/bin:/bin"}
        subprocess.run(["git", *words], cwd=tmp_path, env=dated, check=True, timeout=PATIENCE_S)
    assert checks.environment({}, is_whole=True)["CHECKS_DAY"] == "1000"
    assert checks.environment({"CHECKS_DAY": ""}, is_whole=True)["CHECKS_DAY"] == ""
    assert "CHECKS_DAY" not in checks.environment({"CHECKS_DAY": "7"}, is_whole=False)
    assert checks.share("") == ""
    said = checks.share("1000")
    assert said == "day 1000: a third of tables, stories and parts; all: CHECKS_DAY= make test"
    assert checks.table([checks.Outcome("lint", 2)], taken=said).splitlines()[-2:] == [said, "2 passed, 0 failed"]


@pytest.mark.parametrize(
    ("words", "today", "taken"),
    [
        (["test"], "999", "each zero"), (["test"], "1000", "each one"), (["test"], "1001", "each two"),
        (["test"], "", "each zero one two"), (["zero", "one"], "1001", "zero one"),
    ],
)  # fmt: skip
def test_parts_of_other_days_are_left_out_of_a_run_of_all(
    checks: ModuleType, scratch: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    words: list[str], today: str, taken: str,
) -> None:  # fmt: skip
    days = {"each": None, "zero": 0, "one": 1, "two": 2}
    monkeypatch.setattr(checks, "RESULTS", scratch)
    monkeypatch.setattr(checks, "BUILDS", ("true",))
    monkeypatch.setattr(
        checks, "PARTS", [checks.Part(name, (("true",),), day_of_three=rest) for name, rest in days.items()]
    )
    monkeypatch.setenv("CHECKS_DAY", today)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert checks.main(words) == 0
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
            signal.signal(number, handler)
    lines = capfd.readouterr().out.splitlines()
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("part ")) :]
    assert [line.split()[0] for line in table[1 : 1 + len(taken.split())]] == taken.split()
    assert table[1 + len(taken.split())].split()[0] == "all"


def test_each_part_has_its_day(checks: ModuleType) -> None:
    """And each day has about as much to do on hosts: so that none of them has two of the long ones."""
    days = [part for part in checks.PARTS if part.day_of_three is not None]
    assert sorted(part.day_of_three for part in days if part.lane == checks.RACKS) == [0, 1, 2]
    assert {part.day_of_three for part in days} == {0, 1, 2}
    assert not any(part.is_extra for part in days)


def test_parts_are_chosen_by_name(checks: ModuleType) -> None:
    extra = [part for part in checks.PARTS if part.is_extra]
    scenarios = ["molecule cluster3", "molecule chain", "molecule scale_down"]
    assert [part.name for part in extra] == [
        "fast tests", "tests of changes", *scenarios, "stories on hosts", "whole chaos",
    ]  # fmt: skip
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


# -- lanes -------------------------------------------------------------------------------------------------------------


def shell(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


def test_all_parts_are_in_lanes_and_hosts_are_made_by_two_at_a_time(checks: ModuleType) -> None:
    everything = checks.chosen(["test"])
    looking, computing, processes, hosts, racks = checks.in_lanes(everything)
    assert [part.name for part in processes] == ["native build", "brokers and mqctl", "foreign clients"]
    assert [part.name for part in hosts] == ["mqctl on hosts", "chaos of the day"]
    assert [part.name for part in racks] == ["rack", "molecule default", "molecule power"]
    assert [*looking, *computing, *processes, *hosts, *racks] == everything
    quick = checks.in_lanes(checks.chosen(["check"]))
    assert [[part.name for part in lane] for lane in quick] == [["lint", "types", "arrows"], ["fast tests"]]


def test_lanes_that_wait_less_are_nicer(checks: ModuleType, scratch: Path) -> None:
    tell = shell("nice >$0")
    lanes = [[checks.Part(lane, ((*tell, lane),), lane=lane)] for lane in checks.LANES]
    checks.together(lanes, os.environ, checks.Wish())
    nices = [int((scratch / lane).read_text()) for lane in checks.LANES]
    own = os.nice(0)
    assert nices == [min(own + checks.NICE[lane], 19) for lane in checks.LANES]
    assert nices[0] > nices[-1] or own == 19


def test_lanes_go_on_beside_each_other_and_what_each_part_says_stays_whole(
    checks: ModuleType, scratch: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each waits for the other one, twice; a part that fails stops neither its lane nor the other."""
    there = "echo first of {0}; touch {0}; while [ ! -e {1} ]; do sleep 0.01; done; echo last of {0}"
    lanes = [
        [checks.Part("a", (shell(there.format("a", "b")),)), checks.Part("c", (shell("exit 3"), shell("true")))],
        [checks.Part("b", (shell(there.format("b", "c2") + "; exit 4"),)), checks.Part("d", (shell("true"),))],
    ]
    lanes[0].append(checks.Part("c2", (shell("touch c2"),)))
    found = checks.together(lanes, os.environ, checks.Wish())
    assert {name: (one.passed, one.failed) for name, one in found.items()} == {
        "a": (1, 0), "b": (0, 1), "c": (1, 1), "c2": (1, 0), "d": (1, 0),
    }  # fmt: skip
    said = capfd.readouterr().out.splitlines()
    for name in ("a", "b"):
        at = said.index(f"first of {name}")
        assert said[at + 1] == f"last of {name}"
        assert said[at + 2].startswith(f"== {name}: ended, ")
    assert "first of b" in (scratch / "b.log").read_text()


@pytest.mark.slow
def test_what_hangs_in_a_lane_is_ended_and_both_lanes_go_on(checks: ModuleType, scratch: Path) -> None:
    hangs = checks.Part("hangs", (shell("echo there; exec sleep 600"),), silence_s_max=2)
    lanes = [[hangs, checks.Part("next", (shell("true"),))], [checks.Part("beside", (shell("true"),))]]
    found = checks.together(lanes, os.environ, checks.Wish())
    assert {name: (one.passed, one.failed) for name, one in found.items()} == {
        "hangs": (0, 1), "next": (1, 0), "beside": (1, 0),
    }  # fmt: skip
    assert "nothing was heard of it for" in found["hangs"].complaints[0]


@pytest.mark.slow
def test_each_part_in_a_lane_has_a_report_and_a_count_of_its_own(checks: ModuleType, scratch: Path) -> None:
    parts = []
    for number in (1, 2):
        (scratch / f"{number}").mkdir()
        (scratch / f"{number}" / "test_it.py").write_text(f"def test_it(): pass\ndef test_{number}(): pass\n")
        command = (sys.executable, "-m", "pytest", "-q", "--rootdir", str(scratch), str(scratch / f"{number}"))
        parts.append(checks.Part(f"part {number}", (command,)))
    found = checks.together([parts[:1], parts[1:]], {**os.environ, "PYTEST_ADDOPTS": ""}, checks.Wish())
    assert {name: (one.passed, one.failed) for name, one in found.items()} == {"part 1": (2, 0), "part 2": (2, 0)}
    for number in (1, 2):
        report = (scratch / f"part-{number}-0.xml").read_text()
        assert f"test_{number}" in report
        assert f"test_{3 - number}" not in report


def test_what_could_not_be_run_is_no_success(
    checks: ModuleType, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "count", lambda *_: 1 / 0)
    lane = [checks.Part("a", (shell("true"),)), checks.Part("b", (shell("true"),))]
    found = checks.together([lane], os.environ, checks.Wish())
    assert {name: one.failed for name, one in found.items()} == {"a": 1, "b": 1}
    assert "division by zero" in found["a"].complaints[0]


def test_a_report_that_is_cut_off_is_a_failure_and_no_end_of_all(checks: ModuleType, scratch: Path) -> None:
    report = scratch / "cut.xml"
    report.write_text('<testsuites><testsuite tests="3" fail')
    for complaint in ("", "exit code 1"):
        outcome = checks.Outcome("some")
        checks.count(outcome, complaint, report)
        assert (outcome.passed, outcome.failed, len(outcome.complaints)) == (0, 1, 1)


WHOLE = """
import sys
from pathlib import Path
from tests.support.programs import program
checks = program("checks")
checks.RESULTS = checks.ROOT = Path(sys.argv[1])
def stays(name):
    return ("sh", "-c", f"echo said by {name}; echo $$ >{name}; exec sleep 600")
checks.BUILDS = stays("builds")
checks.PARTS = (
    checks.Part("done", (("true",),)),
    checks.Part("one", (("true",), stays("one"), stays("two"))),
    checks.Part("three", (stays("three"),)),
    checks.Part("four", (stays("four"),), lane=checks.PROCESSES),
    checks.Part("five", (stays("five"),), lane=checks.HOSTS),
    checks.Part("six", (stays("six"),), lane=checks.HOSTS),
)
raise SystemExit(checks.main(["test"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 20])
def test_an_interruption_ends_all_lanes_and_leaves_a_whole_table(
    tmp_path: Path, number: signal.Signals, times: int
) -> None:
    """However often somebody insists: each part has its row, nothing that was started goes on, and nothing begins."""
    command = [sys.executable, "-c", WHOLE, str(tmp_path)]
    started = [tmp_path / name for name in ("builds", "one", "four", "five")]
    environ = {**os.environ, "CHECKS_DAY": ""}  # all is wanted, so no line says what a day leaves out
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: all(file.exists() and file.read_text().endswith("\n") for file in started))
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.01)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "checks: interrupted" in err
    assert "Traceback" not in err
    table = out[out.index("\npart ") :].splitlines()[2:]
    assert [(line.split()[0], *line.split()[-2:]) for line in table[:7]] == [
        ("done", "1", "0"), ("one", "1", "1"), ("three", "0", "1"), ("four", "0", "1"), ("five", "0", "1"),
        ("six", "0", "1"), ("all", "2", "5"),
    ]  # fmt: skip
    assert table[7:] == [
        "failed: one: interrupted", "failed: three: not begun", "failed: four: interrupted",
        "failed: five: interrupted", "failed: six: not begun", "2 passed, 5 failed",
    ]  # fmt: skip
    for name in ("one", "four", "five"):
        assert f"said by {name}\n" in out
    assert not any((tmp_path / name).exists() for name in ("two", "three", "six"))
    assert not any(_is_sleeping(Path("/proc", file.read_text().strip(), "cmdline")) for file in started)


def test_all_is_there_that_a_part_said_before_its_end(
    checks: ModuleType, scratch: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Beside another one, however much it is."""
    much = python("print('x' * 79 + '\\n', end='', flush=True); print(('y' * 79 + '\\n') * 20_000, end='')")
    lanes = [[checks.Part("much", (much,))], [checks.Part("little", (shell("true"),))]]
    checks.together(lanes, os.environ, checks.Wish())
    assert capfd.readouterr().out.count("y" * 79 + "\n") == 20_000
