"""The states of what is heard of one neighbour's bindings.

A link of notices begins with all that the neighbour has, between RESET and RESET_COMPLETE, and goes on with changes.
What comes before RESET is about a state that nobody knows, and counts for nothing. A neighbour that fell behind
begins anew with RESET, in the middle too. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

import enum
from typing import Final

from mqbroker.base.errors import PeerFault, Scope


class TableState(enum.Enum):
    """How far a neighbour has told."""

    UNSYNCED = "unsynced"
    RESETTING = "resetting"
    LIVE = "live"


class TableEvent(enum.Enum):
    """What it tells, and what happens to its link."""

    RESET = "reset"
    CHANGE = "change"
    COMPLETE = "complete"
    LOST = "lost"


NEXT: Final[dict[tuple[TableState, TableEvent], TableState]] = {
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
}


def after(state: TableState, event: TableEvent) -> TableState:
    """The next state. Raises PeerFault of the link where a pair is missing: only the neighbour can bring that about."""
    try:
        return NEXT[state, event]
    except KeyError:
        why = f"a notice of the cluster says {event.value} where its bindings are {state.value}"
        raise PeerFault("amqp:not-allowed", why, Scope.LINK) from None
