"""The command: `make bench`, or `python -m bench --help`. Progress to stderr, the table to stdout, JSON to a file."""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import build, disk, floors, jms, load, peers, prerequisites, report, rounds, rows
from bench.faults import BenchFault

HERE = Path(__file__).parent
ROUNDS_MAX = 100
DAY = "CHECKS_DAY"  # where a run of all checks says its day
BUSY_SHARE = 0.25
OPEN_FILES = 16_384
DONE, FAILED, USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        plan = _plan(options)
    except ValueError as fault:
        _say(f"bench: {fault}")
        return USAGE
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that brokers are stopped then too
    try:
        return _run(plan, options)
    except BenchFault as fault:
        _say(f"bench: {fault}")
        return FAILED
    except KeyboardInterrupt:
        _say("bench: interrupted; brokers are stopped, there are no figures")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few messages, our broker only: checks counts, not speed")
    parser.add_argument(
        "--of-day", action="store_true", help=f"a third of the rows, the next one on each day that {DAY} says; else all"
    )
    parser.add_argument("--rows", default="", help="names of rows, with commas; all of them by default")
    parser.add_argument("--rounds", type=int, default=0, help="rounds (3; 1 with --short; 5 with --check)")
    parser.add_argument("--peer", action="append", help=f"may be repeated ({', '.join(peers.DEFAULT_PEERS)})")
    parser.add_argument("--no-ours", action="store_true", help="leave our own broker out, to try peers alone")
    parser.add_argument("--native", action="store_true", help="our broker as a native build, which is made first")
    parser.add_argument(
        "--python", type=Path, help="what runs our broker, as /usr/bin/python3 does on a host (this one)"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a floor is missed; peers: Artemis alone")
    parser.add_argument("--json", type=Path, help="file for the figures (bench/results/<time>.json)")
    parser.add_argument("--work-directory", type=Path, default=HERE / ".run", help="where journals go; must be a disk")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    return parser


def _plan(options: argparse.Namespace) -> rounds.Plan:
    choice = rows.chosen([name for name in options.rows.split(",") if name])
    if options.of_day and os.environ.get(DAY):
        choice = choice.of_day(int(os.environ[DAY]))
    ours = () if options.no_ours else (peers.OURS,)
    usual = () if options.short else peers.ARTEMIS_PEERS if options.check else peers.DEFAULT_PEERS
    named = tuple(options.peer) if options.peer is not None else usual
    if (options.native or options.python) and not ours:
        raise ValueError("--native and --python say how our own broker is run, and --no-ours leaves it out")
    if peers.OURS in named and ours:
        raise ValueError(f"--peer names brokers beside ours: leave {peers.OURS} out, it runs unless --no-ours is said")
    count = options.rounds or (1 if options.short else 5 if options.check else 3)
    if not 1 <= count <= ROUNDS_MAX:
        raise ValueError(f"--rounds must be 1 to {ROUNDS_MAX}")
    if not ours + named:
        raise ValueError("--no-ours leaves no broker to run: name one with --peer")
    for name in named:
        peers.require_known(name)
    return rounds.Plan(ours + named, choice.short() if options.short else choice, count, warm=not options.short)


def _run(plan: rounds.Plan, options: argparse.Namespace) -> int:
    if options.list:
        print("\n".join(f"{name:26}{title}" for name, title in rows.EVERYTHING.titles().items()))
        return DONE
    prerequisites.ensure((*prerequisites.LOAD, *(prerequisites.JMS if plan.choice.applications else ())), _say)
    plan = dataclasses.replace(plan, absent=_absent(plan.names))
    load.build()
    if plan.choice.applications:
        jms.build()
    _raise_open_files()
    directory = options.work_directory.resolve() / str(os.getpid())
    directory.mkdir(parents=True)
    try:
        if options.native:
            _say("bench: building the native wheel")
            build.use(build.build(directory))
        if options.python:
            build.use_python(options.python, directory)
        if peers.OURS in plan.names:
            build.keep_bytecode(directory)
        facts = _facts(plan, directory)
        record = rounds.run(plan, directory, _say)
    except BaseException:
        _say(f"bench: logs and configuration are kept in {directory}")
        raise
    shutil.rmtree(directory)
    facts["omitted"] = [{"row": row, "broker": name, "why": why} for (row, name), why in record.omitted.items()]
    return _publish(record, plan, facts, options)


def build_line(is_native: bool, python: str) -> str:
    """What the table does not say: which build of our broker it speaks of."""
    return f"{peers.OURS} was {'a native build' if is_native else 'Python, not a native build'}, run by Python {python}"


def _raise_open_files() -> None:
    """A thousand connections need more open files than the usual soft limit; brokers inherit ours."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def _checked(plan: rounds.Plan) -> tuple[floors.Floor, ...]:
    """The floors of the rows that were asked for."""
    return tuple(floor for floor in floors.FLOORS if floor.row in plan.choice.lines())


def _absent(names: Sequence[str]) -> dict[str, str]:
    """Peers whose needs this system does not have and cannot be given: name → reason."""
    found = {}
    for name in names:
        try:
            prerequisites.ensure(prerequisites.PEERS.get(peers.kind(name), ()), _say)
        except BenchFault as fault:
            _say(f"bench: {name} is left out: {fault}")
            found[name] = " ".join(line.strip() for line in str(fault).splitlines())
    return found


def _publish(record: rounds.Record, plan: rounds.Plan, facts: dict[str, Any], options: argparse.Namespace) -> int:
    results = record.results(plan)
    if not results:
        raise BenchFault("nothing could be measured; the reasons are above")
    print(report.table(results, peers.OURS))
    if facts["native"] is not None:
        print(build_line(facts["native"], facts["python"]))
    print(report.omissions(record.omitted, plan.choice.titles()), end="")
    if options.short:
        print("few messages on a cold broker: the counts are right, the figures mean nothing")
    target = options.json or HERE / "results" / f"{facts['when'].replace(':', '')}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(report.as_json(results, peers.OURS, facts))
    _say(f"figures are in {target}")
    missed = floors.missed(results, peers.OURS, peers.ARTEMIS, _checked(plan)) if options.check else []
    for sentence in missed:
        _say(f"bench: floor missed: {sentence}")
    return FAILED if missed else DONE


def _facts(plan: rounds.Plan, directory: Path) -> dict[str, Any]:
    kind = disk.require_disk(directory)
    cores, load_before = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    if plan.warm and load_before > cores * BUSY_SHARE:
        _say(f"bench: other work is running (load {load_before:.1f} on {cores} cores): do not publish these figures")
    median_us, p99_us = disk.sync_us(directory)
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "brokers": list(plan.names),
        "native": build.said() if peers.OURS in plan.names else None,
        "rounds": plan.rounds,
        "warm": plan.warm,
        "rows": {
            row.name: {"count": row.count, "slow_count": row.slow_count, "sizes": row.sizes, "in_flight": row.in_flight}
            for row in plan.choice.rows
        },
        "applications": {row.name: {"count": row.count, "size": row.size} for row in plan.choice.applications},
        "beside": {
            row.name: {"count": row.load.count, "turns": row.turns, "bad_per_s": row.bad_per_s}
            for row in plan.choice.fresh
            if isinstance(row, rows.Beside)
        },
        "many": {
            row.name: {"connections": row.connections, "links": row.links}
            for row in plan.choice.fresh
            if isinstance(row, rows.Many)
        },
        "consumer_credit": rows.CREDIT,
        "cores": cores,
        "processor": _processor(),
        "kernel": platform.release(),
        "python": build.python() if peers.OURS in plan.names else None,
        "load_before": load_before,
        "file_system": kind,
        "fdatasync_us": {"p50": round(median_us, 1), "p99": round(p99_us, 1)},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}" if not text.startswith("bench:") else text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
