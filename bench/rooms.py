"""Where the processor time of a message goes, room by room: `python -m bench.rooms --rows durable-16`.

`perf` samples the stacks of a native build's threads. A sample belongs to the room of the innermost function of ours on
its stack, whose name in the library says the module: what Python, C and the kernel do is counted to who asked for it.
Modules that are not compiled have no such frames; the few that a message passes count to their callers.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import build, load, measure, peers, prerequisites, rows
from bench.faults import BenchFault
from bench.peers.cluster import Cluster
from bench.run import DONE, FAILED

COMMAND = ("perf", "record", "--quiet", "--freq", "1999", "--call-graph", "dwarf,8192", "--event", "cpu-clock")
SETTLED_S = 1.0  # until perf has found all threads
WARM_UPS = 3
END_S_MAX = 60
PROJECT = build.ROOT / "broker" / "pyproject.toml"
USUAL = "durable-16,latency,durable-1000-consumer,plain-1KiB-acknowledged,plain-100B-acknowledged"
TURNS = "event loop (uvloop, asyncio)"
OTHERS = "files made ready"
_OURS = re.compile(r"\bCPyDef_([a-z_]+?)___")


@dataclass(frozen=True, slots=True)
class Share:
    """Of all samples: those of one room, and of these those in the kernel."""

    room: str
    all: float
    kernel: float


def modules(project: str) -> dict[str, str]:
    """Name in the library → room, of pyproject.toml's text; `io` module by module, as sockets and disk are both there.
    Raises ValueError where two modules have one name. Pure.
    """
    hook = tomllib.loads(project)["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    found: dict[str, str] = {}
    for path in hook["modules"]:
        room, name = path.partition("/")[0], path.rpartition("/")[2]
        room = path if room == "io" else room
        if found.setdefault(name, room) != room:
            raise ValueError(f"{path}: another compiled module is called {name}, and frames say no more than that")
    return found


def shares(script: Iterable[str], main_thread: int, rooms: dict[str, str]) -> list[Share]:
    """Of what `perf script` prints, the largest first. Pure."""
    counts: Counter[tuple[str, bool]] = Counter()
    for thread, frames in _samples(script):
        ours = (rooms.get(match[1]) for frame in frames if (match := _OURS.search(frame)))
        room = next((room for room in ours if room), TURNS if thread == main_thread else OTHERS)
        counts[room, "[kernel" in frames[0]] += 1
    total = sum(counts.values())
    names = {room for room, _ in counts}
    found = [
        Share(room, (counts[room, True] + counts[room, False]) / total, counts[room, True] / total) for room in names
    ]
    return sorted(found, key=lambda share: (-share.all, share.room))


def _samples(script: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Thread and frames, innermost first: a line with the thread alone, a line for each frame, an empty one."""
    thread, frames = 0, list[str]()
    for line in [*script, ""]:
        if not line.strip():
            if frames:
                yield thread, frames
            frames = []
        elif line.strip().isdecimal():
            thread = int(line)
        else:
            frames.append(line)


@dataclass(frozen=True, slots=True)
class Profile:
    """Of one load: what a message takes of the processor's time, measured without perf, and whose that is."""

    name: str
    cpu_us: float
    shares: list[Share]


def table(profiles: Sequence[Profile]) -> str:
    """Markdown: a line for each room, a column for each load; µs of a message, and of these the kernel's. Pure."""
    names = dict.fromkeys(share.room for one in profiles for share in one.shares)
    columns = [{share.room: _cell(share, one.cpu_us) for share in one.shares} for one in profiles]
    heads = ["room", *(one.name for one in profiles)]
    lines = [heads, ["---"] * len(heads)]
    lines += [[name, *(column.get(name, "") for column in columns)] for name in sorted(names)]
    lines.append(["all", *(_number(one.cpu_us, one.cpu_us) for one in profiles)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(share: Share, cpu_us: float) -> str:
    return f"{_number(share.all * cpu_us, cpu_us)} ({_number(share.kernel * cpu_us, cpu_us)})"


def _number(value_us: float, whole_us: float) -> str:
    """To a hundredth of the whole at least, and no closer than that makes sense."""
    return f"{value_us:.{max(0, 2 - math.floor(math.log10(whole_us)))}f}"


def _profile(row: rows.Row, directory: Path) -> Profile:
    peer = peers.make(peers.OURS, directory)
    assert not isinstance(peer, Cluster)
    samples = directory / "perf.data"
    try:
        peer.prepare()
        measure.start(peer)
        for number in range(WARM_UPS):
            cpu_us = measure.sample(peer, row, f"bench.rooms.{number}").figures["cpu_us"]
        perf = subprocess.Popen([*COMMAND, "--output", str(samples), "--pid", str(peer.pid)])
        try:
            time.sleep(SETTLED_S)
            measure.sample(peer, row, "bench.rooms.sampled")
        finally:
            perf.send_signal(signal.SIGINT)
            perf.wait(END_S_MAX)
        fields = ["-F", "tid,ip,sym,dso", "--no-inline"]
        done = subprocess.run(["perf", "script", "-i", samples, *fields], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchFault(
                f"perf could not sample: {done.stderr.strip()}; it needs root or a lower perf_event_paranoid"
            )
        found = shares(done.stdout.splitlines(), peer.pid, modules(PROJECT.read_text()))
        return Profile(row.name, cpu_us, found)
    finally:
        peer.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """A table to standard output; the exit code, as of the benchmark."""
    parser = argparse.ArgumentParser(prog="bench.rooms", description=__doc__)
    parser.add_argument("--rows", default=USUAL, help="names of rows on one node, with commas")
    parser.add_argument("--python", type=Path, help="what runs our broker (this one)")
    parser.add_argument("--work-directory", type=Path, default=Path(__file__).parent / ".run", help="must be a disk")
    options = parser.parse_args(arguments)
    try:
        chosen = rows.chosen(options.rows.split(","))
    except ValueError as fault:
        parser.error(str(fault))
    others = [row.name for row in chosen.all() if not isinstance(row, rows.Row) or row.nodes > 1]
    if others or chosen.starts:
        parser.error(f"only loads on one node have rooms to share out, not {', '.join(others) or rows.START}")
    try:
        prerequisites.ensure((*prerequisites.LOAD, prerequisites.PERF), _say)
        load.build()
        directory = options.work_directory.resolve() / str(os.getpid())
        directory.mkdir(parents=True)
        _say("bench: building the native wheel")
        build.use(build.build(directory))
        if options.python:
            build.use_python(options.python, directory)
        print(table([_profile(row, directory / row.name) for row in chosen.rows]))
    except BenchFault as fault:
        _say(f"bench: {fault}")
        return FAILED
    shutil.rmtree(directory)
    return DONE


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
