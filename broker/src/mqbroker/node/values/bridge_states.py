"""Where a bridge to another node stands, as a table. A pair (state, event) that is missing is a bug of ours."""

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


class BridgeStateEvent(StateEvent):
    """What moves a bridge from state to state."""

    DIAL = "dial", OURS
    CONNECTED = "connected", OURS
    OPENED = "opened", OURS
    REST = "rest", OURS  # an attempt failed, or the connection was lost
    GIVE_UP = "give up", OURS  # there is to be no further attempt
    END = "end", OURS  # it is not wanted any more, or this node stops


BRIDGE_STATES: Final = StateTable(
    {
        (BridgeState.IDLE, BridgeStateEvent.DIAL): BridgeState.DIALLING,
        (BridgeState.IDLE, BridgeStateEvent.END): BridgeState.ENDED,
        (BridgeState.DIALLING, BridgeStateEvent.CONNECTED): BridgeState.OPENING,
        (BridgeState.DIALLING, BridgeStateEvent.REST): BridgeState.RESTING,
        (BridgeState.DIALLING, BridgeStateEvent.GIVE_UP): BridgeState.GONE,
        (BridgeState.DIALLING, BridgeStateEvent.END): BridgeState.ENDED,
        (BridgeState.OPENING, BridgeStateEvent.OPENED): BridgeState.UP,
        (BridgeState.OPENING, BridgeStateEvent.REST): BridgeState.RESTING,
        (BridgeState.OPENING, BridgeStateEvent.GIVE_UP): BridgeState.GONE,
        (BridgeState.OPENING, BridgeStateEvent.END): BridgeState.ENDED,
        (BridgeState.UP, BridgeStateEvent.REST): BridgeState.RESTING,
        (BridgeState.UP, BridgeStateEvent.GIVE_UP): BridgeState.GONE,
        (BridgeState.UP, BridgeStateEvent.END): BridgeState.ENDED,
        (BridgeState.RESTING, BridgeStateEvent.DIAL): BridgeState.DIALLING,
        (BridgeState.RESTING, BridgeStateEvent.GIVE_UP): BridgeState.GONE,
        (BridgeState.RESTING, BridgeStateEvent.END): BridgeState.ENDED,
        (BridgeState.GONE, BridgeStateEvent.DIAL): BridgeState.DIALLING,
        (BridgeState.GONE, BridgeStateEvent.END): BridgeState.ENDED,
    },
    "a bridge that is {state} cannot {event}",
)
