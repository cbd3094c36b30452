"""A bystander beside floods: which floods there are, what they say, and what comes of the loads."""

import pytest

from bench import peers, rows
from bench.floors import FLOORS
from bench.measure import flooded_figures
from tests.support import flooder, frames
from tests.support.flooder import chunk
from tests.support.floods import CONNECTIONS, FLOODS

(ROW,) = rows.FLOODED


def test_floods_of_the_row_are_there_and_among_them_each_kind_that_tests_count() -> None:
    assert set(ROW.floods) <= {*FLOODS, *CONNECTIONS}
    of_row = {each for name in ROW.floods for each in (FLOODS | CONNECTIONS)[name].of}
    assert of_row == {each for flood in (FLOODS | CONNECTIONS).values() for each in flood.of}


def test_the_row_is_for_ours_alone_and_short_for_once() -> None:
    assert {kind for kind, _ in ROW.skips} == set(peers.VERSIONED)
    assert (ROW.short().turns, ROW.short().between, ROW.short().floods) == (1, len(ROW.floods), ROW.floods)
    assert 100 <= ROW.short().load.count < ROW.load.count
    assert (ROW.is_eager, ROW.short().is_eager) == (False, True)
    assert rows.chosen([ROW.name]) == rows.Choice(fresh=rows.FLOODED)


def test_each_flood_has_a_line_and_a_floor_of_its_own() -> None:
    lines = rows.Choice(fresh=rows.FLOODED).lines()
    assert list(lines) == [f"{ROW.name}: {flood}" for flood in ROW.floods]
    assert {floor.row for floor in FLOORS if floor.row.startswith(ROW.name)} == set(lines)


def test_the_share_is_of_medians() -> None:
    alone = [{"p50_us": 50.0, "p99_us": each} for each in (100.0, 9000.0, 90.0)]
    others = {
        "mild": [{"p50_us": 60.0, "p99_us": each} for each in (120.0, 110.0, 9000.0)],
        "usual": [{"p50_us": 70.0, "p99_us": each} for each in (130.0, 130.0, 130.0)],
        "worst": [{"p50_us": 65.0, "p99_us": each} for each in (300.0, 100.0, 310.0)],
    }
    assert flooded_figures(alone, others) == [
        {
            "p99_share": p99 / 100.0,
            "alone_p50_us": 50.0,
            "alone_p99_us": 100.0,
            "beside_p50_us": p50,
            "beside_p99_us": p99,
        }
        for p50, p99 in ((60.0, 120.0), (70.0, 130.0), (65.0, 300.0))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_what_is_said_again_and_again_is_whole_frames(name: str) -> None:
    frames.heard(chunk(name))
    assert len(chunk(name)) >= min(flooder.CHUNK_BYTES, len(FLOODS[name].piece(0)) * flooder.PIECES_MAX)
