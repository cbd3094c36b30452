"""The state tables over every pair of state and event: what is missing is a fault, and the right one's."""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import Any

import pytest
from mqbroker.amqp import states
from mqbroker.amqp.states import ConnectionState, LinkState, SessionState
from mqbroker.base.errors import Bug, PeerFault, Scope
from mqbroker.base.state_table import StateTable
from mqbroker.base.states import OURS, PEERS, StateEvent

TABLES: list[tuple[str, type[Enum], type[StateEvent], StateTable[Any, Any], Scope]] = [
    ("connection", ConnectionState, states.ConnectionStateEvent, states.CONNECTION_STATES, Scope.CONNECTION),
    ("session", SessionState, states.SessionStateEvent, states.SESSION_STATES, Scope.CONNECTION),
    ("link", LinkState, states.LinkStateEvent, states.LINK_STATES, Scope.SESSION),
]
PAIRS = [
    pytest.param(table, scope, state, event, id=f"{name}: {event.words} in {state.value}")
    for name, kinds, happenings, table, scope in TABLES
    for state, event in product(kinds, happenings)
]


@pytest.mark.parametrize(("table", "scope", "state", "event"), PAIRS)
def test_every_pair(table: StateTable[Any, Any], scope: Scope, state: Enum, event: StateEvent) -> None:
    if (state, event) in table.moves:
        assert table.after(state, event) is table.moves[state, event]
    elif event.name.startswith("SENT"):
        with pytest.raises(Bug, match=state.value):
            table.after(state, event)
    else:
        with pytest.raises(PeerFault, match="amqp:not-allowed") as caught:
            table.after(state, event)
        assert caught.value.scope is scope


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row[0])
def test_every_event_says_whose_it_is(row: Any) -> None:
    assert {(event.words.split()[0], event.blame) for event in row[2]} == {("sent", OURS), ("got", PEERS)}


@pytest.mark.parametrize(
    ("row", "start"),
    list(zip(TABLES, (ConnectionState.START, SessionState.UNMAPPED, LinkState.DETACHED), strict=True)),
    ids=[row[0] for row in TABLES],
)  # fmt: skip
def test_every_state_can_be_reached_and_left(row: Any, start: Enum) -> None:
    _, kinds, _, table, _ = row
    reached = {start}
    while more := {after for (state, _), after in table.moves.items() if state in reached} - reached:
        reached |= more
    assert reached == set(kinds)
    ends = set(kinds) - {state for state, _ in table.moves}
    assert ends <= {states.ConnectionState.END}


@pytest.mark.parametrize("state", states.ConnectionState)
def test_frames_are_for_open_connections_only(state: states.ConnectionState) -> None:
    is_fine = (state, states.ConnectionStateEvent.GOT_FRAME) in states.CONNECTION_STATES.moves
    names = ("OPENED", "OPEN_RCVD", "CLOSE_SENT", "DISCARDING")
    assert is_fine == (state.name in names)
