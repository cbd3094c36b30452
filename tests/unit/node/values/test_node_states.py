"""The table of a node's way to its end: every pair is either in it or a bug."""

from __future__ import annotations

from itertools import product

import pytest
from mqbroker.base.errors import Bug
from mqbroker.node.values.node_states import NODE_STATES, NodeEvent, NodeState

EXPECTED = {
    (NodeState.RUNNING, NodeEvent.CORDON): NodeState.CORDONED,
    (NodeState.CORDONED, NodeEvent.UNCORDON): NodeState.RUNNING,
    (NodeState.RUNNING, NodeEvent.STOP): NodeState.DRAINING,
    (NodeState.CORDONED, NodeEvent.STOP): NodeState.DRAINING,
    (NodeState.RUNNING, NodeEvent.LEAVE): NodeState.LEAVING,
    (NodeState.LEAVING, NodeEvent.STOP): NodeState.BREAKING_OFF,
    (NodeState.LEAVING, NodeEvent.LEFT): NodeState.DRAINING,
    (NodeState.BREAKING_OFF, NodeEvent.STOP): NodeState.DRAINING,
    (NodeState.BREAKING_OFF, NodeEvent.LEFT): NodeState.DRAINING,
    (NodeState.DRAINING, NodeEvent.ANSWERED): NodeState.STOPPING,
    (NodeState.STOPPING, NodeEvent.JOURNAL_ENDED): NodeState.STOPPED,
}


@pytest.mark.parametrize(("state", "event"), list(product(NodeState, NodeEvent)), ids=lambda each: each.name)
def test_every_pair(state: NodeState, event: NodeEvent) -> None:
    expected = EXPECTED.get((state, event), state if event is NodeEvent.STOP else None)
    if expected is not None:
        assert NODE_STATES.after(state, event) is expected
    else:
        with pytest.raises(Bug, match=f"a node that is {state.value} {event.words}"):
            NODE_STATES.after(state, event)


def test_nothing_leads_back_but_to_take_clients_again() -> None:
    order = list(NodeState)
    back = [pair for pair, after in NODE_STATES.moves.items() if order.index(after) < order.index(pair[0])]
    assert back == [(NodeState.CORDONED, NodeEvent.UNCORDON)]
