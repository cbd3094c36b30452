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


class StageEvent(StateEvent):
    """What moves a connection of an application from stage to stage."""

    DIAL = "dial", OURS
    DIALLED = "dialled", OURS
    OPENED = "opened", OURS
    REST = "rest", OURS  # until the next round
    CLOSE = "close", OURS
    END = "end", OURS


STAGES: Final = StateTable(
    {
        (Stage.NEW, StageEvent.DIAL): Stage.DIALLING,
        (Stage.NEW, StageEvent.END): Stage.ENDED,
        (Stage.DIALLING, StageEvent.DIAL): Stage.DIALLING,
        (Stage.DIALLING, StageEvent.DIALLED): Stage.OPENING,
        (Stage.DIALLING, StageEvent.REST): Stage.WAITING,
        (Stage.DIALLING, StageEvent.END): Stage.ENDED,
        (Stage.OPENING, StageEvent.DIAL): Stage.DIALLING,
        (Stage.OPENING, StageEvent.OPENED): Stage.UP,
        (Stage.OPENING, StageEvent.REST): Stage.WAITING,
        (Stage.OPENING, StageEvent.END): Stage.ENDED,
        (Stage.UP, StageEvent.DIAL): Stage.DIALLING,
        (Stage.UP, StageEvent.REST): Stage.WAITING,
        (Stage.UP, StageEvent.CLOSE): Stage.CLOSING,
        (Stage.UP, StageEvent.END): Stage.ENDED,
        (Stage.WAITING, StageEvent.DIAL): Stage.DIALLING,
        (Stage.WAITING, StageEvent.END): Stage.ENDED,
        (Stage.CLOSING, StageEvent.END): Stage.ENDED,
    },
    "client connection in stage {state}: {event}",
)
