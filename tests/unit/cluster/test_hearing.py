"""Every pair of a state and an event of what is heard of a neighbour."""

from __future__ import annotations

from itertools import product

import pytest
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.cluster.hearing import NEXT, Event, State, after

EXPECTED = {
    State.UNSYNCED: {Event.RESET: State.RESETTING, Event.CHANGE: State.UNSYNCED, Event.COMPLETE: State.UNSYNCED},
    State.RESETTING: {Event.RESET: State.RESETTING, Event.CHANGE: State.RESETTING, Event.COMPLETE: State.LIVE},
    State.LIVE: {Event.RESET: State.RESETTING, Event.CHANGE: State.LIVE},
}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_every_pair(state: State, event: Event) -> None:
    expected = State.UNSYNCED if event is Event.LOST else EXPECTED[state].get(event)
    if expected is not None:
        assert after(state, event) is expected
        return
    assert (state, event) not in NEXT
    with pytest.raises(PeerFault, match="says complete where its bindings are live") as found:
        after(state, event)
    assert found.value.scope is Scope.LINK
