"""The one look-up of all state tables: what follows, and whose fault it is where nothing does."""

from __future__ import annotations

import pytest
from mqbroker.base.errors import Bug, PeerFault, Scope
from mqbroker.base.state_table import StateTable
from mqbroker.base.states import OURS, PEERS, StateEvent, StateMember


class Door(StateMember):
    OPEN = "open"
    SHUT = "shut"


class Push(StateEvent):
    OURS = "we push", OURS
    PEERS = "the peer pushes", PEERS


TABLE = StateTable(
    {(Door.OPEN, Push.OURS): Door.SHUT, (Door.OPEN, Push.PEERS): Door.SHUT}, "{event}, and it is {state}", Scope.LINK
)


@pytest.mark.parametrize("push", Push)
def test_what_the_table_has_follows(push: Push) -> None:
    assert TABLE.after(Door.OPEN, push) is Door.SHUT


def test_what_it_has_not_is_a_bug_where_the_event_is_ours() -> None:
    with pytest.raises(Bug, match=r"^we push, and it is shut$"):
        TABLE.after(Door.SHUT, Push.OURS)


def test_and_a_fault_of_the_peer_where_it_is_its_own() -> None:
    with pytest.raises(PeerFault, match=r"^amqp:not-allowed: the peer pushes, and it is shut$") as caught:
        TABLE.after(Door.SHUT, Push.PEERS)
    assert caught.value.scope is Scope.LINK
