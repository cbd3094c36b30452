"""Histories of clients, faults and restarts. A failing seed prints the command that replays it.

Each day has others of each kind (days.py); `make soak` takes fresh ones. SIM_SEEDS=0-200 says which of the plain ones.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pytest
from mqbroker.base.errors import Bug

from tests.sim.bugs import BUGS, FEATURE_BUGS, LARGE_BUGS, PAGING_BUGS, ROOM_BUGS, TRANSACTION_BUGS
from tests.sim.days import of_today, share_of_today
from tests.sim.directed import DIRECTED
from tests.sim.histories import (
    CHANGES_FROM,
    FEATURES,
    LARGE_FROM,
    MIXED_FROM,
    PAGING_FROM,
    TRANSACTIONS,
    Simulation,
    Verdict,
    has_changes,
    has_full_disks,
    seeds_of,
)
from tests.sim.places import DEAD, EXPIRED
from tests.sim.search import shows

CHUNK = 20
# Every seed that ever failed stays here.
REGRESSIONS = (7, 87, 115, 118, 123, 153, 161, 162, 170, 176, 191, 2286, 4867, 120003546)


def _seeds() -> Sequence[int]:
    if said := os.environ.get("SIM_SEEDS"):
        first, _, last = said.partition("-")
        return range(int(first), int(last))
    return of_today(range(MIXED_FROM), 40)


def _chunks(seeds: Sequence[int]) -> list[Sequence[int]]:
    return [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]


def run(seed: int) -> Verdict:
    """One history; a failure of any kind names its seed."""
    try:
        return Simulation(seed).run()
    except Exception as error:
        error.add_note(_replay(seed))
        raise


def _replay(seed: int) -> str:
    return f"replay with: python -m tests.sim {seed}"


def _named(seeds: Sequence[int]) -> str:
    return f"{seeds[0]}-{seeds[-1]}"


@pytest.mark.parametrize("seeds", _chunks(_seeds()), ids=_named)
def test_nothing_is_lost_doubled_or_disordered(seeds: Sequence[int]) -> None:
    received = 0
    for seed in seeds:
        verdict = run(seed)
        assert verdict.violations == [], _replay(seed)
        received += verdict.received
    assert received > 0


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_once_failed(seed: int) -> None:
    assert run(seed).violations == []


TRACED = (range(MIXED_FROM), seeds_of(TRANSACTIONS, 240), seeds_of(FEATURES, 480))


@pytest.mark.parametrize("seed", [seed for seeds in TRACED for seed in of_today(seeds, 3)])
def test_same_seed_same_trace(seed: int) -> None:
    assert run(seed).trace == run(seed).trace


FLIPPED = (*range(4), *seeds_of(TRANSACTIONS, 4), *seeds_of(FEATURES, 4), *range(PAGING_FROM, PAGING_FROM + 24, 6))


def test_a_bit_that_flips_in_any_file_is_found_before_anything_is_served() -> None:
    found: Counter[str] = Counter()
    for seed in FLIPPED:
        simulation = Simulation(seed, flips=8)
        verdict = simulation.run()
        assert verdict.violations == [], _replay(seed)
        for node in simulation.nodes:
            found += node.disk.flips
        if seed < 2:
            assert verdict.trace == run(seed).trace, "a file that is put back changes nothing"
    assert found["entry"] > 100
    assert found["header"] > 0
    assert found["nothing was there"] > 0


def test_histories_contain_what_they_are_meant_to() -> None:
    """Faults really strike and messages really flow: a simulation that tests nothing would be green."""
    verdicts = [run(seed) for seed in range(20)]
    assert sum(verdict.crashes for verdict in verdicts) > 10
    assert sum(verdict.accepted for verdict in verdicts) > 1_000
    assert len({name for verdict in verdicts for name in verdict.faults}) >= 7


@pytest.mark.parametrize("seeds", _chunks(of_today(seeds_of(TRANSACTIONS, 240), 20)), ids=_named)
def test_transactions_happen_wholly_or_not_at_all(seeds: Sequence[int]) -> None:
    ends: Counter[str] = Counter()
    for seed in seeds:
        verdict = run(seed)
        assert verdict.violations == [], _replay(seed)
        ends += verdict.transactions
    assert ends["committed"] > 200
    assert ends["rolled back"] > 80
    assert ends["unknown"] > 0
    assert ends["uncommitted"] > 0


def _with_paging(count: int) -> range:
    return range(PAGING_FROM, PAGING_FROM + 6 * count, 6)


@pytest.mark.parametrize("seeds", _chunks(of_today(_with_paging(160), 20)), ids=_named)
def test_what_is_paged_comes_back_in_order_whatever_happens(seeds: Sequence[int]) -> None:
    pages = moved = 0
    for seed in seeds:
        verdict = run(seed)
        assert verdict.violations == [], _replay(seed)
        pages += verdict.pages_read
        moved += verdict.moved
    assert pages > 80
    assert moved > 10


@pytest.mark.parametrize("bug", share_of_today(PAGING_BUGS))
def test_seeded_bugs_of_paging_are_found(bug: str) -> None:
    with PAGING_BUGS[bug]():
        _find(bug, _with_paging(30))


@pytest.mark.parametrize("bug", share_of_today(TRANSACTION_BUGS))
def test_seeded_bugs_of_transactions_are_found(bug: str) -> None:
    with TRANSACTION_BUGS[bug]():
        for seed in seeds_of(TRANSACTIONS, 30):
            try:
                if any(_is_telling(each) for each in Simulation(seed).run().violations):
                    return
            except Bug:  # an invariant of the broker noticed first
                return
    pytest.fail(f"30 histories did not show the bug: {bug}")


def _with_large(count: int) -> range:
    return range(LARGE_FROM + 4, LARGE_FROM + 4 + 6 * count, 6)


@pytest.mark.parametrize("seeds", _chunks(of_today(_with_large(160), 20)), ids=_named)
def test_messages_in_files_are_like_any_other_and_leave_no_file(seeds: Sequence[int]) -> None:
    files = 0
    for seed in seeds:
        verdict = run(seed)
        assert verdict.violations == [], _replay(seed)
        files += verdict.large
    assert files > 200


@pytest.mark.parametrize("bug", share_of_today(LARGE_BUGS))
def test_seeded_bugs_of_messages_in_files_are_found(bug: str) -> None:
    with LARGE_BUGS[bug]():
        _find(bug, _with_large(30))


def _is_telling(violation: str) -> bool:
    """Said of what clients saw; a leak alone would be luck."""
    return violation.startswith(("torn", "lost", "unexpected", "acceptance before sync"))


@pytest.mark.parametrize("seeds", _chunks(of_today(seeds_of(FEATURES, 480), 60)), ids=_named)
def test_queues_keep_what_they_promise(seeds: Sequence[int]) -> None:
    ends: Counter[str] = Counter()
    for seed in seeds:
        verdict = run(seed)
        assert verdict.violations == [], _replay(seed)
        ends += verdict.ends
    assert ends[DEAD] + ends[EXPIRED] > 10


def _with_changes(count: int) -> list[int]:
    return [seed for seed in range(CHANGES_FROM, CHANGES_FROM + count * 4) if has_changes(seed)]


@pytest.mark.parametrize("seeds", _chunks(of_today(_with_changes(240), 20)), ids=_named)
def test_nothing_is_lost_where_queues_are_deleted_and_permissions_withdrawn(seeds: Sequence[int]) -> None:
    deleted = rejected = 0.0
    for seed in seeds:
        simulation = Simulation(seed)
        assert simulation.run().violations == [], _replay(seed)
        deleted += sum(sum(taken) for taken in simulation.model.purges.values())
        rejected += sum(letter.outcome == "rejected" for letter in simulation.model.letters.values())
    assert deleted > 0
    assert rejected > 10


# Histories in which something finds no room.
FULL = (5018, 5042, 5058, 5062, 5078, 5118, 5142, 5152, 5168, 5188)


def test_a_full_disk_ends_a_node_that_goes_on_when_there_is_room() -> None:
    no_room: Counter[str] = Counter()
    for seed in FULL:
        assert has_full_disks(seed)
        verdict = run(seed)
        assert verdict.violations == [], _replay(seed)
        no_room += verdict.no_room
    assert no_room["file"] > 3
    assert no_room["entry"] > 3
    assert no_room["start"] > 3


@pytest.mark.parametrize("bug", share_of_today(ROOM_BUGS))
def test_seeded_bugs_of_full_disks_are_found(bug: str) -> None:
    with ROOM_BUGS[bug]():
        _find(bug, FULL)


@pytest.mark.parametrize("bug", share_of_today(BUGS))
def test_seeded_bugs_are_found(bug: str) -> None:
    with BUGS[bug]():
        _find(bug, range(60))


@pytest.mark.parametrize("bug", share_of_today(FEATURE_BUGS))
def test_seeded_bugs_of_features_are_found(bug: str) -> None:
    with FEATURE_BUGS[bug]():
        _find(bug, seeds_of(FEATURES, 60))


@pytest.mark.parametrize("bug", DIRECTED)
def test_histories_that_are_made_for_bugs_are_good_without(bug: str) -> None:
    history, seeds = DIRECTED[bug]
    for seed in seeds[:4]:
        assert history(seed).run().violations == [], f"{history.__name__}({seed})"


def _find(bug: str, seeds: Sequence[int]) -> None:
    """In histories that are made for the bug, or where it shows soon in these."""
    history, seeds = DIRECTED.get(bug, (Simulation, seeds))
    assert any(shows(history(seed)) for seed in seeds), f"{len(seeds)} histories did not show the bug: {bug}"
