"""Where a connection of an application stands, from one broker to the next: one table.

NEW -> DIALLING -> OPENING -> UP -> (lost) -> DIALLING or WAITING -> …  -> CLOSING -> ENDED
"""

from __future__ import annotations

import enum

from mqbroker.base.errors import Bug


class Stage(enum.Enum):
    """A stage; ENDED is for good."""

    NEW = "new"
    DIALLING = "dialling"
    OPENING = "opening"
    UP = "up"
    WAITING = "waiting"
    CLOSING = "closing"
    ENDED = "ended"


class Turn(enum.Enum):
    """What moves it."""

    DIAL = "dial"
    DIALLED = "dialled"
    OPENED = "opened"
    REST = "rest"  # until the next round
    CLOSE = "close"
    END = "end"


NEXT: dict[tuple[Stage, Turn], Stage] = {
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
}


def next_stage(stage: Stage, turn: Turn) -> Stage:
    """The stage after `turn`. Raises Bug: all turns are ours."""
    found = NEXT.get((stage, turn))
    if found is None:
        raise Bug(f"client connection in stage {stage.value}: {turn.value}")
    return found
