"""A fault while a cluster is changed, on real hosts: that of the day. Needs root and the rack.

tests/system/mqctl/test_whole_chaos_rack.py plays all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.sim.days import DAY
from tests.support.chaos import CELLS_OF_DAY, Cell, of_day
from tests.support.chaos_stages import Stages

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    with Stages("chaos", tmp_path_factory.mktemp("chaos")) as found:
        yield found


@pytest.mark.parametrize("cell", [of_day(DAY)], ids=str)
def test_a_command_that_meets_a_fault_ends_as_if_there_had_been_none(stages: Stages, cell: Cell) -> None:
    stages.play(cell)


def test_each_cell_has_its_day() -> None:
    cells = [of_day(day) for day in range(len(CELLS_OF_DAY))]
    assert set(cells) == set(CELLS_OF_DAY)
    assert all(one.fault != next_one.fault for one, next_one in pairwise([*cells, *cells]))
