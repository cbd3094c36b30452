"""Breaks the code in small ways and looks whether tests notice: python -m tests.mutants --seconds 600 --seed 1.

A module of MODULES and a line of it are drawn, and one of the breaks that are possible there (operators.py, by
cosmic-ray); its tests run against a copy of the sources that has it until one fails. A break that no test notices
survives: it is shown, and fails the run unless equivalent.toml has it with the reason why it changes nothing. The
working tree is not touched. Needs cosmic-ray (requirements/soak.lock).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Final

from tests.mutants.operators import Mutant, mutant_of, places_in

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "broker" / "src" / "mqbroker"
KNOWN: Final = Path(__file__).with_name("equivalent.toml")
TEST_S_MAX: Final = 600  # a break may make a loop endless: that is noticed, too
# Quick tests, and slow ones for what those let pass.
JOURNAL: Final = (
    ("tests/unit/journal", "tests/unit/core/test_store.py", "tests/unit/core/test_duplicates.py"),
    ("tests/crash/test_settling.py", "tests/crash/test_crash_points.py"),
)
CLUSTER: Final = (
    (
        "tests/unit/core/test_arrivals.py", "tests/unit/core/test_forwarding.py", "tests/unit/core/test_handed_over.py",
        "tests/unit/core/test_id_ranges.py", "tests/unit/core/test_marks.py", "tests/unit/node/test_forwards.py",
        "tests/unit/node/test_forwards_beyond.py", "tests/unit/node/test_unanswered.py",
        "tests/unit/node/test_old_journals.py", "tests/unit/node/test_marks_on_links.py",
    ),
    ("tests/golden", "tests/sim/test_clusters.py", "tests/sim/test_old_copies.py"),
)  # fmt: skip
DISK: Final = (
    ("tests/unit/io/test_disk.py",),
    ("tests/crash/test_settling.py", "tests/crash/test_large_points.py", "tests/crash/test_crash_points.py"),
)
# By module: the tests that are to notice.
MODULES: Final = {
    **{f"journal/{name}": JOURNAL for name in (
        "damage", "duplicates", "entry", "format", "ledger", "message_records", "places", "plan", "ranges", "rebuild",
        "records", "recover", "recovered",
    )},
    **{f"core/{name}": CLUSTER for name in ("arrivals", "forwarding", "handed_over", "id_ranges", "marks")},
    "node/forwards": CLUSTER,
    "io/disk": DISK,
}  # fmt: skip


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of the breaks that are drawn (default: %(default)s)")
    parser.add_argument("--module", choices=sorted(MODULES), help="one module alone")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    modules = [options.module] if options.module else sorted(MODULES)
    sources = {module: (SOURCES / f"{module}.py").read_text(encoding="utf-8") for module in modules}
    places = [
        (module, [(line, *one) for one in found])
        for module in modules
        for line, found in sorted(places_in(sources[module]).items())
    ]
    draw.shuffle(places)
    known = {(one["module"], one["before"], one["after"]) for one in tomllib.loads(KNOWN.read_text())["equivalent"]}
    deadline_s = time.monotonic() + options.seconds
    overlay = Overlay(ROOT / ".build" / "mutants" / str(os.getpid()))
    noticed, survivors, sound = 0, list[Mutant](), set[str]()
    try:
        for module, here in places:
            if time.monotonic() > deadline_s:
                break
            if module not in sound:
                overlay.check(module)
                sound.add(module)
            mutant = mutant_of(module, sources[module], draw.choice(here))
            if mutant is None or (mutant.module, mutant.before, mutant.after) in known:
                continue
            if overlay.notices(mutant):
                noticed += 1
            else:
                survivors.append(mutant)
                print(f"SURVIVED {mutant}", flush=True)
    finally:
        overlay.remove()
    print(f"{noticed} breaks were noticed, {len(survivors)} were not, of {len(places)} lines from seed {options.seed}")
    return 1 if survivors else 0


class Overlay:
    """A copy of the sources that goes before the installed ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(SOURCES, folder / "mqbroker", ignore=shutil.ignore_patterns("__pycache__"))

    def remove(self) -> None:
        """Leave nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def check(self, module: str) -> None:
        """The copy is what tests see, and without a break they pass: else every break would be noticed."""
        found = self._run((sys.executable, "-c", "import mqbroker; print(mqbroker.__file__)")).stdout
        if not found.startswith(str(self.folder)):
            raise SystemExit(f"tests would see {found.strip()}, not {self.folder}")
        done = self._tests(MODULES[module][0])
        if done.returncode:
            raise SystemExit(f"tests of {module} fail without any break:\n{done.stdout[-3000:]}")

    def notices(self, mutant: Mutant) -> bool:
        """Whether any test fails with it."""
        place = self.folder / "mqbroker" / f"{mutant.module}.py"
        whole = place.read_text(encoding="utf-8")
        place.write_text(mutant.code, encoding="utf-8")
        try:
            return any(self._tests(tests).returncode != 0 for tests in MODULES[mutant.module])
        except subprocess.TimeoutExpired:
            return True
        finally:
            place.write_text(whole, encoding="utf-8")

    def _tests(self, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        pytest = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=120")
        return self._run((*pytest, *tests), TEST_S_MAX)

    def _run(self, command: tuple[str, ...], timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
