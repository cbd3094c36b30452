"""The states of what is heard of one neighbour's bindings.

A link of notices begins with all that the neighbour has, between RESET and RESET_COMPLETE, and goes on with changes.
What comes before RESET is about a state that nobody knows, and counts for nothing. A neighbour that fell behind
begins anew with RESET, in the middle too. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

import enum
from typing import Final

from mqbroker.base.errors import PeerFault, Scope


class State(enum.Enum):
    """How far a neighbour has told."""

    UNSYNCED = "unsynced"
    RESETTING = "resetting"
    LIVE = "live"


class Event(enum.Enum):
    """What it tells, and what happens to its link."""

    RESET = "reset"
    CHANGE = "change"
    COMPLETE = "complete"
    LOST = "lost"


NEXT: Final[dict[tuple[State, Event], State]] = {
    (State.UNSYNCED, Event.RESET): State.RESETTING,
    (State.UNSYNCED, Event.CHANGE): State.UNSYNCED,
    (State.UNSYNCED, Event.COMPLETE): State.UNSYNCED,
    (State.UNSYNCED, Event.LOST): State.UNSYNCED,
    (State.RESETTING, Event.RESET): State.RESETTING,
    (State.RESETTING, Event.CHANGE): State.RESETTING,
    (State.RESETTING, Event.COMPLETE): State.LIVE,
    (State.RESETTING, Event.LOST): State.UNSYNCED,
    (State.LIVE, Event.RESET): State.RESETTING,
    (State.LIVE, Event.CHANGE): State.LIVE,
    (State.LIVE, Event.LOST): State.UNSYNCED,
}


def after(state: State, event: Event) -> State:
    """The next state. Raises PeerFault of the link where a pair is missing: only the neighbour can bring that about."""
    try:
        return NEXT[state, event]
    except KeyError:
        why = f"a notice of the cluster says {event.value} where its bindings are {state.value}"
        raise PeerFault("amqp:not-allowed", why, Scope.LINK) from None
