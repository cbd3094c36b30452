"""A session that is over and whose links are handed back, or a link of which that is so: one after the other, as there
may be very many, and piece by piece what each has unsettled.

From the moment it is over none of the links is attached, so nothing goes or comes on them; what each has unsettled
stays in the session until its turn. Invariant: each link is handed back once, in the order of handles unless somebody
wants its name before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from mqbroker.amqp import frame_costs
from mqbroker.amqp.events import Ended
from mqbroker.amqp.states import SessionState

if TYPE_CHECKING:
    from mqbroker.amqp.links import LinkBase
    from mqbroker.amqp.session import Session
    from mqbroker.wire.performatives import Error


class Piecemeal(Protocol):
    """What takes a while, in pieces: `Parting`, `Settling`, `Waking`, and what the connection's owner has."""

    def go_on(self) -> bool:
        """One piece; whether it was the last."""

    def part_with(self, name: str, role: bool) -> None:
        """Somebody wants a link of this name that is over."""


class Parting:
    """Of links of one session. `is_orderly`: the peer said so; `ends`: the session is over."""

    __slots__ = ("_ends", "_links", "error", "is_orderly", "session")

    def __init__(
        self, session: Session, links: Iterable[LinkBase], error: Error | None, *, is_orderly: bool, ends: bool = True
    ) -> None:
        self.session: Final = session
        self._ends: Final = ends
        self.error: Final = error
        self.is_orderly: Final = is_orderly
        self._links = {(link.name, link.role): link for link in reversed(list(links))}

    def go_on(self) -> bool:
        """One link, or a piece of what it has; whether that was all."""
        session, connection = self.session, self.session.connection
        if self._links:
            key, link = self._links.popitem()
            if session.hand_back_some(link, is_orderly=self.is_orderly):
                self._links[key] = link
            else:
                connection.allowance -= frame_costs.PARTED_LINK
                self.hand_back(link)
            return not (self._links or self._ends)
        if self._ends:
            connection.events.append(Ended(session, self.error))
            if session.state is SessionState.END_RCVD and not connection.is_dead:
                session.end()
            connection.unmap(session)
        return True

    def part_with(self, name: str, role: bool) -> None:
        """Hand back the one of this name, before its turn."""
        link = self._links.pop((name, role), None)
        if link is not None:
            self.hand_back(link)

    def hand_back(self, link: LinkBase) -> None:
        """What it had under way returns, and its owner hears that it is gone."""
        self.session.forget_work(link, self.error, is_orderly=self.is_orderly)
