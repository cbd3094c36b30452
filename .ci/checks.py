"""Runs the parts that checks are made of, and says at the end what each cost and found.

    .ci/checks.py check         the fast parts: no root, no hosts
    .ci/checks.py test          all of them but those that only their names call
    .ci/checks.py PART...       these; --list names them

These two run in lanes, one beside the other: what looks at the sources, what computes, what mostly waits for processes
on this machine, and what waits for hosts, in two. Within a lane one part follows the other, so that there are hosts of
two parts at most; the lanes that wait less are nicer to the others. What is said in lanes goes into a file of its part
and is printed when the part ends, so that it stays whole. The parts that are named run one after the other.

A part that fails stops no other one: one run shows everything. Ctrl-C and SIGTERM end what runs, and the table is there
all the same: what was interrupted and what never began are failures in it. What pytest counts is counted; any other
command counts as one test. The last line is always `N passed, N failed`. Exit code 1 if anything failed.

Limits of time guard against what hangs, not against what is slow: a busy machine takes many times as long. A part ends
when nothing was heard of it for long, longer than any single test may take (`timeout` in pyproject.toml), so that one
that hangs leaves the others their time. Only what talks without end is stopped by the clock.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
from tests.support.rotation import DAY, SHARES, day_of_newest_commit  # noqa: E402

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
LOOKING, COMPUTING, PROCESSES, HOSTS, RACKS = LANES = ("looking", "computing", "processes", "hosts", "racks")
# Who waits most has the processor when it wants it: the lanes of hosts are the longest, whatever runs beside them.
NICE = {LOOKING: 5, COMPUTING: 5, PROCESSES: 5, HOSTS: 0, RACKS: 0}
PRINTING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Part:
    """Commands that run in their order; each may be silent for so long."""

    name: str
    commands: tuple[Command, ...]
    is_fast: bool = False  # a part of `check`
    is_extra: bool = False  # no part of `test`: run by its name, or in `check`
    lane: str = COMPUTING
    silence_s_max: float = SILENCE_S_MAX
    day_of_three: int | None = None  # the rest of the days on which a run of all takes it; nothing: each day


@dataclass(slots=True)
class Outcome:
    """What a part came to."""

    name: str
    passed: int = 0
    failed: int = 0
    took_s: float = 0.0
    computed_s: float = 0.0
    machine_s: float = 0.0  # what all processes of the machine computed meanwhile, hosts and neighbours too
    complaints: list[str] = field(default_factory=list)


class Interrupted(Exception):
    """What ran was ended because somebody wanted the end of all."""


@dataclass(slots=True)
class Wish:
    """Whether somebody wants the end of all. A signal sets it and raises nothing: what is about to be counted is."""

    is_there: bool = False

    def take(self, *_: object) -> None:
        """For a signal."""
        self.is_there = True
        with suppress(OSError):
            os.write(2, b"\nchecks: interrupted, what runs is being ended\n")  # print may be in the middle of a line


def tool(name: str, *arguments: str) -> Command:
    return (str(ROOT / ".venv" / "bin" / name), *arguments)


def pytest(*arguments: str) -> Command:
    return (PYTHON, "-m", "pytest", "-q", *arguments)


NOT_SLOW = tuple(f"--ignore=tests/{name}" for name in SLOW_FOLDERS)
ON_HOSTS = "tests/system/mqctl/test_rack.py"
# Long stories on hosts, each of one thing that seldom changes.
STORY_NAMES = (
    "scale_rack", "scale_down_rack", "scale_down_several_rack", "scale_down_instance_rack", "drain_rack",
    "killed_rollout_rack", "upgrade_rack", "upgrade_stopped_rack", "restore_rack", "lost_host_rack", "operator_rack",
    "cut_off_rack", "rack_tls", "rack_firewall", "noop_rack",
)  # fmt: skip
STORIES = (
    *(f"tests/system/mqctl/test_{name}.py" for name in STORY_NAMES),
    "tests/system/preflight/test_multicast_rack.py",
)
CHAOS_OF_DAY = "tests/system/mqctl/test_chaos_rack.py"
WHOLE_CHAOS = "tests/system/mqctl/test_whole_chaos_rack.py"
NATIVE = "tests/system/broker/test_native.py"  # compiles for minutes, on one core
NOT_HOSTS = (
    "--ignore=tests/system/rack",
    *(f"--ignore={one}" for one in (ON_HOSTS, NATIVE, CHAOS_OF_DAY, WHOLE_CHAOS, *STORIES)),
)
BY_TEST = ("-n", "2", "--dist", "worksteal")
BY_FILE = ("-n", "2", "--dist", "loadfile")

FAST, CHANGED, LANDING = "not system and not slow", ("--of-changes",), ("--of-landing",)
LINT = (tool("ruff", "check", "-q", "."), tool("ruff", "format", "-q", "--check", "."))
# Others look for the same: ruff at the form of Python, ansible-lint at that of YAML, a test of contracts at the
# changelog, and what cannot be compiled cannot be imported. Alone, `.ci/sanity` runs these as well.
COVERED = ("changelog", "compile", "pep8", "yamllint")
SANITY: Command = (str(ROOT / ".ci" / "sanity"), *(word for name in COVERED for word in ("--skip-test", name)))

PARTS = (
    Part("lint", LINT, is_fast=True, lane=LOOKING),
    Part("types", tuple(tool("mypy", *group) for group in TYPED), is_fast=True, lane=LOOKING),
    Part("arrows", (tool("lint-imports", "--no-logo"),), is_fast=True, lane=LOOKING),
    Part("collection", (tool("ansible-lint", "--offline"),), lane=LOOKING),
    Part("sanity", (SANITY,), lane=LOOKING, day_of_three=2),
    Part("benchmark, counts only", ((PYTHON, "-m", "bench", "--short", "--of-day"),), lane=LOOKING),
    Part("crash points", (pytest("tests/crash"),), lane=LOOKING),
    Part("simulation", (pytest("tests/sim"),), lane=LOOKING),
    Part("fast tests", (pytest(*BY_TEST, *CHANGED, "-m", FAST, "tests", *NOT_SLOW),), is_fast=True, is_extra=True),
    Part("tests of changes", (pytest(*BY_TEST, *LANDING, "-m", "not system", "tests", *NOT_SLOW),), is_extra=True),
    # Fast, slow, and those that need root. In one process, as all in this lane: the other lanes have the other core,
    # what shares a core costs more, and finding the tests takes each process as long as a quarter of them.
    Part("tests in one process", (pytest("tests", *NOT_SLOW),)),
    # Tests of one file share brokers or hosts, so they stay together. Foreign clients are being built meanwhile.
    Part("native build", (pytest(NATIVE),), lane=PROCESSES, day_of_three=0),
    Part("brokers and mqctl", (pytest(*BY_FILE, "tests/system", *NOT_HOSTS),), lane=PROCESSES),
    Part("foreign clients", (pytest(*BY_FILE, "tests/foreign"),), lane=PROCESSES),
    Part("mqctl on hosts", (pytest(ON_HOSTS),), lane=HOSTS),
    Part("chaos of the day", (pytest(CHAOS_OF_DAY),), lane=HOSTS, silence_s_max=4500),
    Part("rack", (pytest("tests/system/rack"),), lane=RACKS, day_of_three=2),
    Part("molecule default", ((str(ROOT / "molecule" / "run"), "default"),), lane=RACKS, day_of_three=1),
    Part("molecule power", ((str(ROOT / "molecule" / "run"), "power"),), lane=RACKS, day_of_three=0),
    Part("molecule cluster3", ((str(ROOT / "molecule" / "run"), "cluster3"),), is_extra=True, lane=HOSTS),
    Part("molecule chain", ((str(ROOT / "molecule" / "run"), "chain"),), is_extra=True, lane=HOSTS),
    Part("molecule scale_down", ((str(ROOT / "molecule" / "run"), "scale_down"),), is_extra=True, lane=HOSTS),
    Part("stories on hosts", (pytest(*STORIES),), is_extra=True, lane=HOSTS, silence_s_max=3600),
    Part("whole chaos", (pytest(WHOLE_CHAOS),), is_extra=True, lane=HOSTS, silence_s_max=12 * 3600),
)
# Foreign clients that are no Python. Their tests wait for what is being built, and say why where it fails.
BUILDS = (PYTHON, "-m", "tests.foreign.builds")


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
    wish = Wish()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, wish.take)
    is_whole = arguments == ["test"]
    environ, started_s, busy_s = environment(os.environ, is_whole=is_whole), time.monotonic(), machine_busy_s()
    today = environ.get(DAY, "")  # none where parts were named
    parts = [part for part in parts if not today or part.day_of_three in (None, int(today) % SHARES)]
    with ExitStack() as meanwhile:
        if is_whole:
            meanwhile.enter_context(beside(BUILDS, environ))
        outcomes = together(in_lanes(parts) if is_whole or arguments == ["check"] else [parts], environ, wish)
    took_s = time.monotonic() - started_s
    print(table((outcomes[part.name] for part in parts), took_s, machine_busy_s() - busy_s, share(today)))
    return 1 if any(one.failed for one in outcomes.values()) else 0


def in_lanes(parts: Iterable[Part]) -> list[list[Part]]:
    """Parts that may run beside each other; none that is empty."""
    all_of = list(parts)
    lanes = [[part for part in all_of if part.lane == lane] for lane in LANES]
    return [lane for lane in lanes if lane]


@contextmanager
def beside(command: Command, environ: Mapping[str, str]) -> Iterator[None]:
    """Something that others will find done, or do themselves: what comes of it is nobody's outcome."""
    with (RESULTS / "beside.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        if process.poll() is None:
            end(process)


def together(lanes: Sequence[Sequence[Part]], environ: Mapping[str, str], wish: Wish) -> dict[str, Outcome]:
    """Run the parts of each lane in their order, and lanes beside each other; an outcome of each part, by its name."""
    all_of = [part for lane in lanes for part in lane]
    outcomes = {one.name: Outcome(one.name, failed=1, complaints=[f"{one.name}: not begun"]) for one in all_of}

    def work(lane: Sequence[Part]) -> None:
        for part in lane:
            if wish.is_there:
                return
            try:
                outcomes[part.name] = run(part, environ, wish) if len(lanes) == 1 else run_aside(part, environ, wish)
            except Exception as fault:  # of our own; what was not run never counts as done
                outcomes[part.name] = Outcome(part.name, failed=1, complaints=[f"{part.name}: {fault!r}"])

    threads = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.2)  # a signal that comes just before a wait without end would be heard behind it
    return outcomes


def run_aside(part: Part, environ: Mapping[str, str], wish: Wish) -> Outcome:
    """Run a part beside others: what it says is printed at its end."""
    log = RESULTS / f"{part.name.replace(' ', '-')}.log"
    with PRINTING:
        print(f"== {part.name}: begins, and says in {shown((str(log),))}", flush=True)
    with log.open("wb") as sink:
        outcome = run(part, environ, wish, sink, NICE[part.lane])
    with PRINTING, log.open("rb") as said:
        shutil.copyfileobj(said, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        took = f"{outcome.took_s:.0f} s, {outcome.computed_s:.0f} CPU seconds"
        print(f"== {part.name}: ended, {outcome.passed} passed, {outcome.failed} failed, {took}", flush=True)
    return outcome


def chosen(names: Sequence[str]) -> list[Part]:
    """Parts by name, by `check` or `test`."""
    known = {part.name: part for part in PARTS}
    if list(names) in (["check"], ["test"]):
        return [part for part in PARTS if (part.is_fast if names[0] == "check" else not part.is_extra)]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = unknown[0] if unknown else "nothing"
        raise ValueError(f"{wrong} is no part; there are: check, test, {', '.join(known)}")
    return [known[name] for name in names]


def environment(outside: Mapping[str, str], *, is_whole: bool) -> dict[str, str]:
    """The tools of the environment first, so that what they call finds the others. More examples of properties where
    time allows, and others each day, as the simulation has other seeds. A run of all says its day, by which it takes
    its share; all without history, and where somebody says none (`CHECKS_DAY= make test`); parts by name are whole.

    What is compiled is kept, because the checks start hundreds of processes, and kept outside the source tree, because
    what is packed there is packed as it is.
    """
    own = {
        "PATH": f"{ROOT / '.venv' / 'bin'}:{outside.get('PATH', os.defpath)}:/usr/sbin:/sbin",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"),
        "PYTHONPYCACHEPREFIX": str(RESULTS.parent / "bytecode"),
    }
    left = {"PYTHONDONTWRITEBYTECODE", *(() if is_whole else (DAY,))}
    kept = {name: value for name, value in outside.items() if name not in left}
    if not is_whole:
        return {**kept, **own}
    today = day_of_newest_commit(ROOT)
    of_today = {"EXAMPLES": "50", "PYTEST_ADDOPTS": f"--hypothesis-seed={today or 0}", DAY: str(today or "")}
    return {**of_today, **kept, **own}


def share(today: str) -> str:
    """What a run of that day takes of what is not taken each day, to be said at its end; nothing where it takes all."""
    return f"day {today}: a third of tables, stories and parts; all: {DAY}= make test" if today else ""


def run(
    part: Part, environ: Mapping[str, str], wish: Wish | None = None, sink: IO[bytes] | None = None, nice: int = 0
) -> Outcome:
    """Run every command of the part, which says what it says into `sink` or to our own output."""
    outcome, wish, to = Outcome(part.name), wish or Wish(), sink or sys.stdout.buffer
    started_s, busy_s = time.monotonic(), machine_busy_s()
    for number, command in enumerate(part.commands):
        report = RESULTS / f"{part.name.replace(' ', '-')}-{number}.xml"
        report.unlink(missing_ok=True)
        is_pytest = command[1:3] == ("-m", "pytest")
        colour = ("--color=yes",) if sys.stdout.isatty() else ()
        full = (*command, f"--junit-xml={report}", *colour) if is_pytest else command
        to.write(f"== {part.name}: {shown(command)}\n".encode())
        to.flush()
        try:
            slowly = ("nice", "-n", str(nice)) if nice else ()
            complaint, computed_s = execute((*slowly, *full), environ, part.silence_s_max, wish, to)
        except Interrupted:
            count(outcome, f"{part.name}: interrupted", report if is_pytest else None)
            break
        outcome.computed_s += computed_s
        count(outcome, complaint, report if is_pytest else None)
    outcome.took_s = time.monotonic() - started_s
    outcome.machine_s = machine_busy_s() - busy_s
    return outcome


def shown(command: Command) -> str:
    return " ".join(word.replace(f"{ROOT}/", "") for word in command)


class Relay(threading.Thread):
    """Passes on what a process says, and knows when that was last."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._source = source
        self._sink = sink
        self._passing = threading.Lock()  # held from the source to the sink
        self.heard_at_s = time.monotonic()
        self.start()

    def run(self) -> None:
        while select.select([self._source], [], []):
            with self._passing:
                said = os.read(self._source.fileno(), 65536)
                if not said:
                    return
                self.heard_at_s = time.monotonic()
                with suppress(ValueError):  # what was left behind says something when its part is over
                    self._sink.write(said)
                    self._sink.flush()

    def finish(self) -> None:
        """Until all is passed on that was said: what the process left behind may hold its output open for ever."""
        until_s = time.monotonic() + END_TIME_S
        while self.is_alive() and time.monotonic() < until_s:
            with self._passing:
                if not select.select([self._source], [], [], 0)[0]:
                    return
            self.join(0.01)


def execute(
    command: Command, environ: Mapping[str, str], silence_s_max: float, wish: Wish, sink: IO[bytes]
) -> tuple[str, float]:
    """Run one command in a group of processes of its own, so that nothing of it stays; why it failed, or nothing.

    And the processor time that it took.
    """
    if wish.is_there:
        raise Interrupted
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as fault:
        return f"{shown(command[:1])}: {fault.strerror}", 0
    assert process.stdout is not None
    relay = Relay(process.stdout, sink)
    try:
        complaint, computed_s = watch(process, relay, silence_s_max, wish)
    except Interrupted:
        end(process)
        raise
    finally:
        # What it left in its group would take time from the parts that follow, and hold ports that they want.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        relay.finish()
    return f"{shown(command)}: {complaint}" if complaint else "", computed_s


def watch(process: subprocess.Popen[bytes], relay: Relay, silence_s_max: float, wish: Wish) -> tuple[str, float]:
    """Wait for its end, or make one where it seems to hang; why it failed, or nothing, and its processor time.

    Raises Interrupted.
    """
    started_s, is_over = time.monotonic(), os.pidfd_open(process.pid)
    try:
        while not select.select([is_over], [], [], LOOK_S)[0]:
            if wish.is_there:
                raise Interrupted
            silent_s, talked_s = time.monotonic() - relay.heard_at_s, time.monotonic() - started_s
            if silent_s > silence_s_max:
                end(process)
                return f"ended, because nothing was heard of it for {silent_s:.0f} s", 0
            if talked_s > TALK_TIMES * silence_s_max:
                end(process)
                return f"ended, because it was not done after {talked_s:.0f} s", 0
    finally:
        os.close(is_over)
    computed_s = computed(process.pid)
    code = process.wait()
    return "" if code == 0 else f"exit code {code}", computed_s


def computed(number: int) -> float:
    """Processor seconds of a process that ended and was not waited for yet, and of all that it waited for itself.
    What hosts of a rack compute is not in it: they are nobody's children."""
    told = Path("/proc", str(number), "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime and cstime, of proc(5)


def machine_busy_s() -> float:
    """Processor seconds that were spent on this machine since its start, by whomever. Source: /proc/stat of proc(5)."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


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
    try:
        passed, failed = counted(report) if report else (0 if complaint else 1, 0)
    except ElementTree.ParseError as fault:  # it was killed while it wrote
        passed, failed, complaint = 0, 1, complaint or f"{report}: {fault}"
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


def table(
    outcomes: Iterable[Outcome], took_s: float | None = None, machine_s: float | None = None, taken: str = ""
) -> str:
    """One line per part, what was taken where that is not all, then the closing line.

    What all took is less than their sum where some ran beside others;
    under `machine` is what all processes computed meanwhile, on hosts too: in the last row, what everything cost."""
    rows = list(outcomes)
    width = max([len(one.name) for one in rows], default=0)
    lines = ["", f"{'part':{width}}  {'seconds':>8}  {'CPU':>8}  {'machine':>8}  {'passed':>6}  {'failed':>6}"]
    passed, failed = sum(one.passed for one in rows), sum(one.failed for one in rows)
    passing_s = sum(one.took_s for one in rows) if took_s is None else took_s
    all_s = sum(one.machine_s for one in rows) if machine_s is None else machine_s
    whole = Outcome("all", passed, failed, passing_s, sum(one.computed_s for one in rows), all_s)
    lines += [
        f"{one.name:{width}}  {one.took_s:8.1f}  {one.computed_s:8.1f}  {one.machine_s:8.1f}  "
        f"{one.passed:6}  {one.failed:6}"
        for one in (*rows, whole)
    ]
    lines += [f"failed: {complaint}" for one in rows for complaint in one.complaints]
    return "\n".join([*lines, *filter(None, [taken]), f"{passed} passed, {failed} failed"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
