"""State tables: which state follows on a state and an event, and whose fault it is where none does.

A table holds all that may happen. A pair that is missing is a fault of whoever makes the event: a PeerFault where that
is the peer, a Bug where it is us. Apart from its states and events (base/states.py), as enumerations cannot be compiled
and each connection is looked up here six times.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from mqbroker.base.errors import Bug, MqError, PeerFault, Scope
from mqbroker.base.states import PEERS, StateEvent

_State = TypeVar("_State", bound=enum.Enum)
_Event = TypeVar("_Event", bound=StateEvent)


class StateTable(Generic[_State, _Event]):
    """`moves` says which state follows. `fault` is what is said of a pair that is missing, of its {state} and {event};
    `scope` is what a fault of the peer ends."""

    __slots__ = ("_fault", "_scope", "moves")

    def __init__(
        self, moves: Mapping[tuple[_State, _Event], _State], fault: str, scope: Scope = Scope.CONNECTION
    ) -> None:
        self.moves: Final = moves
        self._fault: Final = fault
        self._scope: Final = scope

    def after(self, state: _State, event: _Event) -> _State:
        """The state that follows. Raises PeerFault or Bug, by whose event it is."""
        next_state = self.moves.get((state, event))
        if next_state is None:
            raise self._error(state, event)
        return next_state

    def _error(self, state: _State, event: _Event) -> MqError:
        why = self._fault.format(state=state.value, event=event.words)
        return PeerFault("amqp:not-allowed", why, self._scope) if event.blame is PEERS else Bug(why)
