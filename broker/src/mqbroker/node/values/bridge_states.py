"""Where a bridge to another node stands, as a table. A pair (state, turn) that is missing is a bug of ours."""

from __future__ import annotations

from typing import Final

from mqbroker.base.state_table import StateTable
from mqbroker.base.states import OURS, StateEvent, StateMember


class BridgeState(StateMember):
    """The values are what administrators see."""

    IDLE = "idle"  # made, and not dialled yet
    DIALLING = "dialling"
    OPENING = "opening"  # the transport stands: login, open, session
    UP = "up"
    RESTING = "resting"  # until the next attempt
    GONE = "gone"  # the node has stopped, or was not reached: until somebody tells of it again
    ENDED = "ended"  # for good


class Turn(StateEvent):
    """What moves a bridge."""

    DIAL = "dial", OURS
    CONNECTED = "connected", OURS
    OPENED = "opened", OURS
    REST = "rest", OURS  # an attempt failed, or the connection was lost
    GIVE_UP = "give up", OURS  # there is to be no further attempt
    END = "end", OURS  # it is not wanted any more, or this node stops


BRIDGE_STATES: Final = StateTable(
    {
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
    },
    "a bridge that is {state} cannot {event}",
)
