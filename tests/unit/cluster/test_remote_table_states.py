"""Every pair of a state and an event of what is heard of a neighbour."""

from __future__ import annotations

from itertools import product

import pytest
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.cluster.remote_table_states import TABLE_STATES, TableEvent, TableState

EXPECTED = {
    TableState.UNSYNCED: {
        TableEvent.RESET: TableState.RESETTING,
        TableEvent.CHANGE: TableState.UNSYNCED,
        TableEvent.COMPLETE: TableState.UNSYNCED,
    },
    TableState.RESETTING: {
        TableEvent.RESET: TableState.RESETTING,
        TableEvent.CHANGE: TableState.RESETTING,
        TableEvent.COMPLETE: TableState.LIVE,
    },
    TableState.LIVE: {TableEvent.RESET: TableState.RESETTING, TableEvent.CHANGE: TableState.LIVE},
}


@pytest.mark.parametrize(("state", "event"), list(product(TableState, TableEvent)))
def test_every_pair(state: TableState, event: TableEvent) -> None:
    expected = TableState.UNSYNCED if event is TableEvent.LOST else EXPECTED[state].get(event)
    if expected is not None:
        assert TABLE_STATES.after(state, event) is expected
        return
    assert (state, event) not in TABLE_STATES.moves
    with pytest.raises(PeerFault, match="says complete where its bindings are live") as found:
        TABLE_STATES.after(state, event)
    assert found.value.scope is Scope.LINK
