"""Where a connection of an application stands, from one broker to the next: one table.

NEW -> DIALLING -> OPENING -> UP -> (lost) -> DIALLING or WAITING -> …  -> CLOSING -> ENDED
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.state_table import StateTable
from mqbroker.base.states import OURS, StateEvent, StateMember


class Stage(StateMember):
    """A stage; ENDED is for good."""

    NEW = "new"
    DIALLING = "dialling"
    OPENING = "opening"
    UP = "up"
    WAITING = "waiting"
    CLOSING = "closing"
    ENDED = "ended"


class Turn(StateEvent):
    """What moves it."""

    DIAL = "dial", OURS
    DIALLED = "dialled", OURS
    OPENED = "opened", OURS
    REST = "rest", OURS  # until the next round
    CLOSE = "close", OURS
    END = "end", OURS


STAGES: Final = StateTable(
    {
        (Stage.NEW, Turn.DIAL): Stage.DIALLING,
        (Stage.NEW, Turn.END): Stage.ENDED,
        (Stage.DIALLING, Turn.DIAL): Stage.DIALLING,
        (Stage.DIALLING, Turn.DIALLED): Stage.OPENING,
        (Stage.DIALLING, Turn.REST): Stage.WAITING,
        (Stage.DIALLING, Turn.END): Stage.ENDED,
        (Stage.OPENING, Turn.DIAL): Stage.DIALLING,
        (Stage.OPENING, Turn.OPENED): Stage.UP,
        (Stage.OPENING, Turn.REST): Stage.WAITING,
        (Stage.OPENING, Turn.END): Stage.ENDED,
        (Stage.UP, Turn.DIAL): Stage.DIALLING,
        (Stage.UP, Turn.REST): Stage.WAITING,
        (Stage.UP, Turn.CLOSE): Stage.CLOSING,
        (Stage.UP, Turn.END): Stage.ENDED,
        (Stage.WAITING, Turn.DIAL): Stage.DIALLING,
        (Stage.WAITING, Turn.END): Stage.ENDED,
        (Stage.CLOSING, Turn.END): Stage.ENDED,
    },
    "client connection in stage {state}: {event}",
)
