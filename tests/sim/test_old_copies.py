"""Histories in which a node begins with an old journal. A failing seed prints the command that replays it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest
from mqbroker.cluster.notices import Member
from mqbroker.cluster.topology import Topology, TopologyChange, TopologyChangeKind
from mqbroker.core.cluster.marks import Marks
from mqbroker.core.store.store import Store
from mqbroker.journal.recovered import Recovered

from tests.sim.days import share_of_today
from tests.sim.old_copies import OldCopies

TOLD_TOO_EARLY = 282800145  # that it has left, before it listened
DIALS_LONG = 282800222  # where nobody answers, until after all is drained
SEEDS = (*range(16), TOLD_TOO_EARLY, DIALS_LONG)
BUG_SEEDS_MAX = 60
_TOLD = Topology._told


def _no_mark(self: Marks, store: Store, recovered: Recovered, mark: str) -> None:
    """Numbers hold under no mark."""


def _never_past(self: Topology, boot_id: str) -> bool:
    """What another process said of us is never past."""
    return False


def _silent(self: Topology, notice: Member) -> TopologyChange | None:
    """Who does not know that a node has left is not told."""
    change = _TOLD(self, notice)
    self._disputed.clear()
    return None if change is not None and change.kind is TopologyChangeKind.PAST else change


# With a history that found it: the search begins there.
BUGS: dict[str, tuple[int, Callable[[], AbstractContextManager[Any]]]] = {
    "numbers have no marks": (0, lambda: patch.object(Marks, "begin", _no_mark)),
    "versions do not jump": (0, lambda: patch.object(Topology, "_count_jump", _never_past)),
    "an end is not told": (13, lambda: patch.object(Topology, "_told", _silent)),
}


def test_what_is_accepted_afterwards_comes_once_and_nobody_is_taken_for_two() -> None:
    forwarded = 0
    for seed in SEEDS:
        verdict = OldCopies(seed).run()
        assert verdict.violations == [], f"replay with: python -m tests.sim --old-copies {seed}"
        forwarded += verdict.forwarded
    assert forwarded > 0


@pytest.mark.parametrize("name", share_of_today(BUGS))
def test_seeded_bugs_are_found(name: str) -> None:
    likely, bug = BUGS[name]
    with bug():
        assert any(OldCopies(seed).run().violations for seed in (likely, *range(BUG_SEEDS_MAX)))
