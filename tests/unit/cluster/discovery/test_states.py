"""The ear of a discovery group, over every pair of state and event."""

from __future__ import annotations

import itertools

import pytest
from mqbroker.base.errors import Bug
from mqbroker.cluster.discovery.states import NEXT, Event, State, after


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_each_pair_leads_somewhere_or_is_our_fault(state: State, event: Event) -> None:
    if (state, event) in NEXT:
        assert after(state, event) is NEXT[state, event]
    else:
        with pytest.raises(Bug, match=f"{state.value}, and got {event.value}"):
            after(state, event)


def test_only_who_joins_gets_an_answer() -> None:
    asking = {state for state in State if (state, Event.JOINED) in NEXT}
    assert asking == {state for state in State if (state, Event.REFUSED) in NEXT}
    assert asking == {NEXT[pair] for pair in NEXT if pair[1] is Event.TIME} == {State.JOINING, State.REJOINING}
