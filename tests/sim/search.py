"""Search for planted bugs in ordinary histories: `python -m tests.sim.search --seconds N --from SEED`.

The checker has to find each in ordinary histories of the bug's kind. That takes a long time where few come past the
place, so it is a turn of the soak; the tests take histories that go there (directed.py, directed_clusters.py).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tests.sim.bugs import BUGS, FEATURE_BUGS, LARGE_BUGS, PAGING_BUGS, ROOM_BUGS, TRANSACTION_BUGS
from tests.sim.cluster_bugs import CLUSTER_BUGS, GROUP_BUGS
from tests.sim.clusters import ClusterSimulation
from tests.sim.histories import FEATURES, FULL_FROM, TRANSACTIONS, Simulation, has_full_disks, kind_of

HISTORIES_MAX: Final = 1000
LIMIT_SEED: Final = 1 << 30


class HasViolations(Protocol):
    """The verdict over a history."""

    violations: list[str]


class Runs(Protocol):
    """A history that can be run."""

    def run(self) -> HasViolations: ...


def shows(history: Runs) -> bool:
    """Whether a history shows the bug that is planted: to the checker, or to the broker itself."""
    try:
        return bool(history.run().violations)
    except (AttributeError, NameError, TypeError):
        raise  # the bug is planted where nothing is any more, or something that is called otherwise
    except Exception:  # an invariant of the broker or of its disk noticed first
        return True


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, and which histories may show it."""

    name: str
    plant: Callable[[], AbstractContextManager[Any]]
    history: Callable[[int], Simulation | ClusterSimulation]
    fits: Callable[[int], bool]

    def seeds(self, first: int) -> Iterator[int]:
        return filter(self.fits, range(first, LIMIT_SEED))


def _has_groups(seed: int) -> bool:
    return ClusterSimulation(seed).book is not None


def planted() -> list[PlantedBug]:
    """All of them. From FULL_FROM on the seed of a history of one node says all that it has."""
    kinds: list[tuple[dict[str, Callable[[], AbstractContextManager[Any]]], Callable[[int], bool]]] = [
        (BUGS, lambda seed: True),
        (LARGE_BUGS, lambda seed: seed % 3 == 0 and kind_of(seed) != FEATURES),
        (PAGING_BUGS, lambda seed: seed % 3 == 0 and kind_of(seed) != FEATURES),
        (TRANSACTION_BUGS, lambda seed: kind_of(seed) == TRANSACTIONS),
        (ROOM_BUGS, has_full_disks),
        (FEATURE_BUGS, lambda seed: kind_of(seed) == FEATURES),
    ]
    found = [PlantedBug(name, bug, Simulation, fits) for bugs, fits in kinds for name, bug in bugs.items()]
    for name, bug in CLUSTER_BUGS.items():
        fits = _has_groups if name in GROUP_BUGS else lambda seed: True
        found.append(PlantedBug(name, bug, ClusterSimulation, fits))
    return found


def search(bug: PlantedBug, first: int, deadline_s: float) -> int | None:
    """How many histories it took; None where there was no time for more. Raises AssertionError where none shows it."""
    with bug.plant():
        for count, seed in enumerate(bug.seeds(first), start=1):
            if time.monotonic() > deadline_s:
                return None
            if shows(bug.history(seed)):
                return count
            assert count < HISTORIES_MAX, f"{count} histories from seed {first} did not show the bug: {bug.name}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.search", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, required=True, help="stop after so long")
    parser.add_argument("--from", type=int, dest="first", required=True, help="first seed; says the order as well")
    arguments = parser.parse_args()
    deadline_s = time.monotonic() + arguments.seconds
    bugs, searched, missed = planted(), 0, 0
    random.Random(arguments.first).shuffle(bugs)
    for bug in bugs:
        try:
            count = search(bug, FULL_FROM + arguments.first, deadline_s)
        except AssertionError as error:
            print(error, flush=True)
            missed += 1
            continue
        if count is None:
            break
        searched += 1
        print(f"{count} histories: {bug.name}", flush=True)
    print(f"{searched} of {len(bugs)} planted bugs were found in ordinary histories, {missed} were not")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
