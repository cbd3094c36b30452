"""The table of a bridge's states: every pair is either in it or a bug."""

from __future__ import annotations

from itertools import product

import pytest
from mqbroker.base.errors import Bug
from mqbroker.node.values.bridge_states import BRIDGE_STATES, BridgeState, Turn

NEXT = BRIDGE_STATES.moves
EVERY = list(product(BridgeState, Turn))


@pytest.mark.parametrize(("state", "turn"), EVERY, ids=lambda each: each.name)
def test_every_pair(state: BridgeState, turn: Turn) -> None:
    if (state, turn) in NEXT:
        assert BRIDGE_STATES.after(state, turn) is NEXT[state, turn]
    else:
        with pytest.raises(Bug, match=f"a bridge that is {state.value} cannot {turn.words}"):
            BRIDGE_STATES.after(state, turn)


def test_every_state_can_end_and_what_has_ended_stays_so() -> None:
    assert [state for state in BridgeState if (state, Turn.END) not in NEXT] == [BridgeState.ENDED]
    assert [turn for state, turn in NEXT if state is BridgeState.ENDED] == []


def test_every_state_is_reached() -> None:
    reached = {BridgeState.IDLE}
    while more := {NEXT[state, turn] for state, turn in NEXT if state in reached} - reached:
        reached |= more
    assert reached == set(BridgeState)
