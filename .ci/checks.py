"""Runs the parts that checks are made of, one after the other, and says at the end what each cost and found.

    .ci/checks.py check         the fast parts: no root, no hosts
    .ci/checks.py test          all of them but those that only their names call
    .ci/checks.py PART...       these; --list names them

A part that fails does not stop the others: one run shows everything. What pytest counts is counted; any other command
counts as one test. The last line is always `N passed, N failed`. Exit code 1 if anything failed.

Limits of time guard against what hangs, not against what is slow: a busy machine takes many times as long. A part ends
when nothing was heard of it for long, longer than any single test may take (`timeout` in pyproject.toml), so that one
that hangs leaves the others their time. Only what talks without end is stopped by the clock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

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
    ("broker/native_build.py", "broker/native_clock.py", "broker/native_training.py", "broker/native_world.py"),
    (".ci/checks.py",),
    (".ci/prerequisites.py",),
    (".ci/soak.py",),
)
SILENCE_S_MAX = 1800.0
TALK_TIMES = 2  # so many times as long may a command talk without an end
END_TIME_S = 60.0
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Part:
    """Commands that run in their order; each may be silent for so long."""

    name: str
    commands: tuple[Command, ...]
    is_fast: bool = False
    is_extra: bool = False  # run by its name alone
    silence_s_max: float = SILENCE_S_MAX


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
        for name in (
            "scale_rack",
            "killed_rollout_rack",
            "lost_host_rack",
            "operator_rack",
            "cut_off_rack",
            "rack_tls",
            "rack_firewall",
            "noop_rack",
        )
    ),
    "tests/system/preflight/test_multicast_rack.py",
)
NOT_HOSTS = ("--ignore=tests/system/rack", *(f"--ignore={one}" for one in (ON_HOSTS, *STORIES)))
BY_TEST = ("-n", "3", "--dist", "worksteal")
BY_FILE = ("-n", "2", "--dist", "loadfile")

PARTS = (
    Part("lint", (tool("ruff", "check", "-q", "."), tool("ruff", "format", "-q", "--check", ".")), is_fast=True),
    Part("types", tuple(tool("mypy", *group) for group in TYPED), is_fast=True),
    Part("arrows", (tool("lint-imports", "--no-logo"),), is_fast=True),
    Part("fast tests", (pytest(*BY_TEST, "-m", "not system and not slow", "tests", *NOT_SLOW),), is_fast=True),
    Part("slow tests", (pytest(*BY_TEST, "-m", "not system and slow", "tests", *NOT_SLOW),)),
    Part("tests that need root", (pytest("-m", "system", "tests", *NOT_SLOW),)),
    Part("simulation", (pytest("-n", "2", "tests/sim"),)),
    Part("crash points", (pytest("-n", "2", "tests/crash"),)),
    # Tests that mostly wait for other processes; those of one file share brokers or hosts, so they stay together.
    Part("foreign clients", (pytest(*BY_FILE, "tests/foreign"),)),
    Part("brokers and mqctl", (pytest(*BY_FILE, "tests/system", *NOT_HOSTS),)),
    Part("rack", (pytest("tests/system/rack"),)),
    Part("collection", (tool("ansible-lint", "--offline"), (str(ROOT / ".ci" / "sanity"),))),
    Part("benchmark, counts only", ((PYTHON, "-m", "bench", "--short"),)),
    Part("mqctl on hosts", (pytest(ON_HOSTS),)),
    Part("molecule default", ((str(ROOT / "molecule" / "run"), "default"),)),
    Part("molecule power", ((str(ROOT / "molecule" / "run"), "power"),)),
    Part("molecule cluster3", ((str(ROOT / "molecule" / "run"), "cluster3"),), is_extra=True),
    Part("molecule chain", ((str(ROOT / "molecule" / "run"), "chain"),), is_extra=True),
    Part("stories on hosts", (pytest(*STORIES),), is_extra=True, silence_s_max=3600),
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
        colour = ("--color=yes",) if sys.stdout.isatty() else ()
        full = (*command, f"--junit-xml={report}", *colour) if is_pytest else command
        print(f"== {part.name}: {shown(command)}", flush=True)
        complaint = execute(full, environ, part.silence_s_max)
        count(outcome, complaint, report if is_pytest else None)
    outcome.took_s = time.monotonic() - started_s
    return outcome


def shown(command: Command) -> str:
    return " ".join(word.replace(f"{ROOT}/", "") for word in command)


class Relay(threading.Thread):
    """Passes on what a process says, and knows when that was last."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._source = source
        self.heard_at_s = time.monotonic()
        self.start()

    def run(self) -> None:
        while said := os.read(self._source.fileno(), 65536):
            self.heard_at_s = time.monotonic()
            sys.stdout.buffer.write(said)
            sys.stdout.buffer.flush()


def execute(command: Command, environ: Mapping[str, str], silence_s_max: float) -> str:
    """Run one command in a group of processes of its own, so that nothing of it stays; why it failed, or nothing."""
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as fault:
        return f"{shown(command[:1])}: {fault.strerror}"
    assert process.stdout is not None
    relay = Relay(process.stdout)
    try:
        complaint = watch(process, relay, silence_s_max)
    except KeyboardInterrupt:
        end(process)
        raise
    finally:
        # What the process left behind may hold its output open for ever.
        relay.join(END_TIME_S if process.poll() is None else LOOK_S)
    return f"{shown(command)}: {complaint}" if complaint else ""


def watch(process: subprocess.Popen[bytes], relay: Relay, silence_s_max: float) -> str:
    """Wait for its end, or make one where it seems to hang; why it failed, or nothing."""
    started_s = time.monotonic()
    while True:
        try:
            code = process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            silent_s, talked_s = time.monotonic() - relay.heard_at_s, time.monotonic() - started_s
            if silent_s > silence_s_max:
                end(process)
                return f"ended, because nothing was heard of it for {silent_s:.0f} s"
            if talked_s > TALK_TIMES * silence_s_max:
                end(process)
                return f"ended, because it was not done after {talked_s:.0f} s"
        else:
            return "" if code == 0 else f"exit code {code}"


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
