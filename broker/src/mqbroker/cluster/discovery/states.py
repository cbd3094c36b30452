"""The states of a discovery group's ear: whether it is joined to its place in the network.

A join is asked for and answered once. Where it fails it is tried again; where nothing at all is heard it is asked for
anew, because a network card that went away and came back has forgotten its memberships without a word.
"""

from __future__ import annotations

import enum
from typing import Final

from mqbroker.base.errors import Bug


class GroupState(enum.Enum):
    """Whether a group hears."""

    IDLE = "idle"
    JOINING = "joining"
    LISTENING = "listening"
    FAILED = "failed"
    REJOINING = "rejoining"


class GroupEvent(enum.Enum):
    """What happens to it."""

    TIME = "time"
    JOINED = "joined"
    REFUSED = "refused"


NEXT: Final[dict[tuple[GroupState, GroupEvent], GroupState]] = {
    (GroupState.IDLE, GroupEvent.TIME): GroupState.JOINING,
    (GroupState.JOINING, GroupEvent.JOINED): GroupState.LISTENING,
    (GroupState.JOINING, GroupEvent.REFUSED): GroupState.FAILED,
    (GroupState.FAILED, GroupEvent.TIME): GroupState.JOINING,
    (GroupState.LISTENING, GroupEvent.TIME): GroupState.REJOINING,
    (GroupState.REJOINING, GroupEvent.JOINED): GroupState.LISTENING,
    (GroupState.REJOINING, GroupEvent.REFUSED): GroupState.FAILED,
}


def after(state: GroupState, event: GroupEvent) -> GroupState:
    """The next state. A pair that is missing is our own fault."""
    try:
        return NEXT[state, event]
    except KeyError:
        raise Bug(f"a discovery group is {state.value}, and got {event.value}") from None
