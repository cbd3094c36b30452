"""The ear of a discovery group, over every pair of state and event."""

from __future__ import annotations

import itertools

import pytest
from mqbroker.base.errors import Bug
from mqbroker.cluster.discovery.states import GROUP_STATES, GroupEvent, GroupState

NEXT = GROUP_STATES.moves


@pytest.mark.parametrize(("state", "event"), list(itertools.product(GroupState, GroupEvent)))
def test_each_pair_leads_somewhere_or_is_our_fault(state: GroupState, event: GroupEvent) -> None:
    if (state, event) in NEXT:
        assert GROUP_STATES.after(state, event) is NEXT[state, event]
    else:
        with pytest.raises(Bug, match=f"{state.value}, and got {event.words}"):
            GROUP_STATES.after(state, event)


def test_only_who_joins_gets_an_answer() -> None:
    asking = {state for state in GroupState if (state, GroupEvent.JOINED) in NEXT}
    assert asking == {state for state in GroupState if (state, GroupEvent.REFUSED) in NEXT}
    assert (
        asking
        == {NEXT[pair] for pair in NEXT if pair[1] is GroupEvent.TIME}
        == {GroupState.JOINING, GroupState.REJOINING}
    )
