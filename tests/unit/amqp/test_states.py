"""The state tables over every pair of state and event: what is missing is a fault, and the right one's."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from itertools import product
from typing import Any

import pytest
from mqbroker.amqp import states
from mqbroker.amqp.states import ConnectionState, LinkState, SessionState
from mqbroker.base.errors import Bug, PeerFault, Scope

TABLES: list[tuple[str, type[Enum], type[Enum], dict[Any, Any], Callable[[Any, Any], Any], Scope]] = [
    (
        "connection",
        states.ConnectionState,
        states.ConnectionStateEvent,
        states.CONN_NEXT,
        states.next_conn,
        Scope.CONNECTION,
    ),
    ("session", states.SessionState, states.SessionStateEvent, states.SESS_NEXT, states.next_sess, Scope.CONNECTION),
    ("link", states.LinkState, states.LinkStateEvent, states.LINK_NEXT, states.next_link, Scope.SESSION),
]
PAIRS = [
    pytest.param(table, step, scope, state, event, id=f"{name}: {event.value} in {state.value}")
    for name, kinds, happenings, table, step, scope in TABLES
    for state, event in product(kinds, happenings)
]


@pytest.mark.parametrize(("table", "step", "scope", "state", "event"), PAIRS)
def test_every_pair(
    table: dict[Any, Any], step: Callable[[Any, Any], Any], scope: Scope, state: Enum, event: Enum
) -> None:
    if (state, event) in table:
        assert step(state, event) is table[state, event]
    elif event.value.startswith("sent"):
        with pytest.raises(Bug, match=state.value):
            step(state, event)
    else:
        with pytest.raises(PeerFault, match="amqp:not-allowed") as caught:
            step(state, event)
        assert caught.value.scope is scope


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row[0])
def test_every_event_says_whose_it_is(row: Any) -> None:
    assert {event.value.split()[0] for event in row[2]} == {"sent", "got"}


@pytest.mark.parametrize(
    ("row", "start"),
    list(zip(TABLES, (ConnectionState.START, SessionState.UNMAPPED, LinkState.DETACHED), strict=True)),
    ids=[row[0] for row in TABLES],
)  # fmt: skip
def test_every_state_can_be_reached_and_left(row: Any, start: Enum) -> None:
    _, kinds, _, table, _, _ = row
    reached = {start}
    while more := {after for (state, _), after in table.items() if state in reached} - reached:
        reached |= more
    assert reached == set(kinds)
    ends = set(kinds) - {state for state, _ in table}
    assert ends <= {states.ConnectionState.END}


@pytest.mark.parametrize("state", states.ConnectionState)
def test_frames_are_for_open_connections_only(state: states.ConnectionState) -> None:
    is_fine = (state, states.ConnectionStateEvent.GOT_FRAME) in states.CONN_NEXT
    names = ("OPENED", "OPEN_RCVD", "CLOSE_SENT", "DISCARDING")
    assert is_fine == (state.name in names)
