"""An outcome that a peer tells of very many deliveries at once: taken in piece by piece, as each of them is work.

What comes behind it on its connection waits until it is taken in. Invariant: each delivery gets its outcome once, in
the order of ids, also where session or connection end meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mqbroker.amqp import frame_costs
from mqbroker.amqp.events import Retired, Settled
from mqbroker.wire.performatives import Accepted, Released, TransactionalState

if TYPE_CHECKING:
    from mqbroker.amqp.session import Session
    from mqbroker.amqp.unsettled import Taken

NO_FEWER: Final = 1 << 62


class Portion(NamedTuple):
    """What a piece has at most: entries of `Unsettled`, and messages; and what each of them is charged."""

    entries_max: int
    messages_max: int
    entry_work: int
    message_work: int

    def work_of(self, taken: Sequence[Taken]) -> int:
        """In units of amqp/frame_costs.py."""
        messages = sum(each.n for each in taken) if self.message_work else 0
        return len(taken) * self.entry_work + messages * self.message_work


SETTLED: Final = Portion(32, NO_FEWER, frame_costs.SETTLED, 0)
ENLISTED: Final = Portion(32, NO_FEWER, frame_costs.ENLISTED, 0)
RETURNED: Final = Portion(8, NO_FEWER, frame_costs.RETURNED, 0)
MOVED: Final = Portion(8, 8, 0, frame_costs.MOVED)  # or returned; and messages of a run are moved one by one
OF: Final[dict[type[Any], Portion]] = {Accepted: SETTLED, TransactionalState: ENLISTED, Released: RETURNED}


class Settling:
    """The outcome `state` of the deliveries first…last."""

    __slots__ = ("_first", "_is_settled", "_last", "_portion", "_session", "_state")

    def __init__(self, session: Session, bounds: tuple[int, int], state: Any, *, is_settled: bool) -> None:
        self._session: Final = session
        self._first, self._last = bounds
        self._state: Final = state
        self._is_settled: Final = is_settled
        self._portion: Final = OF.get(type(state), MOVED)

    def go_on(self) -> bool:
        """One piece; whether it was the last."""
        session, state, first = self._session, self._state, self._first
        if first > self._last:
            return True
        last = session.unsettled.piece_of(first, self._last, self._portion)
        has_more = session.unsettled.has_any(last + 1, self._last)
        last = last if has_more else self._last
        self._first = last + 1
        events = session.connection.events
        if isinstance(state, TransactionalState):
            numbered = session.unsettled.take_numbered(first, last)
            if numbered:
                session.connection.allowance -= self._portion.work_of([each for _, each in numbered])
                events.append(Retired(session, numbered, state, self._is_settled))
            return not has_more
        taken = session.unsettled.take(first, last)
        if taken:
            session.connection.allowance -= self._portion.work_of(taken)
            events.append(Settled(session, taken, state, not self._is_settled, first, last, has_more))
        return not has_more

    def part_with(self, _name: str, _role: bool) -> None:
        """Somebody wants a link that is over: what its deliveries came to has to be known before they return."""
        while not self.go_on():
            pass
