"""The table of a bridge's states: every pair is either in it or a bug."""

from __future__ import annotations

from itertools import product

import pytest
from mqbroker.base.errors import Bug
from mqbroker.node.values.bridge_states import BRIDGE_STATES, BridgeState, BridgeStateEvent

NEXT = BRIDGE_STATES.moves
EVERY = list(product(BridgeState, BridgeStateEvent))


@pytest.mark.parametrize(("state", "event"), EVERY, ids=lambda each: each.name)
def test_every_pair(state: BridgeState, event: BridgeStateEvent) -> None:
    if (state, event) in NEXT:
        assert BRIDGE_STATES.after(state, event) is NEXT[state, event]
    else:
        with pytest.raises(Bug, match=f"a bridge that is {state.value} cannot {event.words}"):
            BRIDGE_STATES.after(state, event)


def test_every_state_can_end_and_what_has_ended_stays_so() -> None:
    assert [state for state in BridgeState if (state, BridgeStateEvent.END) not in NEXT] == [BridgeState.ENDED]
    assert [event for state, event in NEXT if state is BridgeState.ENDED] == []


def test_every_state_is_reached() -> None:
    reached = {BridgeState.IDLE}
    while more := {NEXT[state, event] for state, event in NEXT if state in reached} - reached:
        reached |= more
    assert reached == set(BridgeState)
