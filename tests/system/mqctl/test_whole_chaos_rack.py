"""Every fault at every step of a change, on real hosts, which takes hours. Needs root and the rack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chaos import CELLS, Cell
from tests.support.chaos_stages import Stages

pytestmark = [pytest.mark.system, pytest.mark.timeout(4000)]  # as of one that makes its hosts, test_chaos_rack.py


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    with Stages("chaosall", tmp_path_factory.mktemp("chaos")) as found:
        yield found


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_command_that_meets_a_fault_ends_as_if_there_had_been_none(stages: Stages, cell: Cell) -> None:
    stages.play(cell)
