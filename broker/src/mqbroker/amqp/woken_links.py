"""Links that were held back and may send again, told one after the other: there may be very many.

A session's window was closed and is open, or the transport was full and takes something. What comes behind it on its
connection waits until all are told. Invariant: each link that has credit then hears of it after that moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mqbroker.amqp import frame_costs
from mqbroker.amqp.events import CreditGiven
from mqbroker.amqp.links import SenderLink

if TYPE_CHECKING:
    from mqbroker.amqp.links import LinkBase
    from mqbroker.amqp.session import Session

LOOKED_AT_MAX: Final = 16  # links of a piece


class Waking:
    """Of the links of these sessions, but for the one of `told`, a handle of the peer's: that hears of it anyway."""

    __slots__ = ("_links", "_sessions", "_told")

    def __init__(self, sessions: Iterable[Session], told: int | None = None) -> None:
        self._told: Final = told
        self._sessions: list[Session] = []  # those that are left, in reverse
        self._links: list[LinkBase] = []  # the same, of the session whose turn it is
        self.begin(sessions)

    @property
    def is_over(self) -> bool:
        """Whether all links that are to be told are."""
        return not self._sessions

    def begin(self, sessions: Iterable[Session]) -> None:
        """From the first one on, also where it is under way: it has happened again."""
        self._sessions = list(sessions)[::-1]
        self._links = []

    def go_on(self) -> bool:
        """One piece; whether it was the last."""
        if not self._sessions:
            return True
        session = self._sessions[-1]
        if not self._links:
            self._links = list(session.by_handle.values())[::-1]
        connection = session.connection
        connection.allowance -= frame_costs.PASSED
        for _ in range(min(len(self._links), LOOKED_AT_MAX)):
            link = self._links.pop()
            if isinstance(link, SenderLink) and link.credit > 0 and link.peer_handle != self._told:
                connection.allowance -= frame_costs.WOKEN
                connection.events.append(CreditGiven(link))
        if not self._links:
            self._sessions.pop()
        return self.is_over

    def part_with(self, name: str, role: bool) -> None:
        """Nothing of the link of this name is over, so nothing of it is handed back here."""
