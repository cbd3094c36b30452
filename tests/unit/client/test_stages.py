"""The table of stages over every pair."""

from __future__ import annotations

import itertools

import pytest
from mqbroker.base.errors import Bug
from mqbroker.client.stages import STAGES, Stage, StageEvent

NEXT = STAGES.moves


@pytest.mark.parametrize(("stage", "event"), list(itertools.product(Stage, StageEvent)))
def test_every_pair(stage: Stage, event: StageEvent) -> None:
    if (stage, event) in NEXT:
        assert STAGES.after(stage, event) is NEXT[stage, event]
    else:
        with pytest.raises(Bug):
            STAGES.after(stage, event)


def test_every_stage_but_the_last_can_end() -> None:
    assert {stage for stage, event in NEXT if event is StageEvent.END} == set(Stage) - {Stage.ENDED}
    assert not [event for stage, event in NEXT if stage is Stage.ENDED]
