"""Where a bridge to another node stands, as a table. A pair (state, turn) that is missing is a bug of ours."""

from __future__ import annotations

import enum

from mqbroker.base.errors import Bug


class State(enum.Enum):
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


NEXT: dict[tuple[State, Turn], State] = {
    (State.IDLE, Turn.DIAL): State.DIALLING,
    (State.IDLE, Turn.END): State.ENDED,
    (State.DIALLING, Turn.CONNECTED): State.OPENING,
    (State.DIALLING, Turn.REST): State.RESTING,
    (State.DIALLING, Turn.GIVE_UP): State.GONE,
    (State.DIALLING, Turn.END): State.ENDED,
    (State.OPENING, Turn.OPENED): State.UP,
    (State.OPENING, Turn.REST): State.RESTING,
    (State.OPENING, Turn.GIVE_UP): State.GONE,
    (State.OPENING, Turn.END): State.ENDED,
    (State.UP, Turn.REST): State.RESTING,
    (State.UP, Turn.GIVE_UP): State.GONE,
    (State.UP, Turn.END): State.ENDED,
    (State.RESTING, Turn.DIAL): State.DIALLING,
    (State.RESTING, Turn.GIVE_UP): State.GONE,
    (State.RESTING, Turn.END): State.ENDED,
    (State.GONE, Turn.DIAL): State.DIALLING,
    (State.GONE, Turn.END): State.ENDED,
}


def next_state(state: State, turn: Turn) -> State:
    """Raises Bug where that cannot be."""
    try:
        return NEXT[state, turn]
    except KeyError:
        raise Bug(f"a bridge that is {state.value} cannot {turn.value}") from None
