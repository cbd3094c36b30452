"""The process that is killed: works on a journal, and notes on another disk what it expects and what was acknowledged.

python -m tests.crash.writer DIRECTORY NOTES SEED STEPS
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

from mqbroker.io.disk.files import Files

from tests.support.journal_model import Model, State

from .lives import Life, Oracle


class NotingOracle(Oracle):
    """Notes are written before the next thing happens, so they outlive a kill of the process."""

    def __init__(self, notes: Path) -> None:
        super().__init__()
        self._notes = notes.open("ab", buffering=0)

    def expect(self, position: int, state: State) -> None:
        super().expect(position, state)
        self._notes.write(pickle.dumps((position, state)))

    def acknowledge(self, position: int) -> None:
        super().acknowledge(position)
        self._notes.write(pickle.dumps((position, None)))


def read_notes(notes: Path) -> Oracle:
    """The oracle of a process that is gone."""
    oracle = Oracle()
    for position, state in _records(notes):
        if state is None:
            oracle.synced = position
        else:
            oracle.after[position] = state
    return oracle


def _records(notes: Path) -> Iterator[tuple[int, State | None]]:
    with notes.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return
            except pickle.UnpicklingError:
                return  # killed inside a note: what it was about had not happened yet


def main(directory: str, notes: str, seed: str, steps: str) -> int:
    model = Model(int(seed), body_bytes=200)
    life = Life(Path(directory), model, NotingOracle(Path(notes)), Files())
    return 0 if life.run(int(steps)) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
