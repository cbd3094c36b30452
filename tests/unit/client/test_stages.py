"""The table of stages over every pair."""

from __future__ import annotations

import itertools

import pytest
from mqbroker.base.errors import Bug
from mqbroker.client.stages import STAGES, Stage, Turn

NEXT = STAGES.moves


@pytest.mark.parametrize(("stage", "turn"), list(itertools.product(Stage, Turn)))
def test_every_pair(stage: Stage, turn: Turn) -> None:
    if (stage, turn) in NEXT:
        assert STAGES.after(stage, turn) is NEXT[stage, turn]
    else:
        with pytest.raises(Bug):
            STAGES.after(stage, turn)


def test_every_stage_but_the_last_can_end() -> None:
    assert {stage for stage, turn in NEXT if turn is Turn.END} == set(Stage) - {Stage.ENDED}
    assert not [turn for stage, turn in NEXT if stage is Stage.ENDED]
