"""Breaks the code in small ways and looks whether tests notice: python -m tests.mutants --seconds 600 --seed 1.

A module of MODULES (modules.py) and a line of it are drawn, and one of the breaks that are possible there
(operators.py, by cosmic-ray); its tests run against a copy of the sources that has it until one fails. A break that
no test notices survives: it is shown, and fails the run unless equivalent.toml has it with the reason why it changes
nothing. At the end, also of a run that is cut off, stands how many of each module were tried, noticed and not. The
working tree is not touched. Needs cosmic-ray (requirements/soak.lock).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.mutants.modules import KNOWN, MODULES, ROOT, SOURCES, Tests, tests_of
from tests.mutants.operators import Mutant, mutant_of, places_in
from tests.mutants.tally import Tally
from tests.support.rotation import DAY

TEST_S_MAX: Final = 600  # a break may make a loop endless: that is noticed, too


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of the breaks that are drawn (default: %(default)s)")
    parser.add_argument("--module", choices=sorted(MODULES), action="append", help="this one, or these, alone")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit("it was cut off"))
    modules = options.module or sorted(MODULES)
    sources = {module: (SOURCES / f"{module}.py").read_text(encoding="utf-8") for module in modules}
    places = {module: sorted(places_in(source).items()) for module, source in sources.items()}
    tally = Tally({module: len(found) for module, found in places.items()})
    overlay = Overlay(ROOT / ".build" / "mutants" / str(os.getpid()), time.monotonic() + options.seconds)
    try:
        run(overlay, tally, mutants(sources, places, random.Random(options.seed)))
    except TimeIsOver:
        pass
    finally:
        overlay.remove()
        print(f"{tally} from seed {options.seed}", flush=True)
    return 1 if tally.survived.total() else 0


def mutants(sources: dict[str, str], places: dict[str, list[Any]], draw: random.Random) -> Iterator[Mutant]:
    """One break of each line, in any order, but for those that are known to change nothing."""
    known = {(one["module"], one["before"], one["after"]) for one in tomllib.loads(KNOWN.read_text())["equivalent"]}
    lines = [(module, [(line, *one) for one in here]) for module, found in places.items() for line, here in found]
    draw.shuffle(lines)
    for module, here in lines:
        mutant = mutant_of(module, sources[module], draw.choice(here))
        if mutant is not None and (mutant.module, mutant.before, mutant.after) not in known:
            yield mutant


def run(overlay: Overlay, tally: Tally, drawn: Iterator[Mutant]) -> None:
    """Try them until the time is over."""
    sound = set[Tests]()
    overlay.check_is_seen()
    for mutant in drawn:
        tests = overlay.noticed_by(mutant)
        if tests is None:
            tally.survived[mutant.module] += 1
            print(f"SURVIVED {mutant}", flush=True)
            continue
        if tests not in sound:
            overlay.check(tests)
            sound.add(tests)
        tally.noticed[mutant.module] += 1


class TimeIsOver(Exception):
    """What was under way is not counted."""


class Overlay:
    """A copy of the sources that goes before the installed ones."""

    def __init__(self, folder: Path, deadline_s: float) -> None:
        self.folder = folder
        self._deadline_s = deadline_s
        self._count = 0
        shutil.copytree(SOURCES, folder / "mqbroker", ignore=shutil.ignore_patterns("__pycache__"))

    def remove(self) -> None:
        """Leave nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def check_is_seen(self) -> None:
        """The copy is what tests see."""
        found = self._run((sys.executable, "-c", "import mqbroker; print(mqbroker.__file__)"), 60).stdout
        if not found.startswith(str(self.folder)):
            raise SystemExit(f"tests would see {found.strip()}, not {self.folder}")

    def check(self, tests: Tests) -> None:
        """Without a break they pass: else every break would be noticed."""
        if said := self._failure(tests):
            raise SystemExit(f"{' '.join(tests)} fail without any break:\n{said}")

    def noticed_by(self, mutant: Mutant) -> Tests | None:
        """The first tests that fail with it."""
        place = self.folder / "mqbroker" / f"{mutant.module}.py"
        whole = place.read_text(encoding="utf-8")
        self._write(place, mutant.code)
        try:
            return next((tests for tests in tests_of(mutant.module) if self._failure(tests)), None)
        finally:
            self._write(place, whole)

    def _write(self, place: Path, code: str) -> None:
        """With a time that no other one has, as that is what tells whether it was compiled."""
        self._count += 1
        place.write_text(code, encoding="utf-8")
        os.utime(place, (self._count, self._count))

    def _failure(self, tests: Tests) -> str:
        """What they say where they fail."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeIsOver
        pytest = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=120")
        try:
            done = self._run((*pytest, *tests), min(TEST_S_MAX, left_s))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= self._deadline_s:
                raise TimeIsOver from None
            return "they do not end"
        return (done.stdout[-3000:] or "they say nothing") if done.returncode else ""

    def _run(self, command: tuple[str, ...], timeout_s: float) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        # Whole tables judge, also in a run that takes a share of them.
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path, DAY: ""}, capture_output=True, text=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
