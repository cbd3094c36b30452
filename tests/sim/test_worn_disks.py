"""Histories of disks that do not do what they say. A failing seed prints the command that replays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from mqbroker.io.disk.segment_stock import JournalSegmentStock
from mqbroker.journal.damage import DamageFacts, DamageRow, DamageVerdict, decide

from tests.sim.days import share_of_today
from tests.sim.search import shows
from tests.sim.worn_disks import LYING, MISDIRECTED, REUSED, WornDisks, worn_of

SEEDS = range(18)
BUG_SEEDS_MAX = 60


def _replay(seed: int) -> str:
    return f"replay with: python -m tests.sim --worn-disks {seed}"


def test_a_start_is_true_to_what_was_written_whatever_the_disk_did_with_it() -> None:
    starts: dict[str, Counter[str]] = {LYING: Counter(), MISDIRECTED: Counter(), REUSED: Counter()}
    used_again = 0
    for seed in SEEDS:
        simulation = WornDisks(seed)
        assert simulation.run().violations == [], _replay(seed)
        for disk in simulation.disks:
            starts[simulation.worn] += disk.starts
            used_again += disk.files.used_again
    assert used_again > 20
    assert set(starts[REUSED]) == {"whole"}, "such a disk loses nothing, and nothing is refused"
    assert starts[MISDIRECTED]["refused"] > 2
    assert starts[LYING]["refused"] > 0
    assert starts[LYING]["unseen"] > 0


def test_a_file_that_is_missed_since_a_write_went_elsewhere_is_nothing_that_a_start_gave_up() -> None:
    """A write that said that a file is not needed lies in another file, and nothing had been given up."""
    assert WornDisks(281100009).run().violations == []


@pytest.mark.parametrize("seed", [282800150, 282800336])
def test_a_note_of_what_is_given_up_may_lie_elsewhere_too(seed: int) -> None:
    """The start that wrote it lost its power, and the next one misses a file that it might have gone on without."""
    assert WornDisks(seed).run().violations == [], _replay(seed)


def test_what_a_disk_brings_back_of_what_was_given_up_lies_where_something_else_belongs() -> None:
    assert WornDisks(282800392).run().violations == [], _replay(282800392)


def test_same_seed_same_trace() -> None:
    assert WornDisks(1).run().trace == WornDisks(1).run().trace


def _unwiped(self: JournalSegmentStock) -> None:
    """A file is used again with what it held."""
    self._clean.append(self._unclean.popleft())


def _cut_always(facts: DamageFacts) -> DamageRow:
    """What is damaged is cut off without a word."""
    row = decide(facts)
    return row._replace(verdict=DamageVerdict.CUT) if row.verdict is DamageVerdict.FAULT else row


FOUND_BY = {"stale bytes": 6, "damage is cut off": 34}  # the search begins there
BUGS: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "stale bytes": (REUSED, partial(patch.object, JournalSegmentStock, "_wipe_piece", _unwiped)),
    "damage is cut off": (LYING, partial(patch, "mqbroker.journal.recover.decide", _cut_always)),
}


@pytest.mark.parametrize("bug", share_of_today(BUGS))
def test_seeded_bugs_are_found(bug: str) -> None:
    worn, planted = BUGS[bug]
    seeds = [seed for seed in (FOUND_BY[bug], *range(6 * BUG_SEEDS_MAX)) if worn_of(seed) == worn]
    with planted():
        for seed in seeds[:BUG_SEEDS_MAX]:
            if shows(WornDisks(seed)):  # also by a start that nobody can help
                return
    pytest.fail(f"{BUG_SEEDS_MAX} histories did not show it")
