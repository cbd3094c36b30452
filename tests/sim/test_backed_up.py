"""Histories of nodes that are backed up. A failing seed prints the command that replays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from mqbroker.core.address.decisions import Decisions
from mqbroker.core.queue.large import LargeFiles
from mqbroker.journal.plan import Journal
from mqbroker.node.broker.snapshots import Snapshots
from mqbroker.node.values.inputs import AdminRequest

from tests.sim.backed_up import CUT_OFF, GOOD, LET_GO, BackedUp
from tests.sim.days import share_of_today

SEEDS = (*range(8), *range(2004, 2022, 3), *range(3000, 3012, 3))  # those from 2000 on have files, from 3000 on pages
BUG_SEEDS = (*range(2004, 2064, 3), *range(40))


def _replay(seed: int) -> str:
    return f"replay with: python -m tests.sim --backed-up {seed}"


def test_a_backup_is_what_was_there_and_takes_nothing_from_its_node() -> None:
    ends: Counter[str] = Counter()
    large = pages = 0
    for seed in SEEDS:
        simulation = BackedUp(seed)
        verdict = simulation.run()
        assert verdict.violations == [], _replay(seed)
        ends += simulation.ends
        large += verdict.large
        pages += verdict.pages_read
    assert ends[GOOD] > 20, ends
    assert ends[CUT_OFF] > 3, ends
    assert ends[LET_GO] > 1, ends
    assert large > 0
    assert pages > 0


def _kept_back(self: Snapshots, segment: int) -> bool:
    """Segments go as if nobody read them."""
    return False


def _stored(self: LargeFiles) -> list[int]:
    """Files of large messages have no holder more."""
    return [file for file, held in self._held.items() if held.is_stored]


def _let_go(self: Snapshots, let_go: Callable[[Snapshots], None] = Snapshots._let_go) -> None:
    """None of them is given back either."""
    assert self._held is not None
    self._held = self._held._replace(large=[])
    let_go(self)


def _ended(self: Snapshots, request: AdminRequest) -> None:
    """Whatever became of them, the files were held."""
    if self._held is not None and self._held.session == request.session:
        self._let_go()


def _early(self: Snapshots, space: Callable[[Snapshots], None] = Snapshots.sealed) -> None:
    """The list is answered before all of it is on disk."""
    with patch.object(Decisions, "wait_for_earlier", _at_once):
        space(self)


def _at_once(self: Decisions, action: Callable[..., None], *arguments: Any) -> None:
    action(*arguments)


def _half(self: Journal, files: Any = Journal.files) -> list[tuple[int, int]]:
    """Of the file that is written to the last sector is not counted."""
    found: list[tuple[int, int]] = files.fget(self)
    return [*found[:-1], (found[-1][0], max(found[-1][1] - 512, 0))] if found else found


@contextmanager
def _not_held() -> Iterator[None]:
    with patch.object(LargeFiles, "hold_stored", _stored), patch.object(Snapshots, "_let_go", _let_go):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "segments go": partial(patch.object, Snapshots, "keeps_back", _kept_back),
    "files of large messages go": _not_held,
    "held, it says": partial(patch.object, Snapshots, "end", _ended),
    "answered before the sync": partial(patch.object, Snapshots, "sealed", _early),
    "some bytes are not counted": partial(patch.object, Journal, "files", property(_half)),
}


@pytest.mark.parametrize("bug", share_of_today(BUGS))
def test_seeded_bugs_are_found(bug: str) -> None:
    with BUGS[bug]():
        for seed in BUG_SEEDS:
            if BackedUp(seed).run().violations:
                return
    pytest.fail(f"{len(BUG_SEEDS)} histories did not show it")
