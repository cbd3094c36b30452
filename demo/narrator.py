"""Tells the story: numbered steps, plain sentences, the commands as a person would type them, and what they printed.

Invariant: nothing that is printed comes from a file of secrets; passwords go to programs through their standard input.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

INDENT = "    "
LINES_MAX = 40
GRACE_S = 10.0


class DoesNotHold(Exception):
    """A step did not come out as told; the text is one plain sentence."""


@dataclass(frozen=True, slots=True)
class Call:
    """One program to run. `shown` is how a person would type it; without it nothing is printed."""

    words: Sequence[str]
    shown: str = ""
    codes: tuple[int, ...] = (0,)
    stdin: str = ""
    time_s_max: float = 120.0
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What a program printed, and its exit code."""

    out: str
    err: str
    code: int


@dataclass(slots=True)
class Narrator:
    """Knows the number of the step and where commands run."""

    place: Path
    started_s: float = field(default_factory=time.monotonic)
    number: int = 0

    def step(self, title: str) -> None:
        """Begin a step."""
        self.number += 1
        print(f"\n[{time.monotonic() - self.started_s:5.1f} s] {self.number}. {title}", flush=True)

    def say(self, text: str) -> None:
        """A sentence."""
        print(f"{INDENT}{text}", flush=True)

    def run(self, call: Call) -> Said:
        """Run a program and show what it prints. Raises DoesNotHold on an exit code that the story does not expect."""
        if call.shown:
            print(f"{INDENT}$ {call.shown}", flush=True)
        said = self._execute(call)
        if not call.quiet:
            self._show(said.out)
        if said.code not in call.codes:
            if call.quiet:
                self._show(said.err + said.out)
            name = call.shown or " ".join(call.words[:4])
            raise DoesNotHold(f"`{name}` ended with exit code {said.code}.")
        return said

    def _execute(self, call: Call) -> Said:
        name = call.shown or call.words[0]
        with tempfile.TemporaryFile("w+") as out:
            try:
                process = subprocess.Popen(
                    call.words, cwd=self.place, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.PIPE, text=True,
                    env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                )  # fmt: skip
            except OSError as fault:
                raise DoesNotHold(f"{name} cannot be run: {fault.strerror}.") from None
            with process, _deadline(process, call.time_s_max) as is_over:
                assert process.stdin is not None
                assert process.stderr is not None
                # A program that ends without reading what it is given says why by itself.
                with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                    stdin.write(call.stdin)
                err = [self._heard(line, call) for line in process.stderr]
            out.seek(0)
            if is_over.is_set():
                raise DoesNotHold(f"`{name}` was not done after {call.time_s_max:g} s.")
            return Said(out.read(), "".join(err), process.returncode)

    def _heard(self, line: str, call: Call) -> str:
        """Progress and remarks, shown while they come."""
        if not call.quiet:
            print(f"{INDENT}{line}", end="", flush=True)
        return line

    def _show(self, text: str) -> None:
        lines = text.rstrip().splitlines()
        for line in lines[:LINES_MAX]:
            print(f"{INDENT}{line}")
        if len(lines) > LINES_MAX:
            print(f"{INDENT}… {len(lines) - LINES_MAX} more lines")
        sys.stdout.flush()


@contextlib.contextmanager
def _deadline(process: subprocess.Popen[str], time_s_max: float) -> Iterator[threading.Event]:
    """Ends the process when its time is over, gently first: what it started ends with it. The event says so."""
    is_over = threading.Event()

    def terminate() -> None:
        is_over.set()
        process.terminate()

    timers = [threading.Timer(time_s_max, terminate), threading.Timer(time_s_max + GRACE_S, process.kill)]
    for timer in timers:
        timer.start()
    try:
        yield is_over
        process.wait()
    finally:
        for timer in timers:
            timer.cancel()
