"""What went over each link, and when last: for administrators who look for the one that hangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.base.look import LOOK


@dataclass(slots=True)
class Traffic:
    """Messages over one link since it was attached; `active_ns` is the monotonic time of the last, 0: none yet."""

    count: int = 0
    active_ns: int = 0


IDLE: Final = Traffic()


class Activity:
    """By link. Entries go with their links."""

    def __init__(self) -> None:
        self._by_link: dict[ReceiverLink | SenderLink, Traffic] = {}

    def went(self, link: ReceiverLink | SenderLink, count: int, now_ns: int) -> None:
        """So many messages went over the link now."""
        traffic = self._by_link.get(link)
        if traffic is None:
            traffic = self._by_link[link] = Traffic()
        traffic.count += count
        traffic.active_ns = now_ns

    def of(self, link: ReceiverLink | SenderLink) -> Traffic:
        """What went over this link."""
        return self._by_link.get(link, IDLE)

    def gone(self, link: ReceiverLink | SenderLink) -> None:
        """The link is detached: what is known of it goes."""
        LOOK.has_touched = True
        self._by_link.pop(link, None)
