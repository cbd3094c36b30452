"""Runs the parts that checks are made of, one after the other, and says at the end what each cost and found.

    .ci/checks.py check         the fast parts: no root, no hosts
    .ci/checks.py test          all of them but those that only their names call
    .ci/checks.py PART...       these; --list names them

A part that fails does not stop the others: one run shows everything. What pytest counts is counted; any other command
counts as one test. The last line is always `N passed, N failed`. Exit code 1 if anything failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / ".build" / "checks"
PYTHON = str(ROOT / ".venv" / "bin" / "python")
Command = tuple[str, ...]

# Folders of tests that are slow, need root, or need something that is no Python; all others are fast.
SLOW_FOLDERS = ("sim", "crash", "foreign", "system")
# What mypy looks at together; programs that are no packages are looked at alone.
TYPED: tuple[Command, ...] = (
    ("broker/src", "cli/src", "bench", "demo", "molecule/rack/mqrack"),
    ("gen",),
    ("broker/native_build.py", "broker/native_training.py", "broker/native_world.py"),
    (".ci/checks.py",),
    (".ci/prerequisites.py",),
    (".ci/soak.py",),
)
END_TIME_S = 15.0


@dataclass(frozen=True, slots=True)
class Part:
    """Commands that run in their order; `time_s_max` holds for all of them together."""

    name: str
    commands: tuple[Command, ...]
    time_s_max: float
    is_fast: bool = False
    is_extra: bool = False  # run by its name alone


@dataclass(slots=True)
class Outcome:
    """What a part came to."""

    name: str
    passed: int = 0
    failed: int = 0
    took_s: float = 0.0
    complaints: list[str] = field(default_factory=list)


def tool(name: str, *arguments: str) -> Command:
    return (str(ROOT / ".venv" / "bin" / name), *arguments)


def pytest(*arguments: str) -> Command:
    return (PYTHON, "-m", "pytest", "-q", *arguments)


NOT_SLOW = tuple(f"--ignore=tests/{name}" for name in SLOW_FOLDERS)
ON_HOSTS = "tests/system/mqctl/test_rack.py"
# Long stories on hosts, each of one thing that seldom changes.
STORIES = (
    *(
        f"tests/system/mqctl/test_{name}.py"
        for name in ("scale_rack", "killed_rollout_rack", "rack_tls", "rack_firewall", "noop_rack")
    ),
    "tests/system/preflight/test_multicast_rack.py",
)
NOT_HOSTS = ("--ignore=tests/system/rack", *(f"--ignore={one}" for one in (ON_HOSTS, *STORIES)))
BY_TEST = ("-n", "3", "--dist", "worksteal")
BY_FILE = ("-n", "2", "--dist", "loadfile")

PARTS = (
    Part("lint", (tool("ruff", "check", "-q", "."), tool("ruff", "format", "-q", "--check", ".")), 60, True),
    Part("types", tuple(tool("mypy", *group) for group in TYPED), 300, True),
    Part("arrows", (tool("lint-imports", "--no-logo"),), 60, True),
    Part("fast tests", (pytest(*BY_TEST, "-m", "not system and not slow", "tests", *NOT_SLOW),), 600, True),
    Part("slow tests", (pytest(*BY_TEST, "-m", "not system and slow", "tests", *NOT_SLOW),), 300),
    Part("tests that need root", (pytest("-m", "system", "tests", *NOT_SLOW),), 300),
    Part("simulation", (pytest("-n", "2", "tests/sim"),), 900),
    Part("crash points", (pytest("-n", "2", "tests/crash"),), 600),
    # Tests that mostly wait for other processes; those of one file share brokers or hosts, so they stay together.
    Part("foreign clients", (pytest(*BY_FILE, "tests/foreign"),), 600),
    Part("brokers and mqctl", (pytest(*BY_FILE, "tests/system", *NOT_HOSTS),), 1500),
    Part("rack", (pytest("tests/system/rack"),), 600),
    Part("collection", (tool("ansible-lint", "--offline"), (str(ROOT / ".ci" / "sanity"),)), 900),
    Part("benchmark, counts only", ((PYTHON, "-m", "bench", "--short"),), 600),
    Part("mqctl on hosts", (pytest(ON_HOSTS),), 1200),
    Part("molecule default", ((str(ROOT / "molecule" / "run"), "default"),), 1200),
    Part("molecule power", ((str(ROOT / "molecule" / "run"), "power"),), 900),
    Part("molecule cluster3", ((str(ROOT / "molecule" / "run"), "cluster3"),), 1200, is_extra=True),
    Part("molecule chain", ((str(ROOT / "molecule" / "run"), "chain"),), 900, is_extra=True),
    Part("stories on hosts", (pytest(*STORIES),), 3600, is_extra=True),
)


def main(arguments: Sequence[str]) -> int:
    if arguments == ["--list"]:
        print("\n".join(part.name for part in PARTS))
        return 0
    try:
        parts = chosen(arguments)
    except ValueError as fault:
        print(f"checks: {fault}", file=sys.stderr)
        return 2
    RESULTS.mkdir(parents=True, exist_ok=True)
    # Told to end, it ends what runs, as for Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes = []
    try:
        for part in parts:
            outcomes.append(run(part, environment(os.environ, is_whole=arguments == ["test"])))
    except KeyboardInterrupt:
        print("\nchecks: interrupted", file=sys.stderr)
        outcomes.append(Outcome(part.name, failed=1, complaints=["interrupted"]))
    print(table(outcomes))
    return 1 if any(one.failed for one in outcomes) else 0


def chosen(names: Sequence[str]) -> list[Part]:
    """Parts by name, by `check` or `test`."""
    known = {part.name: part for part in PARTS}
    if list(names) in (["check"], ["test"]):
        return [part for part in PARTS if part.is_fast or (names[0] != "check" and not part.is_extra)]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(
            f"{unknown[0] if unknown else 'nothing'} is no part; there are: check, test, {', '.join(known)}"
        )
    return [known[name] for name in names]


def environment(outside: Mapping[str, str], *, is_whole: bool) -> dict[str, str]:
    """The tools of the environment first, so that what they call finds the others. More examples where time allows.

    What is compiled is kept, because the checks start hundreds of processes, and kept outside the source tree, because
    what is packed there is packed as it is.
    """
    own = {
        "PATH": f"{ROOT / '.venv' / 'bin'}:{outside.get('PATH', os.defpath)}:/usr/sbin:/sbin",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"),
        "PYTHONPYCACHEPREFIX": str(RESULTS.parent / "bytecode"),
    }
    kept = {name: value for name, value in outside.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**({"EXAMPLES": "150"} if is_whole else {}), **kept, **own}


def run(part: Part, environ: Mapping[str, str]) -> Outcome:
    """Run every command of the part."""
    outcome = Outcome(part.name)
    started_s = time.monotonic()
    for number, command in enumerate(part.commands):
        report = RESULTS / f"{part.name.replace(' ', '-')}-{number}.xml"
        report.unlink(missing_ok=True)
        is_pytest = command[1:3] == ("-m", "pytest")
        full = (*command, f"--junit-xml={report}") if is_pytest else command
        print(f"== {part.name}: {shown(command)}", flush=True)
        left_s = part.time_s_max - (time.monotonic() - started_s)
        complaint = execute(full, environ, left_s)
        count(outcome, complaint, report if is_pytest else None)
    outcome.took_s = time.monotonic() - started_s
    return outcome


def shown(command: Command) -> str:
    return " ".join(word.replace(f"{ROOT}/", "") for word in command)


def execute(command: Command, environ: Mapping[str, str], time_s: float) -> str:
    """Run one command in a group of processes of its own, so that nothing of it stays; why it failed, or nothing."""
    try:
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as fault:
        return f"{shown(command[:1])}: {fault.strerror}"
    try:
        code = process.wait(max(time_s, 1.0))
    except subprocess.TimeoutExpired:
        end(process)
        return f"{shown(command)}: not done when the part's time was over"
    except KeyboardInterrupt:
        end(process)
        raise
    return "" if code == 0 else f"{shown(command)}: exit code {code}"


def end(process: subprocess.Popen[bytes]) -> None:
    """First ask, so that tests take down the hosts that they made, then insist."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(END_TIME_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def count(outcome: Outcome, complaint: str, report: Path | None) -> None:
    """Add up what a command found. A pytest that failed without naming a test failed once."""
    passed, failed = counted(report) if report else (0 if complaint else 1, 0)
    if complaint:
        failed = max(failed, 1)
        outcome.complaints.append(complaint)
    outcome.passed += passed
    outcome.failed += failed


def counted(report: Path) -> tuple[int, int]:
    """Passed and failed tests in what pytest wrote. Skipped ones are neither."""
    if not report.exists():
        return 0, 0
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total, failed, skipped = (
        sum(sum(int(suite.get(name, "0")) for suite in suites) for name in names)
        for names in (("tests",), ("failures", "errors"), ("skipped",))
    )
    return max(total - failed - skipped, 0), failed


def table(outcomes: Iterable[Outcome]) -> str:
    """One line per part, then the closing line."""
    rows = list(outcomes)
    width = max([len(one.name) for one in rows], default=0)
    lines = ["", f"{'part':{width}}  {'seconds':>8}  {'passed':>6}  {'failed':>6}"]
    passed, failed = sum(one.passed for one in rows), sum(one.failed for one in rows)
    whole = Outcome("all", passed, failed, sum(one.took_s for one in rows))
    lines += [f"{one.name:{width}}  {one.took_s:8.1f}  {one.passed:6}  {one.failed:6}" for one in (*rows, whole)]
    lines += [f"failed: {complaint}" for one in rows for complaint in one.complaints]
    return "\n".join([*lines, f"{passed} passed, {failed} failed"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
