"""A session that is over and whose links are handed back: one after the other, as there may be very many.

From the moment it is over none of its links is attached, so nothing goes or comes on them; what each has unsettled
stays in the session until its turn. Invariant: each link is handed back once, in the order of handles unless somebody
wants its name before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqbroker.amqp.links import LinkBase
    from mqbroker.amqp.session import Session
    from mqbroker.wire.performatives import Error


class Parting:
    """Of one session. `is_orderly`: the peer said so."""

    __slots__ = ("_links", "error", "is_orderly", "session")

    def __init__(self, session: Session, links: Iterable[LinkBase], error: Error | None, *, is_orderly: bool) -> None:
        self.session: Final = session
        self.error: Final = error
        self.is_orderly: Final = is_orderly
        self._links = {(link.name, link.role): link for link in reversed(list(links))}

    def next_link(self) -> LinkBase | None:
        """The one whose turn it is."""
        return self._links.popitem()[1] if self._links else None

    def part_with(self, name: str, role: bool) -> None:
        """Hand back the one of this name, before its turn."""
        link = self._links.pop((name, role), None)
        if link is not None:
            self.hand_back(link)

    def hand_back(self, link: LinkBase) -> None:
        """What it had under way returns, and its owner hears that it is gone."""
        self.session.forget_work(link, self.error, is_orderly=self.is_orderly)
