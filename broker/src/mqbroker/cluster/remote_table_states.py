"""The states of what is heard of one neighbour's bindings.

A link of notices begins with all that the neighbour has, between RESET and RESET_COMPLETE, and goes on with changes.
What comes before RESET is about a state that nobody knows, and counts for nothing. A neighbour that fell behind
begins anew with RESET, in the middle too. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.errors import Scope
from mqbroker.base.state_table import StateTable
from mqbroker.base.states import PEERS, StateEvent, StateMember


class TableState(StateMember):
    """How far a neighbour has told."""

    UNSYNCED = "unsynced"
    RESETTING = "resetting"
    LIVE = "live"


class TableEvent(StateEvent):
    """What it tells, and what happens to its link."""

    RESET = "reset", PEERS
    CHANGE = "change", PEERS
    COMPLETE = "complete", PEERS
    LOST = "lost", PEERS


TABLE_STATES: Final = StateTable(
    {
        (TableState.UNSYNCED, TableEvent.RESET): TableState.RESETTING,
        (TableState.UNSYNCED, TableEvent.CHANGE): TableState.UNSYNCED,
        (TableState.UNSYNCED, TableEvent.COMPLETE): TableState.UNSYNCED,
        (TableState.UNSYNCED, TableEvent.LOST): TableState.UNSYNCED,
        (TableState.RESETTING, TableEvent.RESET): TableState.RESETTING,
        (TableState.RESETTING, TableEvent.CHANGE): TableState.RESETTING,
        (TableState.RESETTING, TableEvent.COMPLETE): TableState.LIVE,
        (TableState.RESETTING, TableEvent.LOST): TableState.UNSYNCED,
        (TableState.LIVE, TableEvent.RESET): TableState.RESETTING,
        (TableState.LIVE, TableEvent.CHANGE): TableState.LIVE,
        (TableState.LIVE, TableEvent.LOST): TableState.UNSYNCED,
    },
    "a notice of the cluster says {event} where its bindings are {state}",
    Scope.LINK,
)
