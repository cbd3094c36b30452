"""Where a bridge to another node stands, as a table. A pair (state, turn) that is missing is a bug of ours."""

from __future__ import annotations

import enum

from mqbroker.base.errors import Bug


class BridgeState(enum.Enum):
    """The values are what administrators see."""

    IDLE = "idle"  # made, and not dialled yet
    DIALLING = "dialling"
    OPENING = "opening"  # the transport stands: login, open, session
    UP = "up"
    RESTING = "resting"  # until the next attempt
    GONE = "gone"  # the node has stopped, or was not reached: until somebody tells of it again
    ENDED = "ended"  # for good


class Turn(enum.Enum):
    """What moves a bridge."""

    DIAL = "dial"
    CONNECTED = "connected"
    OPENED = "opened"
    REST = "rest"  # an attempt failed, or the connection was lost
    GIVE_UP = "give up"  # there is to be no further attempt
    END = "end"  # it is not wanted any more, or this node stops


NEXT: dict[tuple[BridgeState, Turn], BridgeState] = {
    (BridgeState.IDLE, Turn.DIAL): BridgeState.DIALLING,
    (BridgeState.IDLE, Turn.END): BridgeState.ENDED,
    (BridgeState.DIALLING, Turn.CONNECTED): BridgeState.OPENING,
    (BridgeState.DIALLING, Turn.REST): BridgeState.RESTING,
    (BridgeState.DIALLING, Turn.GIVE_UP): BridgeState.GONE,
    (BridgeState.DIALLING, Turn.END): BridgeState.ENDED,
    (BridgeState.OPENING, Turn.OPENED): BridgeState.UP,
    (BridgeState.OPENING, Turn.REST): BridgeState.RESTING,
    (BridgeState.OPENING, Turn.GIVE_UP): BridgeState.GONE,
    (BridgeState.OPENING, Turn.END): BridgeState.ENDED,
    (BridgeState.UP, Turn.REST): BridgeState.RESTING,
    (BridgeState.UP, Turn.GIVE_UP): BridgeState.GONE,
    (BridgeState.UP, Turn.END): BridgeState.ENDED,
    (BridgeState.RESTING, Turn.DIAL): BridgeState.DIALLING,
    (BridgeState.RESTING, Turn.GIVE_UP): BridgeState.GONE,
    (BridgeState.RESTING, Turn.END): BridgeState.ENDED,
    (BridgeState.GONE, Turn.DIAL): BridgeState.DIALLING,
    (BridgeState.GONE, Turn.END): BridgeState.ENDED,
}


def next_state(state: BridgeState, turn: Turn) -> BridgeState:
    """Raises Bug where that cannot be."""
    try:
        return NEXT[state, turn]
    except KeyError:
        raise Bug(f"a bridge that is {state.value} cannot {turn.value}") from None
