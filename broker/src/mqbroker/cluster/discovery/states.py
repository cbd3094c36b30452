"""The states of a discovery group's ear: whether it is joined to its place in the network.

A join is asked for and answered once. Where it fails it is tried again; where nothing at all is heard it is asked for
anew, because a network card that went away and came back has forgotten its memberships without a word.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.state_table import StateTable
from mqbroker.base.states import OURS, StateEvent, StateMember


class GroupState(StateMember):
    """Whether a discovery group hears: where its endpoint stands."""

    IDLE = "idle"
    JOINING = "joining"
    LISTENING = "listening"
    FAILED = "failed"
    REJOINING = "rejoining"


class GroupEvent(StateEvent):
    """What happens to the endpoint of a discovery group."""

    TIME = "time", OURS
    JOINED = "joined", OURS
    REFUSED = "refused", OURS


GROUP_STATES: Final = StateTable(
    {
        (GroupState.IDLE, GroupEvent.TIME): GroupState.JOINING,
        (GroupState.JOINING, GroupEvent.JOINED): GroupState.LISTENING,
        (GroupState.JOINING, GroupEvent.REFUSED): GroupState.FAILED,
        (GroupState.FAILED, GroupEvent.TIME): GroupState.JOINING,
        (GroupState.LISTENING, GroupEvent.TIME): GroupState.REJOINING,
        (GroupState.REJOINING, GroupEvent.JOINED): GroupState.LISTENING,
        (GroupState.REJOINING, GroupEvent.REFUSED): GroupState.FAILED,
    },
    "a discovery group is {state}, and got {event}",
)
